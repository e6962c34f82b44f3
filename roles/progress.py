"""How far long work is: one writer for all hosts and jobs, a bar where there is a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

PLAIN_INTERVAL = 10.0  # seconds between two plain lines of one job


@dataclass
class Task:
    """One job on one host. Its rate and time left follow from what it reports."""

    writer: Writer
    host: str
    text: str
    started: float = field(default_factory=time.monotonic)
    unit_started: float = 0.0
    unit: str = ""
    first: int = 0
    done: int = 0
    total: int = 0
    said: float = 0.0
    bar: TaskID | None = None

    def label(self, text: str) -> None:
        """Say which step is under way; counting starts anew with it."""
        if text != self.text:
            self.text, self.unit, self.done, self.total = text, "", 0, 0
            self.writer.show(self, fresh=True)

    def at(self, done: int, total: int, unit: str) -> None:
        """Say how much of the step is done, in `steps` or `bytes`."""
        if unit != self.unit:
            self.unit, self.unit_started, self.first = unit, time.monotonic(), done
        self.done, self.total = min(done, total), total
        self.writer.show(self)

    @property
    def rate(self) -> float:
        """Units a second since the first report of this step."""
        elapsed = time.monotonic() - self.unit_started
        return (self.done - self.first) / elapsed if elapsed > 0 else 0.0

    def describe(self) -> str:
        """`212/300 steps, 1.2/s, 73 s left` and the like."""
        if not self.total:
            return ""
        scale, name = (1e6, "MB") if self.unit == "bytes" else (1, "steps")
        parts = [f"{self.done / scale:.0f}/{self.total / scale:.0f} {name}"]
        if self.rate > 0:
            left = (self.total - self.done) / self.rate
            parts += [f"{self.rate / scale:.1f}/s", f"{left:.0f} s left"]
        return ", ".join(parts)


class Writer:
    """The one writer. A bar a task on a terminal; otherwise a line when a step begins and every PLAIN_INTERVAL."""

    def __init__(self) -> None:
        self.console = Console(file=sys.stderr)
        self.bars: Progress | None = None
        self.open = 0

    @contextmanager
    def task(self, host: str, text: str) -> Iterator[Task]:
        """Show a job while the block runs."""
        if self.console.is_terminal and self.bars is None:
            columns = (TextColumn("    {task.description}"), BarColumn(), TextColumn("{task.fields[detail]}"))
            self.bars = Progress(*columns, TimeElapsedColumn(), console=self.console, transient=True)
            self.bars.start()
        self.open += 1
        task = Task(self, host, text)
        if self.bars:
            task.bar = self.bars.add_task(escape(f"[{host}] {text}"), total=None, detail="")
        try:
            yield task
        finally:
            self.open -= 1
            if self.bars and task.bar is not None:
                self.bars.remove_task(task.bar)
            if self.bars and not self.open:
                self.bars.stop()
                self.bars = None

    def show(self, task: Task, fresh: bool = False) -> None:
        """Bring what is on screen up to date."""
        if self.bars and task.bar is not None:
            total = task.total or None
            self.bars.update(
                task.bar,
                description=escape(f"[{task.host}] {task.text}"),
                completed=task.done,
                total=total,
                detail=task.describe(),
            )
            return
        now = time.monotonic()
        if fresh or now - task.said >= PLAIN_INTERVAL:
            task.said = now
            detail = task.describe()
            print(f"    [{task.host}] {task.text}{f': {detail}' if detail else ''}", file=sys.stderr, flush=True)  # noqa: T201


progress = Writer()
