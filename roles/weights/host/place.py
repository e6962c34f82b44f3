"""Where files lie on the host: folders that are ours, names that are given last, and what others have put there."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from . import records, verity
from .progress import say
from .records import File
from .spec import Refused, Spec


class Place:
    """The models' root of a run."""

    def __init__(self, spec: Spec) -> None:
        self.root, self.folder, self.ledger = spec.root, spec.records, spec.ledger
        self.lock = threading.Lock()
        self.fs_verity = spec.fs_verity
        self.unguarded: set[str] = set()
        """Reasons why files have no fs-verity, each told once."""

    def path(self, file: File) -> Path:
        """A file's absolute path.

        Raises:
            Refused: on its way lies a link, something else that is no folder, or a folder that others can write.
        """
        path = self.root
        for part in file.path.split("/")[:-1]:
            path /= part
            with suppress(FileNotFoundError):
                there = path.lstat()
                if not stat.S_ISDIR(there.st_mode):
                    raise Refused(f"{path} is not a real folder: replace it with a folder, or remove it")
                # a link that comes after this look would lead root's writing anywhere
                if there.st_uid != 0 or there.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                    raise Refused(f"{path} can be written by others than root: chown root and chmod 755 it")
        path = self.root / file.path
        for one in (path, self.part(path)):
            with suppress(FileNotFoundError):
                if not stat.S_ISREG(one.lstat().st_mode):
                    raise Refused(f"{one} is not a real file: replace it with the file itself, or remove it")
        return path

    @staticmethod
    def part(path: Path) -> Path:
        """What of it was fetched so far."""
        return path.with_name(f"{path.name}.part")

    def holds(self, file: File) -> bool:
        """Whether it was verified, and nobody has touched it since."""
        return self.path(file).exists() and records.holds(self.folder, self.root, file)

    def make(self, folder: Path) -> None:
        """Make a folder, whatever the umask; the ledger has it first."""
        self._make(_lacking(folder), [])

    def claim(self, *paths: Path) -> None:
        """Write down that what is fetched of files is ours, before the first byte of it is there.

        A file itself is ours once it gets its name: until then, what lies there was placed by somebody else. All that
        are named are written down at once: the disk is waited for once, and not by each of two hundred packages.
        """
        with self.lock:
            folders = {one: None for path in paths for one in _lacking(path.parent)}
            lines = [f"file {self.part(path)}" for path in paths]
            known = self._known()
            self._make(list(folders), [line for line in lines if line not in known])

    def _make(self, folders: list[Path], more: list[str]) -> None:
        if lines := [*(f"dir {one}" for one in folders), *more]:
            self._write_down(lines)
            self._settle_ledger()
        for one in folders:
            one.mkdir(exist_ok=True)
            one.chmod(0o755)

    def ours(self, path: Path) -> bool:
        """Whether the ledger has a file."""
        return f"file {path}" in self._known()

    @staticmethod
    def put_aside(path: Path) -> None:
        """Give a wrong file a name that is in nobody's way."""
        count = 1
        aside = path.with_name(f"{path.name}.wrong")
        while os.path.lexists(aside):
            count += 1
            aside = path.with_name(f"{path.name}.{count}.wrong")
        path.rename(aside)
        say(
            f"note: {path} had other bytes than the lock says, and is {aside.name} now: remove it when it is not needed"
        )

    def adopt(self, file: File, path: Path, still: Callable[[], None]) -> None:
        """Take a right file as it lies there; the ledger goes on without it, for it was not brought.

        Args:
            file: the locked one.
            path: where it lies.
            still: raises where somebody writes to it; asked once nobody else can open it any more.
        """
        self._settle(path)
        still()
        self._verified(file)

    def name(self, file: File, path: Path, still: Callable[[], None] = lambda: None, *, brought: bool = True) -> None:
        """Give a part whose bytes are right its name. It is on the disk before.

        Args:
            file: the locked one.
            path: its name.
            still: as for `adopt`.
            brought: whether it is ours to remove.
        """
        part = self.part(path)
        self._settle(part)
        still()
        handle = os.open(part, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        if brought:
            with self.lock:
                if not self.ours(path):
                    self._write_down([f"file {path}"])
            # outside of the lock: whoever else waits for the disk waits at the same time
            self._settle_ledger()
        part.replace(path)
        _settle_folder(path.parent)
        self._verified(file)

    def _verified(self, file: File) -> None:
        """Record it; before that, the kernel is asked to guard it, which changes what is recorded."""
        if self.fs_verity and (why := verity.protect(self.folder, self.root, file)):
            with self.lock:
                if why not in self.unguarded:
                    say(f"note: no fs-verity for {file.path}: {why}; records and the hashing again do the work")
                self.unguarded.add(why)
        records.write(self.folder, self.root, file)

    @staticmethod
    def _settle(path: Path) -> None:
        os.chown(path, 0, 0)
        path.chmod(0o444)

    def _known(self) -> frozenset[str]:
        try:
            return frozenset(self.ledger.read_text().splitlines())
        except FileNotFoundError:
            return frozenset()

    def _write_down(self, lines: list[str]) -> None:
        self.ledger.parent.mkdir(parents=True, exist_ok=True)
        # one write to the end: other jobs write there, too
        handle = os.open(self.ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, "".join(f"{line}\n" for line in lines).encode())
        finally:
            os.close(handle)

    def _settle_ledger(self) -> None:
        handle = os.open(self.ledger, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _lacking(folder: Path) -> list[Path]:
    """The folders on the way to one that are not there, the first of them first."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    return missing[::-1]


def _settle_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
