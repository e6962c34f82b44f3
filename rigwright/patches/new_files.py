"""Files that a patch adds, and imports that they would shadow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from rigwright.patches.apply import PatchRefused, Read
from rigwright.patches.patch import Patch

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


def find_new_file_refusals(patch: Patch, read: Read, listed: Mapping[str, str] | None) -> Iterator[str]:
    """Why files that a patch brings would stand in the place of others, a line each.

    Args:
        patch: The patch.
        read: The files before it.
        listed: The list of the wheel that it is for; None of a source, which has no other packages next to it.
    """
    for one in patch.keys.targets:
        if one.before is None and (wrong := _describe_conflict(one.path, read, listed)):
            yield f"patch {patch}: {one.path} {wrong}"


def _describe_conflict(path: str, read: Read, listed: Mapping[str, str] | None) -> str:
    for above in map(str, [*PurePosixPath(path).parents][:-1]):
        if _is_file(read, above):
            return f"is below {above}, which is a file"
    if listed is None:
        return ""
    if any(name.startswith(f"{path}/") for name in listed):
        return "is a folder of the package's"
    top = path.partition("/")[0]
    # a folder without one is shared by packages (PEP 420), and so is where all of them lie: only every other wheel
    # shows the owner of a file there
    if f"{top}/__init__.py" not in listed:
        own = sorted(
            name.partition("/")[0] for name in listed if name.endswith("/__init__.py") and name.count("/") == 1
        )
        return f"is in no package of its wheel: must be below {' or '.join(own) or 'one, and it has none'}"
    near = (name for name in listed if path.startswith(name.removesuffix(".py")))
    instead = [name for name in near if find_shadowing_paths(name, [path])]
    return f"would be imported in the place of {instead[0]}" if instead else ""


def _is_file(read: Read, path: str) -> bool:
    try:
        return read(path) is not None
    except PatchRefused:  # a folder, as archives of sources list them
        return False
