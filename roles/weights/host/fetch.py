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
from .bringing import FULL, Bringing, Means, look
from .client import remove_tree
from .http import room, size_of
from .place import Place
from .progress import Board, say
from .records import File
from .spec import DiskFull, Refused, Spec, Wanted, read

THREADS = 32
"""At most; of the files that they hold, most wait for a transfer or a peer."""
GB = 10**9
LOCK = "weights"


@contextmanager
def alone(spec: Spec) -> Iterator[None]:
    """One run at a time, for all of them write below one root.

    Raises:
        Refused: another one does not end.
    """
    turn = spec.pace.turn

    def behind(who: str) -> None:
        say(f"==> waiting for another run that brings weights, {turn:.0f} s at most: {who}")

    try:
        with locks.held(spec.locks, LOCK, turn, behind):
            yield
    except locks.Held as error:
        raise Refused(
            f"another run brings weights, and has not ended in {turn:.0f} s: {error}; deploy again when it has"
        ) from None


class Run:
    """One run over all files."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.place = Place(spec)
        self.failures: dict[str, str] = {}
        """By path: why a file is not there."""

    def run(self) -> int:
        """Bring what is missing; the exit status."""
        self.place.make(self.spec.root)
        with alone(self.spec):
            for folder in self.spec.root.glob(".hub-*"):
                remove_tree(folder)
            open_files = [wanted for wanted in self.spec.files if not self._there(wanted.file)]
            try:
                if open_files:
                    self._bring(sorted(open_files, key=_largest_first))
            finally:
                if self.spec.sent:
                    shutil.rmtree(self.spec.sent, ignore_errors=True)
        return self._report()

    def _there(self, file: File) -> bool:
        try:
            return self.place.holds(file)
        except (Refused, OSError) as error:
            self.failures[file.path] = _reason(error)
            return True

    def _bring(self, wanted: list[Wanted]) -> None:
        with Board(self.spec.root, [one.file for one in wanted]) as board:
            means = Means(self.spec, self.place, board)
            say(f"==> looking for {len(wanted)} files")
            cores = len(os.sched_getaffinity(0))
            missing: list[Wanted] = []

            def find(one: Wanted) -> None:
                if look(means, one.file):
                    board.done(one.file)
                else:
                    missing.append(one)

            def fetch(one: Wanted) -> None:
                bringing = Bringing(means, one)
                try:
                    bringing.bring()
                finally:
                    bringing.follower.abandon()
                board.done(one.file)

            self._each(wanted, cores, find, means)
            missing.sort(key=_largest_first)
            if missing and self._fits(missing):
                total = sum(one.file.size for one in missing)
                say(f"==> fetching {len(missing)} files, {total / GB:.2f} GB")
                self.place.claim(*self._usable(missing))
                self._each(missing, THREADS, fetch, means)

    def _usable(self, wanted: list[Wanted]) -> Iterator[Path]:
        """Places that files can have; why one cannot be used is said where it is brought."""
        for one in wanted:
            with suppress(Refused):
                yield self.place.path(one.file)

    def _each(self, wanted: list[Wanted], threads: int, work: Callable[[Wanted], None], means: Means) -> None:
        """Do something with every file; one that fails does not stop the others, a full disk does."""

        def guarded(one: Wanted) -> None:
            try:
                work(one)
            except Exception as error:
                if isinstance(error, DiskFull) or getattr(error, "errno", None) in FULL:
                    means.full = True
                    error = DiskFull(self._full())
                self.failures[one.file.path] = _reason(error)
                means.board.lost(one.file)

        with ThreadPoolExecutor(min(threads, len(wanted))) as pool:
            for _ in pool.map(guarded, wanted):
                pass

    def _fits(self, missing: list[Wanted]) -> bool:
        """Whether there is room for what is still to come; before the first byte of it."""
        to_come = sum(self._to_come(one.file) for one in missing)
        there = room(self.spec.root)
        if not to_come or to_come + self.spec.reserve <= there:
            return True
        reason = (
            f"{to_come / GB:.2f} GB are still to come and {self.spec.reserve / GB:.2f} GB are to stay free, but the "
            f"disk of {self.spec.root} has {there / GB:.2f} GB left: make room, or let roots.models be on another disk"
        )
        self.failures |= {one.file.path: reason for one in missing}
        return False

    def _to_come(self, file: File) -> int:
        path = self.place.path(file)
        if self.spec.sent:
            sent = self.spec.sent / path.name
            if sent.is_file() and sent.stat().st_dev == self.spec.root.stat().st_dev:
                return 0
        return max(0, file.size - size_of(self.place.part(path)))

    def _full(self) -> str:
        return (
            f"the disk of {self.spec.root} is full, with {room(self.spec.root) / GB:.2f} GB left: make room and deploy "
            "again, and it goes on from what is there"
        )

    def _report(self) -> int:
        if not self.failures:
            count = len(self.spec.files)
            say("==> the file is there" if count == 1 else f"==> all {count} files are there")
            return 0
        say(f"==> {len(self.failures)} of {len(self.spec.files)} files are missing")
        shared = set(self.failures.values())
        if len(shared) == 1 and len(self.failures) > 1:
            say(f"{', '.join(sorted(self.failures))}: {shared.pop()}")
        else:
            for path, reason in sorted(self.failures.items()):
                say(f"{path}: {reason}")
        return 1


def _largest_first(wanted: Wanted) -> tuple[int, str]:
    return -wanted.file.size, wanted.file.path


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    return str(error)


def main() -> int:
    """Run the file that is named."""
    signal.signal(signal.SIGIO, signal.SIG_IGN)  # of a lease: roles/weights/host/hold.py
    try:
        return Run(read(Path(sys.argv[1]))).run()
    except (Refused, OSError) as error:
        say(_reason(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
