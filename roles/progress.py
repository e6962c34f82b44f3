"""How far long work is: one writer for all hosts and jobs, a row each on a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:  # imported where a job begins: a deploy that changes nothing has none
    from rich.console import Console
    from rich.progress import Progress, TaskID

from rigwright.host import script_output
from rigwright.problems import printable

PLAIN_INTERVAL = 10.0  # seconds between two plain lines of one job
SELDOM = 60.0  # ... where nothing else is said meanwhile
BAR = 20  # columns
# Of a path, where it tells the operator nothing: a commit, or the folder of one package.
COMMIT = re.compile(r"\b[0-9a-f]{40}/|\A_packages/[0-9a-f]{16}/")


@dataclass
class ProgressTask:
    """One job on one host. Its rate and time left follow from what it reports."""

    writer: ProgressWriter
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
    detached: bool = False
    """Whether it goes on without this process."""
    file: str = ""
    """Of several files, what is done with one of them now."""

    def start_step(self, text: str) -> None:
        """Say which step is under way; counting starts anew with it."""
        if text != self.text:
            self.text, self.unit, self.done, self.total = text, "", 0, 0
            self.writer.redraw(self, fresh=True)

    def report_done(self, done: int, total: int, unit: str) -> None:
        """Say how much of the step is done, in `steps`, `bytes` or `%`."""
        if unit != self.unit:
            self.unit, self.unit_started, self.first = unit, time.monotonic(), done
        self.done, self.total = min(done, total), total
        self.writer.redraw(self)

    @property
    def rate(self) -> float:
        """Units a second since the first report of this step."""
        elapsed = time.monotonic() - self.unit_started
        return (self.done - self.first) / elapsed if elapsed > 0 else 0.0

    def describe(self) -> str:
        """`212/300 steps, 1.2/s, 73 s left` and the like."""
        if not self.total:
            return ""
        if self.unit == "%":
            return f"{self.done} %"
        scale, name = (1e6, "MB") if self.unit == "bytes" else (1, "steps")
        parts = [f"{self.done / scale:.0f}/{self.total / scale:.0f} {name}"]
        if self.rate > 0:
            left = (self.total - self.done) / self.rate
            parts += [f"{self.rate / scale:.1f}/s", f"{left:.0f} s left"]
        return ", ".join(parts)


def _escape_markup(text: str) -> str:
    from rich.markup import escape

    return escape(printable(text))


class ProgressWriter:
    """The one writer. A row a host on a terminal; otherwise a line when a step begins and every so many seconds."""

    def __init__(self) -> None:
        self.bars: Progress | None = None
        self.tasks: list[ProgressTask] = []
        self.lead, self.interval, self.to_stdout = "    [{}]", PLAIN_INTERVAL, False

    def use_plain_stdout(self) -> None:
        """Write to standard output, in the form of the command line's own lines, of which there are few."""
        self.lead, self.interval, self.to_stdout = "{}:", SELDOM, True

    @property
    def stream(self) -> TextIO:
        """Where it writes."""
        return sys.stdout if self.to_stdout else sys.stderr

    @cached_property
    def console(self) -> Console:
        """The terminal that rows are drawn on."""
        from rich.console import Console

        # it moves the cursor, which the command's gate for text would not let through
        return Console(file=getattr(self.stream, "ungated", self.stream))

    @contextmanager
    def task(self, host: str, text: str, *, detached: bool = False) -> Iterator[ProgressTask]:
        """Show a job while the block runs.

        Args:
            host: Whose it is.
            text: What it is called until it says which step is under way.
            detached: Whether it goes on without this process.
        """
        if self.bars is None and self.console.is_terminal and not self.console.is_dumb_terminal:
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
            from rich.table import Column

            said = TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
            columns = (said, BarColumn(BAR), TextColumn("{task.fields[detail]}"), TimeElapsedColumn())
            self.bars = Progress(*columns, console=self.console, transient=True, expand=True)
            self.bars.start()
        task = ProgressTask(self, host, text, detached=detached)
        self.tasks.append(task)
        if self.bars:
            task.bar = self.bars.add_task("", total=None, detail="")
            self.redraw(task)
        try:
            yield task
        finally:
            self.tasks.remove(task)
            if self.bars and task.bar is not None:
                self.bars.remove_task(task.bar)
            if self.bars and not self.tasks:
                self.bars.stop()
                self.bars = None

    def redraw(self, task: ProgressTask, fresh: bool = False) -> None:
        """Bring what is on screen up to date."""
        detail = task.describe()
        if self.bars and task.bar is not None:
            file = f" ({task.file})" if task.file else ""
            said = _escape_markup(f"{self.lead.format(task.host).strip()} {task.text}{file}")
            self.bars.update(
                task.bar, description=said, completed=task.done, total=task.total or None, detail=_escape_markup(detail)
            )
            return
        now = time.monotonic()
        if fresh or now - task.said >= self.interval:
            task.said = now
            self.write_line(task, f"{task.text}{f': {detail}' if detail else ''}")

    def write_line(self, task: ProgressTask, text: str) -> None:
        """Say something of a job where there are no rows."""
        if not self.bars:
            print(f"{self.lead.format(task.host)} {text}", file=self.stream, flush=True)


def parse_progress_document(value: str) -> Mapping[str, Any]:
    """The type of what a download of many files writes beside them; empty where it is not there yet.

    Raises:
        ValueError: it is something else.
    """
    if not value:
        return {}
    try:
        read = json.loads(value)
        rows = [
            {
                "path": script_output.free_text(str(row["path"])),
                "from": script_output.free_text(str(row["from"] or "")),
                "state": script_output.free_text(str(row["state"])),
                **{key: script_output.number(str(row[key])) for key in ("size", "done")},
            }
            for row in read["files"]
        ]
        return {"files": rows, **{key: script_output.number(str(read[key])) for key in ("done", "total")}}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("the progress of a download") from None


class FileProgress:
    """One job's files: what is done with each, and how much of all of them is there."""

    def __init__(self, whole: ProgressTask) -> None:
        self.whole = whole
        self.said: dict[str, str] = {}

    def update_files(self, document: Mapping[str, Any]) -> None:
        """Bring everything up to date.

        Args:
            document: `done` and `total` in bytes, and `files`: `path`, `size`, `done`, `state` and `from` of each that
                is not done.
        """
        steps = {}
        for row in document["files"]:
            if row["state"] != "waiting":
                source = f" from {row['from']}" if row["from"] and row["state"] == "fetching" else ""
                steps[row["path"]] = f"{COMMIT.sub('', row['path'])}: {row['state']}{source}"
        self.whole.file = next(reversed(steps.values()), "")
        self.whole.report_done(document["done"], document["total"], "bytes")
        for path, text in steps.items():
            if self.said.get(path) != text:
                self.whole.writer.write_line(self.whole, text)
        self.said = steps


progress = ProgressWriter()
