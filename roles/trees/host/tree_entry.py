"""Root's view of a file of a tree."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

# A mode may be as it should be, and these let others in all the same, or a program do more.
RIGHTS = ("security.capability", "system.posix_acl_access", "system.posix_acl_default")

Entry = tuple[str, int, int, int, int, int, int, int, str]
"""Kind (f, d, l or ?), inode, size, mode, user, group, mtime and ctime in ns, and SHA-256 or where the link leads."""


def walk_tree(top: Path, loose: tuple[str, ...] = ()) -> Iterator[tuple[str, os.stat_result]]:
    """Path from the tree on and state of all that is in it, itself as the empty path."""
    yield "", top.lstat()
    left = [""]
    while left:
        folder = left.pop()
        with os.scandir(top / folder) as found:
            for one in found:
                name = f"{folder}/{one.name}" if folder else one.name
                if name in loose:
                    continue
                state = one.stat(follow_symlinks=False)
                if stat.S_ISDIR(state.st_mode):
                    left.append(name)
                yield name, state


def kind_letter(state: os.stat_result) -> str:
    """A letter for what it is."""
    tests = (("f", stat.S_ISREG), ("d", stat.S_ISDIR), ("l", stat.S_ISLNK))
    return next((letter for letter, test in tests if test(state.st_mode)), "?")


def stat_fields(state: os.stat_result) -> tuple[str, int, int, int, int, int, int, int]:
    """A state as a record has it; of a folder and of a link no size and no times."""
    kind = kind_letter(state)
    size, changed = (state.st_size, state.st_mtime_ns) if kind == "f" else (0, 0)
    mode = stat.S_IMODE(state.st_mode) if kind != "l" else 0
    # names that come and go in a folder move its times, and are seen themselves
    touched = state.st_ctime_ns if kind != "d" else 0
    return kind, state.st_ino, size, mode, state.st_uid, state.st_gid, changed, touched


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    hashed = hashlib.sha256()
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        while part := file.read(1 << 20):
            hashed.update(part)
    return hashed.hexdigest()


def content_digest(path: Path, kind: str) -> str:
    """The digest that distinguishes a file, or link, from another."""
    if kind == "f":
        return file_digest(path)
    return str(path.readlink()) if kind == "l" else ""


def extra_permissions(path: Path, kind: str) -> list[str]:
    """Attributes that give more than a mode says."""
    if kind == "l":
        return []
    try:
        return [name for name in os.listxattr(path, follow_symlinks=False) if name in RIGHTS]
    except OSError:  # the file system has none
        return []
