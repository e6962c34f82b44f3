"""Patches for throwaway hosts: made of a kept wheel, and of what a file of it is to become."""

import difflib
import hashlib
import json
import zipfile
from pathlib import Path

from rigwright.supply.lock import Artefact
from tests.stand_ins.wheel_cache import CACHE

HEAD = """\
target_distribution = {of}
versions = [{version}]
purpose = "to be seen"
source = "written by a test"
licence = "Apache-2.0"
obsolete_when = "the test ends"
diff = "change.diff"

[[targets]]
path = {path}
before = "{before}"
after = "{after}"
"""


def wheel_text(row: Artefact, path: str) -> str:
    """A text file of a kept wheel."""
    with zipfile.ZipFile(CACHE / row.sha256[:16] / row.file) as wheel:
        return wheel.read(path).decode()


def write_wheel_patch(folder: Path, row: Artefact, path: str, after: str, before: str | None = None) -> None:
    """Write a patch of a file of a kept wheel.

    Args:
        folder: Its own, whose name is its name.
        row: The wheel's.
        path: In the wheel.
        after: The new text of the file.
        before: The earlier text; the wheel's without one.
    """
    write_patch(folder, row.name, row.version, path, wheel_text(row, path) if before is None else before, after)


def write_patch(folder: Path, of: str, version: str, path: str, before: str, after: str) -> None:
    """Write a patch of a file of something of a version."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [text.splitlines(keepends=True) for text in (before, after)]
    (folder / "change.diff").write_text("".join(difflib.unified_diff(*lines, f"a/{path}", f"b/{path}")))
    quoted = {name: json.dumps(value) for name, value in {"of": of, "version": version, "path": path}.items()}
    (folder / "patch.toml").write_text(HEAD.format(**quoted, before=_text_sha256(before), after=_text_sha256(after)))


def _text_sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
