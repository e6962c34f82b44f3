"""Bring every file of a run: `python3 -m rigwright_weights.fetch SPEC.json`, as root.

It may be ended at any moment, and goes on from there in the next run. A file has its name only when its bytes are the
locked ones.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from . import locks
from .bringing import FULL, Download, RunResources, adopt_existing
from .client import remove_tree
from .http import available_bytes, file_size
from .place import ModelsRoot
from .progress import ProgressBoard, print_log_line, spell_bytes, spell_count
from .records import LockedFile
from .spec import DiskFull, FetchRefused, FetchSpec, FileRequest, load_spec

THREADS = 32
"""At most; of the files that they hold, most wait for a transfer or a peer."""
GB, MB = 10**9, 10**6
LOCK = "weights"


@contextmanager
def hold_run_lock(spec: FetchSpec) -> Iterator[None]:
    """One run at a time, for all of them write below one root.

    Raises:
        FetchRefused: another one does not end.
    """
    turn = spec.pace.turn

    def behind(who: str) -> None:
        print_log_line(f"==> waiting for another run that brings weights, {turn:.0f} s at most: {who}")

    try:
        with locks.hold_lock(spec.locks, LOCK, turn, behind):
            yield
    except locks.LockHeldElsewhere as error:
        raise FetchRefused(
            f"another run brings weights, and has not ended in {turn:.0f} s: {error}; deploy again when it has"
        ) from None


class FetchRun:
    """One run over all files."""

    def __init__(self, spec: FetchSpec) -> None:
        self.spec = spec
        self.place = ModelsRoot(spec)
        self.failures: dict[str, str] = {}
        """By path: why a file is not there."""

    def run(self) -> int:
        """Bring what is missing; the exit status."""
        self.place.make_folder(self.spec.root)
        with hold_run_lock(self.spec):
            for folder in self.spec.root.glob(".hub-*"):
                remove_tree(folder)
            open_files = [wanted for wanted in self.spec.files if not self._is_present(wanted.file)]
            try:
                if open_files:
                    self._fetch_files(sorted(open_files, key=_size_order))
            finally:
                if self.spec.sent:
                    shutil.rmtree(self.spec.sent, ignore_errors=True)
        return self._report()

    def _is_present(self, file: LockedFile) -> bool:
        try:
            return self.place.is_verified(file)
        except (FetchRefused, OSError) as error:
            self.failures[file.path] = _describe_failure(error)
            return True

    def _fetch_files(self, wanted: list[FileRequest]) -> None:
        with ProgressBoard(self.spec.root, [one.file for one in wanted]) as board:
            means = RunResources(self.spec, self.place, board)
            print_log_line(f"==> looking for {spell_count(len(wanted), 'file')}")
            cores = len(os.sched_getaffinity(0))
            missing: list[FileRequest] = []

            def find(one: FileRequest) -> None:
                if adopt_existing(means, one.file):
                    board.mark_done(one.file)
                else:
                    missing.append(one)

            def fetch(one: FileRequest) -> None:
                bringing = Download(means, one)
                try:
                    bringing.fetch_file()
                finally:
                    bringing.follower.abandon()
                board.mark_done(one.file)

            self._run_for_each(wanted, cores, find, means)
            missing.sort(key=_size_order)
            if missing and self._has_room(missing):
                total = sum(one.file.size for one in missing)
                print_log_line(f"==> fetching {spell_count(len(missing), 'file')}, {spell_bytes(total)}")
                self.place.claim_paths(*self._usable_paths(missing))
                self._run_for_each(missing, THREADS, fetch, means)

    def _usable_paths(self, wanted: list[FileRequest]) -> Iterator[Path]:
        """Places that files can have; the download of a file reports why one cannot be used."""
        for one in wanted:
            with suppress(FetchRefused):
                yield self.place.file_path(one.file)

    def _run_for_each(
        self, wanted: list[FileRequest], threads: int, work: Callable[[FileRequest], None], means: RunResources
    ) -> None:
        """Do something with every file; one that fails does not stop the others, a full disk does."""

        def guarded(one: FileRequest) -> None:
            try:
                work(one)
            except Exception as error:
                if isinstance(error, DiskFull) or getattr(error, "errno", None) in FULL:
                    means.full = True
                    error = DiskFull(self._describe_full_disk())
                self.failures[one.file.path] = _describe_failure(error)
                means.board.mark_failed(one.file)

        with ThreadPoolExecutor(min(threads, len(wanted))) as pool:
            for _ in pool.map(guarded, wanted):
                pass

    def _has_room(self, missing: list[FileRequest]) -> bool:
        """Whether there is room for what is still to come; before the first byte of it."""
        to_come = sum(self._missing_bytes(one.file) for one in missing)
        there = available_bytes(self.spec.root)
        if not to_come or to_come + self.spec.reserve <= there:
            return True
        reason = (
            f"{to_come / GB:.2f} GB are still to come and {self.spec.reserve / GB:.2f} GB are to stay free, but the "
            f"disk of {self.spec.root} has {there / GB:.2f} GB left: make room, or let roots.models be on another disk"
        )
        self.failures |= {one.file.path: reason for one in missing}
        return False

    def _missing_bytes(self, file: LockedFile) -> int:
        path = self.place.file_path(file)
        if self.spec.sent:
            sent = self.spec.sent / path.name
            if sent.is_file() and sent.stat().st_dev == self.spec.root.stat().st_dev:
                return 0
        return max(0, file.size - file_size(self.place.part_path(path)))

    def _describe_full_disk(self) -> str:
        return (
            f"the disk of {self.spec.root} is full, with {available_bytes(self.spec.root) / GB:.2f} GB left: "
            f"make room and deploy "
            "again, and it goes on from what is there"
        )

    def _report(self) -> int:
        if not self.failures:
            count = len(self.spec.files)
            print_log_line("==> the file is there" if count == 1 else f"==> all {count} files are there")
            return 0
        print_log_line(f"==> missing: {len(self.failures)} of {spell_count(len(self.spec.files), 'file')}")
        shared = set(self.failures.values())
        if len(shared) == 1 and len(self.failures) > 1:
            print_log_line(f"{', '.join(sorted(self.failures))}: {shared.pop()}")
        else:
            for path, reason in sorted(self.failures.items()):
                print_log_line(f"{path}: {reason}")
        return 1


def _size_order(wanted: FileRequest) -> tuple[int, str]:
    return -wanted.file.size, wanted.file.path


def _describe_failure(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return str(error)


def main() -> int:
    """Run the file that is named."""
    signal.signal(signal.SIGIO, signal.SIG_IGN)  # of a lease: roles/weights/host/hold.py
    try:
        return FetchRun(load_spec(Path(sys.argv[1]))).run()
    except (FetchRefused, OSError) as error:
        print_log_line(_describe_failure(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
