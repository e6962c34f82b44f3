"""How far long work is: one writer for all hosts and jobs, a bar where there is a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # imported where a job begins: a deploy that changes nothing has none
    from rich.console import Console
    from rich.progress import Progress, TaskID

from rigwright.host import channel

PLAIN_INTERVAL = 10.0  # seconds between two plain lines of one job
# Of a path, where it tells the operator nothing: a commit, or the folder of one package.
COMMIT = re.compile(r"\b[0-9a-f]{40}/|\A_packages/[0-9a-f]{16}/")


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
    steps_only: bool = False
    """Without a terminal only its steps are said, and not how far each is."""

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


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)


class Writer:
    """The one writer. A bar a task on a terminal; otherwise a line when a step begins and every PLAIN_INTERVAL."""

    def __init__(self) -> None:
        self.bars: Progress | None = None
        self.open = 0

    @cached_property
    def console(self) -> Console:
        """Where it writes."""
        from rich.console import Console

        return Console(file=sys.stderr)

    @contextmanager
    def task(self, host: str, text: str, *, steps_only: bool = False) -> Iterator[Task]:
        """Show a job while the block runs."""
        if self.console.is_terminal and self.bars is None:
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (TextColumn("    {task.description}"), BarColumn(), TextColumn("{task.fields[detail]}"))
            self.bars = Progress(*columns, TimeElapsedColumn(), console=self.console, transient=True)
            self.bars.start()
        self.open += 1
        task = Task(self, host, text, steps_only=steps_only)
        if self.bars:
            task.bar = self.bars.add_task(_escaped(f"[{host}] {text}"), total=None, detail="")
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
                description=_escaped(f"[{task.host}] {task.text}"),
                completed=task.done,
                total=total,
                detail=task.describe(),
            )
            return
        now = time.monotonic()
        if fresh or (not task.steps_only and now - task.said >= PLAIN_INTERVAL):
            task.said = now
            detail = task.describe()
            print(f"    [{task.host}] {task.text}{f': {detail}' if detail else ''}", file=sys.stderr, flush=True)  # noqa: T201


def document(value: str) -> Mapping[str, Any]:
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
                "path": channel.said(str(row["path"])),
                "from": channel.said(str(row["from"] or "")),
                "state": channel.said(str(row["state"])),
                **{key: channel.number(str(row[key])) for key in ("size", "done")},
            }
            for row in read["files"]
        ]
        return {"files": rows, **{key: channel.number(str(read[key])) for key in ("done", "total")}}
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("the progress of a download") from None


class Files:
    """One job's files, each a task of its own while it is in work, and all of them in the job's own task."""

    def __init__(self, whole: Task) -> None:
        self.whole = whole
        self.open: dict[str, tuple[Task, ExitStack]] = {}

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *_: object) -> None:
        self._only(set())

    def show(self, document: Mapping[str, Any]) -> None:
        """Bring everything up to date.

        Args:
            document: `done` and `total` in bytes, and `files`: `path`, `size`, `done`, `state` and `from` of each that
                is not done.
        """
        self.whole.at(document["done"], document["total"], "bytes")
        rows = [row for row in document["files"] if row["state"] != "waiting"]
        self._only({row["path"] for row in rows})
        for row in rows:
            name = COMMIT.sub("", row["path"])
            source = f" from {row['from']}" if row["from"] and row["state"] == "fetching" else ""
            if row["path"] not in self.open:
                stack = ExitStack()
                task = stack.enter_context(self.whole.writer.task(self.whole.host, name, steps_only=True))
                self.open[row["path"]] = task, stack
            task, _ = self.open[row["path"]]
            task.label(f"{name}: {row['state']}{source}")
            task.at(row["done"], row["size"], "bytes")

    def _only(self, paths: set[str]) -> None:
        for path in self.open.keys() - paths:
            _, stack = self.open.pop(path)
            stack.close()


progress = Writer()
