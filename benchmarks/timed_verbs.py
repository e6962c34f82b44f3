"""Commands that are timed in turns: the processes of each, what it asks of hosts, and the figures of all.

A machine that is busy with something else is busy for all of them. So trust the ratios.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks import BenchmarkFailed, ssh_command_count
from lab.hosts import LabHost

# Small, and between this process and the verb: a program's peak begins with the size of what started it.
LAUNCHER = """
import os, sys, time
started = time.perf_counter()
_, status, used = os.wait4(os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ), 0)
seconds = time.perf_counter() - started
with open(sys.argv[1], "w") as file:
    print(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss, file=file)
sys.exit(os.waitstatus_to_exitcode(status) & 255)
"""


@dataclass
class Row:
    """One verb over so many hosts."""

    verb: str
    hosts: int
    """0 for a verb that reaches none."""
    goal: str = ""
    sessions: int = 0
    """Remote commands, on all hosts."""
    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    """Seconds of this machine's processors, in user and kernel mode, of every process that it starts and waits for."""
    hosts_processor: list[float] = field(default_factory=list)
    """The same seconds, of all processes of the hosts."""
    peak_bytes: int = 0
    """Of the largest of this machine's processes."""

    @property
    def median(self) -> float:
        """The middle of its seconds."""
        return median(self.seconds)


@dataclass(frozen=True)
class Report:
    """The measurement, and its machine."""

    date: str
    release: str
    cpus: int
    load: tuple[float, float]
    """Of one minute, at the beginning and the end of the timed runs."""
    rows: list[Row]

    def as_json(self) -> str:
        """For programs."""
        return json.dumps(asdict(self) | {"rows": [*map(self.row_figures, self.rows)]}, indent=2) + "\n"

    def row_figures(self, row: Row) -> dict[str, object]:
        """A row's figures, for programs."""
        return asdict(row) | {"median": row.median}


@dataclass(frozen=True)
class Verb:
    """A command line, and the hosts that it reaches."""

    row: Row
    command: list[str]
    hosts: Sequence[LabHost]
    statuses: tuple[int, ...] = (0,)
    """The exit statuses that it may have."""
    environment: Mapping[str, str] | None = None
    """Its variables; None: those of this process."""
    unchanged: Callable[[str], bool] | None = None
    """Whether its output tells that it changed nothing; None for one that changes nothing by its nature."""

    def run(self) -> tuple[float, float, int]:
        """Run it to its end; returns seconds, processor seconds and the peak of its memory in bytes.

        Raises:
            BenchmarkFailed: it ends with another exit status, or changed something.
        """
        with TemporaryDirectory(prefix="rigwright-bench-") as folder:
            figures = Path(folder) / "figures"
            launcher = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(figures), *self.command]
            done = subprocess.run(
                launcher,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                cwd="/",
                check=False,
            )
            output = done.stdout + done.stderr
            if done.returncode not in self.statuses or (self.unchanged and not self.unchanged(output)):
                raise BenchmarkFailed(f"{' '.join(self.command)}: {output[-3000:]}")
            seconds, processor, kibibytes = figures.read_text().split()
        return float(seconds), float(processor), int(kibibytes) * 1024


def timed(verbs: Sequence[Verb], release: str, runs: int, say: Callable[[str], None]) -> Report:
    """Time commands in turns, after each has run once.

    Raises:
        BenchmarkFailed: one fails.
    """
    say("each once, to warm up and to count remote commands")
    for one in verbs:
        with ssh_command_count.counted(one.hosts) as count:
            one.run()
        one.row.sessions = count.total
    before = os.getloadavg()[0]
    for number in range(runs):
        say(f"timing, {number + 1} of {runs}")
        for one in verbs:
            used = sum(host.cpu_seconds for host in one.hosts)
            seconds, processor, peak = one.run()
            one.row.hosts_processor.append(sum(host.cpu_seconds for host in one.hosts) - used)
            one.row.seconds.append(seconds)
            one.row.processor.append(processor)
            one.row.peak_bytes = max(one.row.peak_bytes, peak)
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return Report(now, release, os.cpu_count() or 0, (before, os.getloadavg()[0]), [one.row for one in verbs])
