"""What Python imports in the place of a module that lies beside it: a patch of that module would change nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NATIVE = r"(?:\.cpython-[^./]+|\.abi3)?\.so"


def shadow_pattern(path: str) -> str:
    """A pattern of the paths that come before a module: packages of its name, and what is compiled of C (importlib's
    FileFinder, and the order of importlib.machinery's suffixes). It is empty where nothing does: of what is no module.

    Args:
        path: Of a file, from where packages are installed.
    """
    module = path.removesuffix(".py")
    if module == path:
        return ""
    package = "" if module.rpartition("/")[2] == "__init__" else rf"|/__init__(?:\.pyc?|{_NATIVE})"
    return f"{re.escape(module)}(?:{_NATIVE}{package})"


def find_shadowing_paths(path: str, there: Iterable[str]) -> list[str]:
    """Which of several paths are imported in the place of a module."""
    pattern = shadow_pattern(path)
    return sorted(filter(re.compile(pattern).fullmatch, there)) if pattern else []
