"""The words of a start in the journal: the engine's own lines, and systemd's result. Standard library only."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress

LINES, LINE_LENGTH, LOG_BYTES = 30, 300, 4 << 20
FAILURE_LINES = 10
SYNC = 10.0  # seconds in which the journal takes what is on its way
RESULT = re.compile(r"[a-z-]{1,24}")
UNIT_FAILED = "d9b373ed55a64feb8242e02dbe79a49c"  # sd-messages.h, SD_MESSAGE_UNIT_FAILURE_RESULT


def read_lines(invocation: str, patterns: Sequence[str], most: int = LINES, *, from_end: bool = False) -> list[str]:
    """The lines of a start's log that have one of these texts, each cut: the first ones, or the last ones.

    Args:
        invocation: The start.
        patterns: The texts.
        most: The most lines.
        from_end: Whether the last ones are read: the reason of a failure is at the end of a log, however long that is.
    """
    found: list[str] = []
    words = ("--reverse",) if from_end else ()
    for line in _read_journal(*words, f"_SYSTEMD_INVOCATION_ID={invocation}"):
        if len(found) < most and any(pattern in line for pattern in patterns):
            found.append("".join(char if " " <= char <= "~" else "?" for char in line[:LINE_LENGTH]))
    return found[::-1] if from_end else found


def sync_journal() -> None:
    """Wait until the journal has all that was written until now: an end of a process is known sooner than its words."""
    command = ["journalctl", "--quiet", "--sync"]
    # one that takes longer is read as it is
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SYNC, check=False)


def read_result(invocation: str) -> str:
    """systemd's result of a start that has failed, by its message; empty without one.

    The result of the unit is gone once a later start begins, and after `systemctl reset-failed`.
    """
    words = (*("--output-fields=UNIT_RESULT", "_PID=1"), f"INVOCATION_ID={invocation}", f"MESSAGE_ID={UNIT_FAILED}")
    return next(filter(RESULT.fullmatch, _read_journal(*words)), "")


def _read_journal(*words: str) -> Iterator[str]:
    """The lines of the first entries that match."""
    command = ["journalctl", "--quiet", "--no-pager", "--output=cat", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as journal:
        text = journal.stdout.read(LOG_BYTES).decode("utf-8", "replace") if journal.stdout else ""
        journal.kill()
    yield from text.split("\n")
