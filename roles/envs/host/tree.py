"""The tree that is judged: what lies there, read without following a link."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import dropwhile
from pathlib import Path
from typing import Any

NAME = re.compile(r"[^\x00-\x1f\x7f]{1,255}")
SHOWN = 20
"""Reasons that are told."""
LARGEST = 64 << 20
"""Bytes of a list of files; torch's has 2 MB."""
PART = 1 << 20
LONGEST = 300
"""Characters of a word that is told."""


class Refused(Exception):
    """The environment is not what the lock says; a line a reason."""


@dataclass
class Tree:
    """The paths below a folder, by kind."""

    files: dict[str, int] = field(default_factory=dict)
    """Path -> bytes."""
    links: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


def walk(top: Path) -> Tree:
    """Everything below a folder; what no environment has is told as wrong."""
    found = Tree()
    # whoever has made it may have put a link to a folder of somebody's there, who can go on writing to that
    if not stat.S_ISDIR(top.lstat().st_mode):
        found.wrong.append(f"{top.name} is not a folder")
        return found
    for folder, folders, names in os.walk(top, followlinks=False):
        for name in (*folders, *names):
            path = Path(folder, name)
            relative = path.relative_to(top).as_posix()
            mode = path.lstat()
            if not NAME.fullmatch(name) or not relative.isprintable():
                found.wrong.append(f"{relative!r} has a name that no file of a package has")
            elif stat.S_ISLNK(mode.st_mode):
                found.links[relative] = str(path.readlink())
                if not _inside(relative, found.links[relative]):
                    found.wrong.append(f"{relative} leads out of it, to {found.links[relative]!r}")
            elif stat.S_ISREG(mode.st_mode):
                found.files[relative] = mode.st_size
                if mode.st_mode & (stat.S_ISUID | stat.S_ISGID) or mode.st_nlink > 1:
                    found.wrong.append(f"{relative} has another name, or another user's rights")
            elif not stat.S_ISDIR(mode.st_mode):
                found.wrong.append(f"{relative} is neither file nor folder")
    return found


def _inside(relative: str, target: str) -> bool:
    """Whether a link's target lies in the same tree, as its text says."""
    parts = target.split("/")
    ups = len(parts) - len(list(dropwhile(lambda part: part == "..", parts)))
    # after a name, `..` leads to wherever that name does
    return not target.startswith("/") and ".." not in parts[ups:] and ups <= relative.count("/")


def text(top: Path, relative: str) -> str:
    """A file of the tree, of a likely size.

    Raises:
        Refused: it is larger, or no text.
    """
    handle = os.open(top / relative, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(handle, "rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise Refused(f"{relative} is larger than {LARGEST >> 20} MiB")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Refused(f"{relative} is not text") from None


def sha256(path: Path) -> str:
    """Of a file's bytes."""
    digest = hashlib.sha256()
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(handle, "rb", buffering=0) as file:
        while part := file.read(PART):
            digest.update(part)
    return digest.hexdigest()


def shown(said: object) -> str:
    """A word of somebody's as part of a line, which is to stay one."""
    word = str(said)
    return word if word.isprintable() and len(word) <= LONGEST else repr(word[:LONGEST])


def hashed(top: Path, files: Mapping[str, int], said: Any) -> dict[str, str]:
    """Path -> SHA-256."""
    total, done, told = sum(files.values()) or 1, 0, 0
    found = {}
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for relative, digest in zip(files, pool.map(lambda one: sha256(top / one), files), strict=False):
            found[relative] = digest
            done += files[relative]
            if said and done * 100 // total > told:
                told = done * 100 // total
                said(told)
    return found
