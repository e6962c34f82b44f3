"""Two hosts that were made from the same inputs, compared file by file; a table has the permitted differences."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rigwright.toml import tomllib

PERMITTED = Path(__file__).with_name("permitted_differences.toml")
OVERLAY = "trusted.overlay."
"""Attributes by which the kernel knows what a host has removed or replaced."""


@dataclass(frozen=True)
class ComparedFile:
    """Everything that is compared of a file, folder or link; no times."""

    kind: str
    mode: int
    owner: str
    size: int
    content: str
    """SHA-256 of a file, target of a link, number of a device; empty for others."""
    attributes: tuple[tuple[str, bytes], ...]

    def describe_difference(self, other: ComparedFile) -> str:
        """The fields that differ, with both values."""
        return "; ".join(
            f"{name} {value!r} and {vars(other)[name]!r}"
            for name, value in vars(self).items()
            if value != vars(other)[name]
        )


@dataclass(frozen=True)
class PermittedDifference:
    """A row of the table."""

    path: re.Pattern[str]
    reason: str
    fields: frozenset[str]
    """The fields that may differ; `presence` is that of the file itself."""


def collect_files(root: Path) -> dict[str, ComparedFile]:
    """Path -> file, of everything below a folder."""
    found = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            found[f"/{path.relative_to(root)}"] = _describe_file(path)
    return found


def _describe_file(path: Path) -> ComparedFile:
    status = path.lstat()
    kind, size, content = stat.filemode(status.st_mode)[0], 0, ""
    if stat.S_ISREG(status.st_mode):
        size, content = status.st_size, hashlib.sha256(path.read_bytes()).hexdigest()
    elif stat.S_ISLNK(status.st_mode):
        content = str(path.readlink())
    elif stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
        content = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    names = sorted(one for one in os.listxattr(path, follow_symlinks=False) if not one.startswith(OVERLAY))
    attributes = tuple((one, os.getxattr(path, one, follow_symlinks=False)) for one in names)
    return ComparedFile(
        kind, stat.S_IMODE(status.st_mode), f"{status.st_uid}:{status.st_gid}", size, content, attributes
    )


def load_permitted(path: Path = PERMITTED) -> list[PermittedDifference]:
    """The table of permitted differences."""
    return [
        PermittedDifference(re.compile(row["path"]), row["reason"], frozenset(row["fields"]))
        for row in tomllib.loads(path.read_text())["difference"]
    ]


def compare_files(
    one: Mapping[str, ComparedFile], other: Mapping[str, ComparedFile], permitted: Iterable[PermittedDifference]
) -> list[str]:
    """Problems: differences that no row permits, and rows that permit none."""
    rows = [*permitted]
    used: set[int] = set()
    problems = []
    for path in sorted({*one, *other}):
        first, second = one.get(path), other.get(path)
        if first == second:
            continue
        if first is None or second is None:
            fields, text = {"presence"}, f"only on the {'second' if first is None else 'first'} host"
        else:
            fields = {name for name, value in vars(first).items() if value != vars(second)[name]}
            text = first.describe_difference(second)
        found = next((at for at, row in enumerate(rows) if row.path.fullmatch(path) and fields <= row.fields), None)
        if found is None:
            problems.append(f"{path}: {text}")
        else:
            used.add(found)
    return problems + [f"no difference: {row.path.pattern}" for at, row in enumerate(rows) if at not in used]
