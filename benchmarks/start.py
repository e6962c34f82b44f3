"""How long verbs take that change nothing, and what memory they need: also of engines that hang, all checks, and a
deploy.

Seconds of the wall are those of a machine that does nothing else; processor seconds hold on a busy one too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks import BenchmarkFailed, sessions
from benchmarks.converge import converge, inventory_of, own_lab
from lab.hosts import LabHost
from rigwright.paths import ROOT

RIG = str(ROOT / "rig")
NOT_AS_DECLARED = 1  # exit status of a verb that looks (README)
CHECKS = "1 s, beside the completions' own"
FEW = 8  # hosts whose verbs' seconds are judged; of more it is the controller's memory
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
    goal: str
    sessions: int = 0
    """Remote commands, on all hosts."""
    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    """Seconds of this machine's processors, in user and kernel mode, of every process that it starts and waits for."""
    hosts_processor: list[float] = field(default_factory=list)
    """The same seconds, of all processes of the hosts."""
    peak_bytes: int = 0
    """Of the largest of this machine's processes."""


@dataclass(frozen=True)
class Report:
    """What was measured, and on what."""

    date: str
    release: str
    cpus: int
    load: tuple[float, float]
    """Of one minute, at the beginning and the end of the timed runs."""
    rows: list[Row]

    def as_json(self) -> str:
        """For programs."""
        rows = [asdict(row) | {"median": median(row.seconds)} for row in self.rows]
        return json.dumps(asdict(self) | {"rows": rows}, indent=2) + "\n"


@dataclass(frozen=True)
class Verb:
    """A command line, and the hosts that it reaches."""

    row: Row
    command: list[str]
    hosts: Sequence[LabHost]
    statuses: tuple[int, ...] = (0,)
    """What it may end with."""

    def run(self) -> tuple[float, float, int]:
        """Run it to its end; returns seconds, processor seconds and the peak of its memory in bytes.

        Raises:
            BenchmarkFailed: it ends with another exit status.
        """
        with TemporaryDirectory(prefix="rigwright-bench-") as folder:
            figures = Path(folder) / "figures"
            launcher = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(figures), *self.command]
            done = subprocess.run(
                launcher, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd="/", check=False
            )
            if done.returncode not in self.statuses:
                raise BenchmarkFailed(f"{' '.join(self.command)}: {(done.stdout + done.stderr)[-2000:]}")
            seconds, processor, kibibytes = figures.read_text().split()
        return float(seconds), float(processor), int(kibibytes) * 1024


def measure(
    release: str, layers: tuple[str, ...], counts: Sequence[int], runs: int, say: Callable[[str], None]
) -> Report:
    """Boot hosts, converge them, and time verbs over some of them.

    Args:
        release: The hosts' Debian.
        layers: Folders laid over its base image that hold a compiled engine; none takes what was kept, or compiles one.
        counts: Over how many hosts; the largest of them are booted.
        runs: How often each is timed.
        say: Told what is under way.

    Raises:
        BenchmarkFailed: a verb fails.
        lab.requirements.UnsupportedMachine: this machine cannot run a lab.
        RuntimeError: a program fails that prepares all this.
        TimeoutError: a host does not answer.
    """
    with TemporaryDirectory(prefix="rigwright-bench-") as name, own_lab() as lab:
        folder = Path(name)
        say(f"converging {max(counts)} hosts")
        converge(lab, folder, release, layers, max(counts))
        verbs, frozen = [Verb(Row("--help", 0, "0.3 s"), [RIG, "--help"], ())], []
        for count in counts:
            hosts = lab.hosts[:count]
            inventory = inventory_of(folder, lab, hosts)
            goals = _goals(count)
            # engines of more hosts than a machine has processors can be too slow for a token to be called well
            slow = ("status", "health") if count > (os.cpu_count() or 1) else ()
            for verb, goal in goals.items():
                statuses = (0, NOT_AS_DECLARED) if verb in slow else (0,)
                verbs.append(Verb(Row(verb, count, goal), [RIG, verb, inventory], hosts, statuses))
            health = Row("health, frozen", count, goals["health"])
            frozen.append(Verb(health, [RIG, "health", inventory], hosts, (NOT_AS_DECLARED,)))
        serving = timed(verbs, release, runs, say)
        for host in lab.hosts:
            host.run("systemctl kill --signal=STOP rigwright-chat.service")
        hanging = timed(frozen, release, runs, say)
        return replace(hanging, load=(serving.load[0], hanging.load[1]), rows=serving.rows + hanging.rows)


def _goals(hosts: int) -> dict[str, str]:
    """The verbs that are timed, and what is asked of each."""
    if hosts == 1:
        return {"validate": "0.5 s", "status": "0.6 s", "health": "1 s", "plan": "", "deploy": "0.8 s", "check": CHECKS}
    twice = "2 x one" if hosts <= FEW else ""
    return {"validate": "", "status": "", "health": twice, "plan": "", "deploy": twice or "300 MB", "check": twice}


def timed(verbs: Sequence[Verb], release: str, runs: int, say: Callable[[str], None]) -> Report:
    """Time commands in turns, after each has run once.

    Raises:
        BenchmarkFailed: one fails.
    """
    say("each once, to warm up and to count remote commands")
    for one in verbs:
        with sessions.counted(one.hosts) as count:
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
