"""A job whose progress a display shows."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol

WIDE = 110  # columns from which a row has amounts beside its rate


class TaskDisplay(Protocol):
    """A place where jobs are shown."""

    def end_part(self, task: ProgressTask) -> None:
        """Count a part of a step that has ended."""

    def report(self, task: ProgressTask, *, fresh: bool = False) -> None:
        """Show a report of a job."""


@dataclass
class ProgressTask:
    """One job. Its rate and time left follow from what it reports."""

    display: TaskDisplay
    host: str
    text: str
    detached: bool = False
    """Whether it goes on without this process."""
    started: float = field(default_factory=lambda: time.monotonic())
    unit_started: float = 0.0
    unit: str = ""
    first: int = 0
    done: int = 0
    total: int = 0
    left: float | None = None
    """Seconds of this step; they never rise."""
    last: str = ""
    """The last line of its output, or the file in work."""

    def start_step(self, text: str) -> None:
        """Begin another step of the job; counting starts anew with it."""
        if text != self.text:
            self.display.end_part(self)
            self.text, self.unit, self.done, self.total, self.left, self.last = text, "", 0, 0, None, ""
            self.started = time.monotonic()
            self.display.report(self, fresh=True)

    def report_done(self, done: int, total: int, unit: str) -> None:
        """Report how much of the step is done, in `steps`, `bytes` or `%`; less than before counts as no change.

        A total of 0 is not known.
        """
        if unit != self.unit:
            self.unit, self.unit_started, self.first, self.done = unit, time.monotonic(), done, 0
        self.done, self.total = max(self.done, min(done, total) if total else done), total
        if not total:
            self.left = None
        elif self.rate > 0 and unit != "%":
            left = (self.total - self.done) / self.rate
            self.left = left if self.left is None else min(self.left, left)
        self.display.report(self)

    @property
    def rate(self) -> float:
        """Units a second since the first report of this step."""
        elapsed = time.monotonic() - self.unit_started
        return (self.done - self.first) / elapsed if elapsed > 0 else 0.0

    @property
    def fraction(self) -> float | None:
        """How much of the step is done, from 0 to 1; None where it reports nothing."""
        return self.done / self.total if self.total else None

    def describe_amount(self) -> str:
        """`212/300 steps` and the like."""
        if not self.total and self.unit != "bytes":
            return ""
        if self.unit == "%":
            return f"{self.done} %"
        scale, name = (1e6, "MB") if self.unit == "bytes" else (1, "steps")
        if not self.total:
            return f"{self.done / scale:.0f} {name}"
        return f"{self.done / scale:.0f}/{self.total / scale:.0f} {name}"

    def describe_progress(self, columns: int) -> str:
        """Amount and rate, as far as a row of these columns has room for both."""
        amount = self.describe_amount() if columns >= WIDE or not self.describe_rate() else ""
        return " ".join(filter(None, [amount, self.describe_rate()]))

    def describe_rate(self) -> str:
        """`1.2/s` and the like; empty where none is known."""
        if not self.describe_amount() or self.unit == "%" or self.rate <= 0:
            return ""
        return f"{self.rate / 1e6:.1f} MB/s" if self.unit == "bytes" else f"{self.rate:.1f}/s"
