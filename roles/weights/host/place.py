"""Where files lie on the host: folders that are ours, names that are given last, and what others have put there."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from . import records, verity
from .progress import print_log_line
from .records import LockedFile
from .spec import FetchRefused, FetchSpec


class ModelsRoot:
    """The models' root of a run."""

    def __init__(self, spec: FetchSpec) -> None:
        self.root, self.folder, self.ledger = spec.root, spec.records, spec.ledger
        self.lock = threading.Lock()
        self.fs_verity = spec.fs_verity
        self.unguarded: set[str] = set()
        """Reasons why files have no fs-verity, each told once."""

    def file_path(self, file: LockedFile) -> Path:
        """A file's absolute path.

        Raises:
            FetchRefused: on its way lies a link, something else that is no folder, or a folder that others can write.
        """
        path = self.root
        for part in file.path.split("/")[:-1]:
            path /= part
            with suppress(FileNotFoundError):
                there = path.lstat()
                if not stat.S_ISDIR(there.st_mode):
                    raise FetchRefused(f"{path} is not a real folder: replace it with a folder, or remove it")
                # a link that comes after this look would lead root's writing anywhere
                if there.st_uid != 0 or there.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                    raise FetchRefused(f"{path} can be written by others than root: chown root and chmod 755 it")
        path = self.root / file.path
        for one in (path, self.part_path(path)):
            with suppress(FileNotFoundError):
                if not stat.S_ISREG(one.lstat().st_mode):
                    raise FetchRefused(f"{one} is not a real file: replace it with the file itself, or remove it")
        return path

    @staticmethod
    def part_path(path: Path) -> Path:
        """The fetched part of it."""
        return path.with_name(f"{path.name}.part")

    def is_verified(self, file: LockedFile) -> bool:
        """Whether it was verified, and is unchanged since."""
        return self.file_path(file).exists() and records.is_record_valid(self.folder, self.root, file)

    def make_folder(self, folder: Path) -> None:
        """Make a folder, whatever the umask; the ledger has it first."""
        self._make_folders(_missing_folders(folder), [])

    def claim_paths(self, *paths: Path) -> None:
        """Write down that what is fetched of files is ours, before the first byte of it is there.

        A file itself is Rigwright's once it gets its name: until then, a file there was placed by another user. All
        that are named are written down at once: the disk is waited for once, and not by each of two hundred packages.
        """
        with self.lock:
            folders = {one: None for path in paths for one in _missing_folders(path.parent)}
            lines = [f"file {self.part_path(path)}" for path in paths]
            known = self._read_ledger()
            self._make_folders(list(folders), [line for line in lines if line not in known])

    def _make_folders(self, folders: list[Path], more: list[str]) -> None:
        if lines := [*(f"dir {one}" for one in folders), *more]:
            self._append_to_ledger(lines)
            self._sync_ledger()
        for one in folders:
            one.mkdir(exist_ok=True)
            one.chmod(0o755)

    def is_in_ledger(self, path: Path) -> bool:
        """Whether the ledger has a file."""
        return f"file {path}" in self._read_ledger()

    @staticmethod
    def put_aside(path: Path) -> None:
        """Give a wrong file a name that collides with no other."""
        count = 1
        aside = path.with_name(f"{path.name}.wrong")
        while os.path.lexists(aside):
            count += 1
            aside = path.with_name(f"{path.name}.{count}.wrong")
        path.rename(aside)
        print_log_line(
            f"note: {path} had other bytes than the lock says, and is {aside.name} now: remove it when it is not needed"
        )

    def adopt_file(self, file: LockedFile, path: Path, still: Callable[[], None]) -> None:
        """Take a right file as it lies there; the ledger goes on without it, for it was not brought.

        Args:
            file: the locked one.
            path: where it lies.
            still: raises where another process writes to it; called once no other process can open it any more.
        """
        self._sync_file(path)
        still()
        self._record_verified(file)

    def name_verified_part(
        self, file: LockedFile, path: Path, still: Callable[[], None] = lambda: None, *, brought: bool = True
    ) -> None:
        """Give a part whose bytes are right its name. It is on the disk before.

        Args:
            file: the locked one.
            path: its name.
            still: as for `adopt_file`.
            brought: whether it is ours to remove.
        """
        part = self.part_path(path)
        self._sync_file(part)
        still()
        handle = os.open(part, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        if brought:
            with self.lock:
                if not self.is_in_ledger(path):
                    self._append_to_ledger([f"file {path}"])
            # outside of the lock: other processes that wait for the disk wait at the same time
            self._sync_ledger()
        part.replace(path)
        _sync_folder(path.parent)
        self._record_verified(file)

    def _record_verified(self, file: LockedFile) -> None:
        """Record it; before that, the kernel is asked to guard it, which changes what is recorded."""
        if self.fs_verity and (why := verity.enable_verity(self.folder, self.root, file)):
            with self.lock:
                if why not in self.unguarded:
                    print_log_line(
                        f"note: no fs-verity for {file.path}: {why}; records and the hashing again do the work"
                    )
                self.unguarded.add(why)
        records.write_record(self.folder, self.root, file)

    @staticmethod
    def _sync_file(path: Path) -> None:
        os.chown(path, 0, 0)
        path.chmod(0o444)

    def _read_ledger(self) -> frozenset[str]:
        try:
            return frozenset(self.ledger.read_text().splitlines())
        except FileNotFoundError:
            return frozenset()

    def _append_to_ledger(self, lines: list[str]) -> None:
        self.ledger.parent.mkdir(parents=True, exist_ok=True)
        # one write to the end: other jobs write there, too
        handle = os.open(self.ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, "".join(f"{line}\n" for line in lines).encode())
        finally:
            os.close(handle)

    def _sync_ledger(self) -> None:
        handle = os.open(self.ledger, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _missing_folders(folder: Path) -> list[Path]:
    """The folders on the way to one that are not there, the first of them first."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    return missing[::-1]


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
