"""How far the files are: for the operator's terminal, and for peers that wait for one of them."""

from __future__ import annotations

import json
import secrets
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from .records import LockedFile

NAME = ".progress.json"
INTERVAL = 0.5
"""Seconds between two writings."""

WAITING, FETCHING, VERIFYING = "waiting", "fetching", "verifying"
FOR_PEER = "waiting for peer"


def print_log_line(line: str) -> None:
    """A line of the job's log."""
    print(line, flush=True)


def spell_count(number: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def spell_bytes(count: int) -> str:
    """`19.1 GB`, `3.2 MB`, `12 kB`."""
    return (
        f"{count / 1e9:.1f} GB"
        if count >= 1e9
        else f"{count / 1e6:.1f} MB"
        if count >= 1e6
        else f"{count / 1e3:.0f} kB"
    )


@dataclass
class FileProgressRow:
    """One file's progress."""

    file: LockedFile
    done: int = 0
    """Bytes."""
    state: str = WAITING
    source: str = ""
    behind: tuple[str, ...] = ()
    """Identities of those that it waits for, nearest first."""


class ProgressBoard:
    """Every file that is not known to be right, and how far it is. It is written as often as INTERVAL says."""

    def __init__(self, root: Path, files: list[LockedFile]) -> None:
        self.path = root / NAME
        self.identity = secrets.token_hex(8)
        """By which boxes that wait for each other know this one."""
        self.rows = {file.path: FileProgressRow(file) for file in files}
        self.total = sum(file.size for file in files)
        self.finished = 0
        self.ended = threading.Event()
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ProgressBoard:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()
        self.path.unlink(missing_ok=True)

    def report_file(
        self, file: LockedFile, state: str, source: str = "", done: int | None = None, behind: tuple[str, ...] = ()
    ) -> None:
        """Say what is done with a file now, and how many of its bytes are there."""
        with self.lock:
            row = self.rows[file.path]
            row.state, row.source, row.behind = state, source, behind
            if done is not None:
                row.done = min(done, file.size)

    def mark_done(self, file: LockedFile) -> None:
        """A file has its name."""
        with self.lock:
            self.finished += self.rows.pop(file.path).file.size

    def mark_failed(self, file: LockedFile) -> None:
        """A file is not brought in this run."""
        with self.lock:
            self.total -= self.rows.pop(file.path).file.size

    def render_document(self) -> dict[str, object]:
        """The text of the file."""
        with self.lock:
            rows = list(self.rows.values())
            return {
                "updated": time.time(),
                "identity": self.identity,
                "done": self.finished + sum(row.done for row in rows),
                "total": self.total,
                "files": [
                    {
                        "path": row.file.path,
                        "size": row.file.size,
                        "done": row.done,
                        "state": row.state,
                        "from": row.source,
                        "behind": row.behind,
                    }
                    for row in rows
                ],
            }

    def _run(self) -> None:
        temporary = self.path.with_name(f"{NAME}.new")
        while True:
            try:
                temporary.write_text(json.dumps(self.render_document()))
                temporary.replace(self.path)
            except OSError:
                # progress is for looking at; a full disk is reported where bytes are written
                temporary.unlink(missing_ok=True)
            if self.ended.wait(INTERVAL):
                return
