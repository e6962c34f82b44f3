"""Boxes nearby that have the files, or are about to."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from .answers import is_transient
from .http import NO_CONNECTION, NO_HOST, TOO_SLOW, get_document
from .progress import FETCHING, NAME, WAITING
from .spec import FetchRefused, TransferLimits

CONNECT = 5
"""Seconds for a connection to a box nearby."""
MOST_BEHIND = 64
"""Of boxes that wait for each other in a row."""


class PeerBox:
    """One box, for all files of a run."""

    def __init__(self, base: str, identity: str, pace: TransferLimits) -> None:
        self.base, self.identity = base.rstrip("/"), identity
        self.pace = replace(pace, connect=min(pace.connect, CONNECT))
        self.lock = threading.Lock()
        self._document: dict[str, Any] = {}
        self._looked = self._written = float("-inf")
        self._samples: deque[tuple[float, float]] = deque()
        """When it had brought how many bytes: the first is the newest that is `stall` seconds old, or the oldest."""
        self._until: float | None = None
        """When its own downloads are not waited for any longer; None before the first wait."""
        # since when no server has answered there
        self._away = float("-inf")
        self._gone = ""
        self._begin_by = time.monotonic() + pace.begin

    def file_url(self, path: str) -> str:
        """A file's address."""
        return f"{self.base}/{quote(path)}"

    def require_reachable(self) -> None:
        """Have a first look. One that does not answer is asked for nothing more in this run.

        Raises:
            FetchRefused: no server answers.
        """
        self._refresh_progress()
        if self._gone:
            raise FetchRefused(self._gone)

    def wait_for_file(self, path: str, waiting: Callable[[tuple[str, ...]], None], *, last: bool) -> bool:
        """Wait while the box is fetching a file, or may be about to; False when it was not, and is not.

        Args:
            path: the file's.
            waiting: called at every look with the chain of boxes that are waited for: the box, the one that it waits
            for itself, and so on.
            last: there is no other source.

        Raises:
            FetchRefused: it does not get on with it.
        """
        waited = False
        self._until = self._until or time.monotonic() + self.pace.peer
        while row := self._progress_row(path):
            behind = (str(self._document.get("identity")), *map(str, row.get("behind") or ()))
            # in a ring no box would fetch: the one with the least identity does, and the others have it from there
            if self.identity in behind and self.identity == min(behind):
                raise FetchRefused("it waits for this host itself")
            self._check_pace(row, self.pace.least if last else self.pace.slowest)
            waiting(behind[:MOST_BEHIND])
            waited = True
            time.sleep(self.pace.pause)
        if self._gone:
            raise FetchRefused(self._gone)
        if not waited and time.monotonic() < self._begin_by:
            # the jobs of a fleet are started at once, and begin in any order
            waiting(())
            time.sleep(self.pace.pause)
            return True
        return waited

    def _check_pace(self, row: dict[str, Any], rate: int) -> None:
        """Give the box up where it is slower than `rate` bytes a second.

        While the box hashes, or waits for another box itself, a progress file that changes is all that it has to show.

        Raises:
            FetchRefused: it is slower, or has been waited for too long.
        """
        now, stall = time.monotonic(), self.pace.stall
        if self._until is not None and now >= self._until:
            raise FetchRefused(f"its own downloads have been waited for for {self.pace.peer / 3600:.0f} h")
        if row.get("state") not in (FETCHING, WAITING) or row.get("done") == row.get("size"):
            if now - self._written >= stall:
                raise FetchRefused(f"it has written no progress for {stall:.0f} s")
            return
        while len(self._samples) > 1 and self._samples[1][0] <= now - stall:
            self._samples.popleft()
        since, before = self._samples[0]
        if now - since >= stall and self._samples[-1][1] - before <= rate * stall:
            raise FetchRefused(f"its own download is slower than {rate / 1024:.0f} KiB/s, measured over {stall:.0f} s")

    def _progress_row(self, path: str) -> dict[str, Any] | None:
        self._refresh_progress()
        return next((row for row in self._document.get("files", ()) if row.get("path") == path), None)

    def _refresh_progress(self) -> None:
        """Read its progress, once for all files that wait. Its change counts, not its clock."""
        with self.lock:
            now = time.monotonic()
            if self._gone or now - self._looked < self.pace.pause:
                return
            answer = get_document(f"{self.base}/{NAME}", self.pace)
            self._looked = time.monotonic()
            if answer.exit in (NO_HOST, NO_CONNECTION, TOO_SLOW):
                self._away = min(self._away, self._looked)
                if self._looked - self._away >= self.pace.stall:
                    self._gone = f"not reached: {answer.said}"
                return
            if answer.status:
                self._away = float("inf")
            if answer.exit and (answer.status < 400 or is_transient(answer.status)):
                # busy, or just starting again: the earlier state holds, until that is too long ago
                return
            document = _parse_progress(answer.body) if answer.exit == 0 else {}
            if document.get("updated") != self._document.get("updated"):
                self._written = self._looked
            done = _parse_byte_count(document.get("done"))
            if self._samples and done < self._samples[-1][1]:
                # a file that was not the locked one is fetched again
                self._samples.clear()
            self._samples.append((self._looked, done))
            self._document = document


def _parse_byte_count(value: object) -> float:
    """Bytes, of what a progress file may have in the place of a number."""
    try:
        return float(value) if isinstance(value, int | float) else 0.0
    except OverflowError:
        return 0.0


def _parse_progress(body: bytes) -> dict[str, Any]:
    """A progress file; an empty one of an invalid text."""
    try:
        document = json.loads(body)
        rows = document["files"]
        whole = all(isinstance(row, dict) and isinstance(row.get("behind", []), list) for row in rows)
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}
    return document if whole and isinstance(rows, list) else {}
