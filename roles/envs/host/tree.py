"""The tree that is judged: its contents, read without following a link."""

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
"""Reasons that are reported."""
LARGEST = 64 << 20
"""Bytes of a list of files; torch's has 2 MB."""
PART = 1 << 20
LONGEST = 300
"""Characters of a word that is reported."""


class EnvironmentRejected(Exception):
    """The environment is not what the lock says; a line a reason."""


@dataclass
class FolderTree:
    """The paths below a folder, by kind."""

    files: dict[str, int] = field(default_factory=dict)
    """Path -> bytes."""
    links: dict[str, str] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    """Each before what is in it."""
    wrong: list[str] = field(default_factory=list)


def walk_folder(top: Path) -> FolderTree:
    """Everything below a folder; an object that no environment has is reported as wrong."""
    found = FolderTree()
    # its author may have put a link to a folder there to which another user can go on writing
    if not stat.S_ISDIR(top.lstat().st_mode):
        found.wrong.append(f"{top.name} is not a folder")
        return found
    left = [""]
    while left:
        folder = left.pop()
        # a hundred thousand files: a Path for each would take seconds
        with os.scandir(top / folder) as entries:
            for one in sorted(entries, key=lambda entry: entry.name):
                relative = f"{folder}/{one.name}" if folder else one.name
                mode = one.stat(follow_symlinks=False)
                if not NAME.fullmatch(one.name) or not relative.isprintable():
                    found.wrong.append(f"{relative!r} has a name that no file of a package has")
                elif stat.S_ISLNK(mode.st_mode):
                    found.links[relative] = os.readlink(one.path)  # noqa: PTH115 (as above)
                    if not _is_link_inside(relative, found.links[relative]):
                        found.wrong.append(f"{relative} leads out of it, to {found.links[relative]!r}")
                elif stat.S_ISREG(mode.st_mode):
                    found.files[relative] = mode.st_size
                    if mode.st_mode & (stat.S_ISUID | stat.S_ISGID) or mode.st_nlink > 1:
                        found.wrong.append(f"{relative} has another name, or another user's rights")
                elif stat.S_ISDIR(mode.st_mode):
                    found.folders.append(relative)
                    left.append(relative)
                else:
                    found.wrong.append(f"{relative} is neither file nor folder")
    return found


def make_root_owned(top: Path) -> None:
    """Make everything below a folder root's, readable for all and writable only for root.

    A hashed file stays as it is: its time, which only the kernel sets, would show a change.

    Raises:
        EnvironmentRejected: with what no environment has.
    """
    tree = walk_folder(top)
    if tree.wrong:
        raise EnvironmentRejected("\n".join(tree.wrong[:SHOWN]))
    # a Path for each would take as long as all else
    for path in (str(top), *(f"{top}/{one}" for one in (*tree.folders, *tree.links, *tree.files))):
        os.chown(path, 0, 0, follow_symlinks=False)
        # after its owner, which takes away what an owner may
        found = os.lstat(path).st_mode
        if stat.S_ISLNK(found):
            continue
        wanted = 0o644 if stat.S_ISREG(found) and not found & 0o111 else 0o755
        if stat.S_IMODE(found) != wanted:
            os.chmod(path, wanted)  # noqa: PTH101 (as above)


def _is_link_inside(relative: str, target: str) -> bool:
    """Whether a link's target lies in the same tree, as its text says."""
    parts = target.split("/")
    ups = len(parts) - len(list(dropwhile(lambda part: part == "..", parts)))
    # after a name, `..` leads to wherever that name does
    return not target.startswith("/") and ".." not in parts[ups:] and ups <= relative.count("/")


def read_tree_text(top: Path, relative: str) -> str:
    """A file of the tree, of a likely size.

    Raises:
        EnvironmentRejected: it is larger, or no text.
    """
    handle = os.open(top / relative, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(handle, "rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise EnvironmentRejected(f"{relative} is larger than {LARGEST >> 20} MiB")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise EnvironmentRejected(f"{relative} is not text") from None


@dataclass(frozen=True)
class HashedFile:
    """A file as it was hashed."""

    sha256: str
    inode: int
    size: int
    mtime: int
    ctime: int
    """Nanoseconds since the epoch, as the kernel has it."""

    @property
    def row(self) -> str:
        """As roles/trees/host/tree_records.py reads it."""
        return f"{self.sha256} {self.inode} {self.size} {self.mtime} {self.ctime}"


def hash_unchanged_file(path: str | Path, buffer: bytearray | None = None) -> HashedFile:
    """Hash a file's bytes.

    Raises:
        EnvironmentRejected: it was changed meanwhile.
    """
    room = buffer if buffer is not None else bytearray(PART)
    digest, view = hashlib.sha256(), memoryview(room)
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        before = _file_stamp(handle)
        while count := os.readv(handle, [room]):
            digest.update(view[:count])
        if _file_stamp(handle) != before:
            raise EnvironmentRejected(f"{escape_word(path)} was changed while it was read")
    finally:
        os.close(handle)
    return HashedFile(digest.hexdigest(), *before)


def _file_stamp(handle: int) -> tuple[int, int, int, int]:
    found = os.fstat(handle)
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def sha256(path: Path) -> str:
    """Of a file's bytes."""
    return hash_unchanged_file(path).sha256


def escape_word(said: object) -> str:
    """A foreign word as part of a line, which is to stay one."""
    word = str(said)
    return word if word.isprintable() and len(word) <= LONGEST else repr(word[:LONGEST])


def hash_tree_files(top: Path, files: Mapping[str, int], said: Any) -> dict[str, HashedFile]:
    """Path -> what it is, by as many threads as there are processors.

    Raises:
        EnvironmentRejected: one was changed meanwhile.
    """
    total = sum(files.values()) or 1
    found: dict[str, HashedFile] = {}
    # a list's iterator gives each file to one thread; a task for each would take longer than a small one's hash
    left = iter(sorted(files, key=lambda one: -files[one]))
    threads = len(os.sched_getaffinity(0))
    done = [0] * threads

    def work(number: int) -> None:
        buffer, told, prefix = bytearray(PART), 0, f"{top}/"
        for relative in left:
            found[relative] = hash_unchanged_file(prefix + relative, buffer)
            done[number] += files[relative]
            if number == 0 and said and (part := sum(done) * 100 // total) > told:
                told = part
                said(part)

    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(work, range(threads)):
            pass
    return found
