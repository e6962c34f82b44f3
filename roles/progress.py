"""Progress of long work: one live display with a row per host on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:  # imported where the first row is drawn: a pipe has none
    from rich.live import Live
    from rich.text import Text

from rigwright.host_selection import CountedLine, is_many
from rigwright.problems import format_count, printable
from roles.host_counts import describe_states
from roles.progress_line import format_clock, render_progress_line
from roles.step_durations import RunEstimate, StepDurations, StepSeconds

LINE_INTERVAL = 10.0  # seconds between two progress lines of one host, at least
BEAT = 1.0  # seconds between two looks at whether a line is due
PREPARING = "connecting and reading the host"
"""The work of a host before its first step."""
TICKS = 2  # of the display in a second
WIDE = 110  # columns from which a row has amounts beside its rate
NARROWEST, LOWEST = 60, 6  # columns and lines below which a terminal has plain lines
STATES = ("working", "failed", "waiting", "done")
"""Of rows, in the order in which they are shown."""


def is_live_terminal(stream: TextIO) -> bool:
    """Whether rows can be drawn there: a terminal of a usual size that moves its cursor, without NO_COLOR."""
    size = shutil.get_terminal_size() if stream.isatty() else os.terminal_size((0, 0))
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") in ("dumb", "unknown")
    return not plain and size.columns >= NARROWEST and size.lines >= LOWEST


@dataclass
class ProgressTask:
    """One job. Its rate and time left follow from what it reports."""

    display: LiveDisplay
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


@dataclass
class HostRow:
    """One host of a run over several steps."""

    name: str
    state: str = "waiting"
    step: str = ""
    number: int = 0
    """Of its steps that are done."""
    estimate: RunEstimate | None = None
    parts: StepSeconds = field(default_factory=dict)
    """Parts of the step that are done -> seconds."""
    began: float = field(default_factory=lambda: time.monotonic())
    ended: float = 0.0
    step_began: float = 0.0
    fetched: int = 0
    """Bytes from elsewhere."""
    services: dict[str, str] = field(default_factory=dict)
    """Service -> `started`, `restarted`, `reloaded` or `stopped`."""


class LiveDisplay:
    """The one display: rows of hosts in a run, and of jobs outside of one."""

    def __init__(self) -> None:
        self.rows: dict[str, HostRow] = {}
        self.tasks: list[ProgressTask] = []
        self.live: Live | None = None
        self.redirected: dict[str, TextIO] = {}
        """Standard streams -> what they are without rows."""
        self.counts = CountedLine()
        self.lines: dict[str, float] = {}
        """Host -> when its last progress line was written."""
        self.is_running = False
        """Whether a run has rows; outside of one, jobs have their own."""
        self.beats: threading.Event | None = None
        """Set, it ends the thread that writes lines of silent work; None while there is no such thread."""

    @property
    def stream(self) -> TextIO:
        """Where it writes."""
        return sys.stdout if self.is_running else sys.stderr

    def begin_run(self, hosts: Collection[str]) -> None:
        """Show a row for each host of a run, on standard output, until `end_run`."""
        self.is_running = True
        self.rows = {name: HostRow(name) for name in sorted(hosts)}
        self.counts = CountedLine(time.monotonic())
        self._begin_beats()

    def end_run(self) -> None:
        """Take the rows away; their counts stay readable."""
        self.is_running = False
        self._stop()

    def estimate_run(self, name: str, steps: Sequence[str], durations: StepDurations) -> None:
        """Give a host's row the steps that lie before it."""
        row = self.rows[name]
        made, before = RunEstimate(steps, name, durations), row.estimate
        if before:  # another round of the same run
            made.fraction, made.left = before.fraction, before.left
        row.estimate, row.number = made, 0

    def start_step(self, name: str, step: str) -> None:
        """Begin a step on a host."""
        row = self.rows[name]
        row.state, row.step, row.parts, row.step_began = "working", step, {}, time.monotonic()
        self._start()

    def end_step(self, name: str) -> StepSeconds:
        """End a host's step; returns what its parts took."""
        row = self.rows[name]
        row.number, row.state = row.number + 1, "waiting"
        spent = time.monotonic() - row.step_began - sum(row.parts.values())
        parts, row.parts = {**row.parts, "": max(spent, 0.0)}, {}
        self._print_counts()
        return parts

    def fail_host(self, name: str) -> None:
        """Show that a host has failed in its step."""
        row = self.rows[name]
        row.state, row.ended = "failed", time.monotonic()

    def end_host(self, name: str) -> None:
        """Show that a host has taken all steps."""
        self.rows[name].state = "done"
        self._print_counts()

    def note_services(self, name: str, services: dict[str, str]) -> None:
        """Count services that a step has started or stopped on a host."""
        if name in self.rows:
            self.rows[name].services |= services

    @contextmanager
    def task(self, host: str, text: str, *, detached: bool = False, quiet: bool = False) -> Iterator[ProgressTask]:
        """Show a job while the block runs.

        Args:
            host: Its host, or the verb outside of hosts.
            text: Its name until it reports which step is under way.
            detached: Whether it goes on without this process.
            quiet: Whether it has no row, and its first line after LINE_INTERVAL: it usually takes a second.
        """
        task = ProgressTask(self, host, text, detached)
        self.tasks.append(task)
        if not quiet:
            self._start()
        self._begin_beats()
        try:
            yield task
        finally:
            self.end_part(task)
            self.tasks.remove(task)
            if not self.tasks and not self.is_running:
                self._stop()

    def end_part(self, task: ProgressTask) -> None:
        """Count a part of a step that has ended."""
        if row := self.rows.get(task.host):
            row.parts[task.text] = row.parts.get(task.text, 0.0) + time.monotonic() - task.started
            row.fetched += max(task.done - task.first, 0) if task.unit == "bytes" else 0

    def report(self, task: ProgressTask, *, fresh: bool = False) -> None:
        """Write a line of a job where there are no rows: for each step one, and one every LINE_INTERVAL of a host."""
        now = time.monotonic()
        if self.is_running and not self.live and is_many(self.rows):
            self._print_counts()
            return
        if self.live:
            if fresh:
                self.live.refresh()
            return
        if fresh or now - self.lines.get(task.host, -LINE_INTERVAL) >= LINE_INTERVAL:
            self.lines[task.host] = now
            left = f"{format_clock(task.left)} left" if task.left is not None else ""
            detail = ", ".join(filter(None, [task.describe_amount(), task.describe_rate(), left]))
            if not (detail or fresh):
                detail = f"running for {format_clock(now - task.started)}"
            self.print_line(printable(f"{task.host}: {task.text}{f': {detail}' if detail else ''}"))

    def report_silent_work(self) -> None:
        """Write a line of each job, and of each host in a run, that had none for LINE_INTERVAL."""
        now, busy = time.monotonic(), {task.host for task in self.tasks}
        for task in tuple(self.tasks):
            if now - max(self.lines.get(task.host, 0.0), task.started) >= LINE_INTERVAL:
                self.report(task)
        if self.is_running and is_many(self.rows):
            self._print_counts()
            return
        for name, row in self.rows.items() if self.is_running and not self.live else ():
            # a host between two steps waits for others
            if name in busy or row.state in ("failed", "done") or (row.state == "waiting" and row.step):
                continue
            since = row.step_began if row.step else row.began
            if now - max(self.lines.get(name, 0.0), since) >= LINE_INTERVAL:
                self.lines[name] = now
                what = row.step or PREPARING
                self.print_line(printable(f"{name}: {what}: running for {format_clock(now - since)}"))

    def _begin_beats(self) -> None:
        if self.beats is None:
            self.beats = ended = threading.Event()
            threading.Thread(target=self._beat, args=(ended,), daemon=True).start()

    def _beat(self, ended: threading.Event) -> None:
        while not ended.wait(BEAT):
            try:
                self.report_silent_work()
            except (OSError, ValueError):
                return  # the stream is closed: the work itself reports that

    def print_line(self, text: str) -> None:
        """Write a line in one piece: another process or thread has no part in it."""
        self.stream.write(f"{text}\n")
        self.stream.flush()

    def render(self) -> Text:
        """The rows that the terminal has room for, those that work or failed first, and a line that counts all."""
        from rich.text import Text

        size = shutil.get_terminal_size()
        hosts = self.rows if self.is_running else {}
        rows = [(row.state, self._render_row(row, size.columns)) for row in hosts.values()]
        rows += [("working", self._render_task(task, size.columns)) for task in self.tasks if task.host not in hosts]
        room = size.lines - 2
        lines = [line for _, line in rows]
        if len(lines) > room:
            lines = [line for _, line in sorted(rows, key=lambda row: STATES.index(row[0]))]
            lines = [*lines[: room - 1], self._describe_counts()[: size.columns - 1]]
        return Text("\n".join(lines), no_wrap=True, overflow="crop")

    def _describe_counts(self) -> str:
        jobs = [task for task in self.tasks if task.host not in self.rows or not self.is_running]
        counts = describe_states(self.rows.values()) if self.is_running else ""
        return ", ".join(filter(None, [printable(counts), format_count(len(jobs), "job") if jobs else ""]))

    def _print_counts(self) -> None:
        """Write the counts of a run over many hosts where there are no rows, one line every LINE_INTERVAL."""
        if not self.live and is_many(self.rows) and self.counts.is_due(now := time.monotonic(), LINE_INTERVAL):
            self.counts.written = now
            self.print_line(self._describe_counts())

    def _render_row(self, row: HostRow, columns: int) -> str:
        task = next((one for one in reversed(self.tasks) if one.host == row.name), None)
        now = time.monotonic()
        left = None
        if (estimate := row.estimate) and row.state in ("working", "waiting"):
            if row.state == "waiting":
                estimate.update(row.number, "", {}, 0.0, None)
            else:
                part, since = (task.text, task.started) if task else ("", row.step_began + sum(row.parts.values()))
                estimate.update(row.number, part, row.parts, now - since, task.fraction if task else None)
            left = estimate.left if estimate.is_recorded else task.left if task else None
        fraction = estimate.fraction if estimate else None
        text = f"failed: {row.step}" if row.state == "failed" else row.step
        if row.state in ("waiting", "done") and any(one.state == "working" for one in self.rows.values()):
            text = "waits for other hosts"
        if task and row.state == "working":
            text = _describe_task(task) if columns < WIDE else f"{text}: {_describe_task(task)}"
        rate = task.describe_progress(columns) if task else ""
        return render_progress_line(row.name, text, fraction, rate, left, (row.ended or now) - row.began, columns)

    def _render_task(self, task: ProgressTask, columns: int) -> str:
        took, rate = time.monotonic() - task.started, task.describe_progress(columns)
        return render_progress_line(task.host, _describe_task(task), task.fraction, rate, task.left, took, columns)

    def _start(self) -> None:
        if self.live or not is_live_terminal(self.stream):
            return
        from rich.console import Console
        from rich.file_proxy import FileProxy
        from rich.live import Live

        class LineStream(FileProxy):
            """Lines go above the rows. `click.echo` writes past a stream without these two, into the rows."""

            encoding = "utf-8"
            errors = "backslashreplace"

            def write(self, text: str) -> int:
                escape = getattr(self.rich_proxied_file, "escape", str)
                return super().write(escape(text))

        # it moves the cursor, which the command's gate for text would not let through
        console = Console(file=getattr(self.stream, "ungated", self.stream), highlight=False, markup=False)
        # a process that is killed cannot show a cursor again that it has hidden
        console.show_cursor = lambda show=True: False  # type: ignore[method-assign]
        self.live = Live(
            console=console,
            get_renderable=self.render,
            transient=True,
            refresh_per_second=TICKS,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self.live.start(refresh=True)
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            # a pipe is not for this terminal
            if stream.isatty():
                self.redirected[name] = stream
                setattr(sys, name, LineStream(console, stream))

    def _stop(self) -> None:
        live, self.live = self.live, None
        for name, stream in self.redirected.items():
            getattr(sys, name).flush()
            setattr(sys, name, stream)
        self.redirected = {}
        if live:
            live.stop()
        beats, self.beats = self.beats, None
        if beats:
            beats.set()


def _describe_task(task: ProgressTask) -> str:
    return f"{task.text}: {task.last}" if task.last else task.text


progress = LiveDisplay()
