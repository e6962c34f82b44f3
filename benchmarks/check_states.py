"""Time of the checks' questions and of `check` for each state of an instance, and the first lines that it prints.

"questions" is the time from the load of an inventory to the last host's answer, connections included. Seconds of the
wall are those of a machine that does nothing else: the hosts share its processors with the controller.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks import BenchmarkFailed
from benchmarks.noop_deploy import PORT, converge, inventory_of, own_lab
from benchmarks.timed_verbs import Report, Row, Verb, timed
from lab import cgroups
from lab.hosts import HostSpec, LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.project_root import ROOT

RIG = str(ROOT / "rig")
UNIT = "rigwright-chat.service"
WEIGHTS = "w=$(find /srv/models -name '*.gguf')"
FIRST_LINES = 3  # of `check`, which state the cause
COLUMNS = 80
STATUSES = (0, 1, 3)  # of a `check` that ran: as declared, not as declared, not reached
PRIORITY = 10  # of real-time processes, 1 to 99
REALTIME = ["chrt", "-f", str(PRIORITY)]
PATIENCE = 120.0  # seconds for a state to come about
GOAL = 1.0  # seconds of all questions to one host
FURTHER = 0.4  # processor seconds of the controller for each further host
QUESTIONS = """
import sys, time
from pathlib import Path
import pyinfra_cli
from checks.survey_run import SurveyRun
began = time.perf_counter()
run = SurveyRun(sys.argv[1], None, False)
for one in run.answers.values():
    one.result()
Path(sys.argv[2]).write_text(str(time.perf_counter() - began))
"""
"""A program with the questions of `check` and nothing else."""


@dataclass(frozen=True)
class Questions(Verb):
    """The questions, timed from the load of the inventory to the last answer."""

    def run(self) -> tuple[float, float, int]:
        """As `Verb.run`, without the start of Python and its modules in the seconds."""
        with TemporaryDirectory(prefix="rigwright-bench-") as folder:
            file = Path(folder) / "seconds"
            _, processor, peak = replace(self.as_verb, command=[*self.command, str(file)]).run()
            return float(file.read_text()), processor, peak

    @property
    def as_verb(self) -> Verb:
        """The same command, timed as a whole."""
        return Verb(self.row, self.command, self.hosts, self.statuses, self.environment, self.unchanged)


@dataclass(frozen=True)
class HostState:
    """A state of an instance, and how hosts come into it."""

    name: str
    enter: str = ""
    """A shell command for each host."""
    awaited: str = ""
    """A shell command that succeeds once a host is in the state."""
    leave: str = ""


SERVES = f"systemctl is-active -q {UNIT} && curl -sfo /dev/null http://127.0.0.1:{PORT}/health"
STATES = (
    HostState("healthy", awaited=SERVES),
    HostState("stopped", f"{RIG} stop", f"! systemctl is-active -q {UNIT}", f"{RIG} start"),
    HostState(
        "loading",
        # a process that a signal stops before its first answer loads without end
        f"systemctl stop {UNIT}; systemctl start --no-block {UNIT}; until pkill -STOP -x llama-server; do :; done",
        f"[ $(systemctl is-active {UNIT}) = activating ]",
        "pkill -CONT -x llama-server",
    ),
    HostState(
        "failed",
        f"{WEIGHTS}; systemctl stop {UNIT}; mv $w $w.away; printf broken > $w; systemctl start --no-block {UNIT}",
        f"systemctl is-failed -q {UNIT}",
        f"{WEIGHTS}; mv $w.away $w; systemctl reset-failed {UNIT}; systemctl restart {UNIT}",
    ),
)
"""Those of deployed hosts; `edited`, `undeployed` and `unreachable` are of inventories."""


@dataclass(frozen=True)
class StatesReport(Report):
    """The measurement, and the output of `check`."""

    lines: dict[str, list[str]]
    """State -> the first lines of its `check` of one host, in a terminal of COLUMNS."""

    def row_figures(self, row: Row) -> dict[str, object]:
        """A row's figures, for programs."""
        return super().row_figures(row) | {"ratio": self.ratio(row), "further": self.further(row)}

    def ratio(self, row: Row) -> float:
        """Its seconds by those of one host."""
        return row.median / self._single(row).median

    def further(self, row: Row) -> float | None:
        """The controller's processor seconds for each further host."""
        one = self._single(row)
        more = median(row.processor) - median(one.processor)
        return more / (row.hosts - one.hosts) if row.hosts > one.hosts else None

    def _single(self, row: Row) -> Row:
        return min((one for one in self.rows if one.verb == row.verb), key=lambda one: one.hosts)


def measure(
    release: str,
    layers: tuple[str, ...],
    counts: Sequence[int],
    runs: int,
    say: Callable[[str], None],
    *,
    realtime: bool = False,
) -> StatesReport:
    """Boot hosts, converge them, and time the questions and `check` in each state.

    Args:
        release: The hosts' Debian.
        layers: Folders laid over its base image that hold a compiled engine; none takes what was kept, or compiles one.
        counts: Over how many hosts; the largest of them are booted, and a blank one.
        runs: How often each is timed.
        say: Told what is under way.
        realtime: Whether hosts and commands have real-time priority while commands are timed.

    Raises:
        BenchmarkFailed: a verb fails.
        lab.machine_requirements.UnsupportedMachine: this machine cannot run a lab.
        RuntimeError: a program fails that prepares all this.
        TimeoutError: a host does not answer, or does not come into a state.
    """
    reports: list[Report] = []
    lines: dict[str, list[str]] = {}

    def time_state(state: str, inventories: dict[str, Sequence[LabHost]], numbers: Sequence[int]) -> None:
        say(f"{state}: {' and '.join(map(str, numbers))} hosts")
        verbs: list[Verb] = []
        for (inventory, hosts), number in zip(inventories.items(), numbers, strict=True):
            questions = Row(f"questions, {state}", number, f"{GOAL:.0f} s" if number == 1 else "")
            first = REALTIME if realtime else []
            command = [*first, sys.executable, "-c", QUESTIONS, inventory]
            verbs.append(Questions(questions, command, hosts, environment=os.environ | {"PYTHONPATH": str(ROOT)}))
            goal = f"2 x one, {FURTHER} s more of a processor" if number > 1 else ""
            verbs.append(Verb(Row(f"check, {state}", number, goal), [*first, RIG, "check", inventory], hosts, STATUSES))
        lines[state] = first_lines(next(iter(inventories)))
        reached = {host.name: host for hosts in inventories.values() for host in hosts}.values() if realtime else ()
        with in_realtime(reached):
            reports.append(timed(verbs, release, runs, say))

    with TemporaryDirectory(prefix="rigwright-bench-") as name, own_lab() as lab:
        folder = Path(name)
        say(f"converging {max(counts)} hosts")
        converge(lab, folder, release, layers, max(counts))
        hosts = lab.hosts
        inventories = {inventory_of(folder, lab, hosts[:count]): hosts[:count] for count in counts}
        for state in STATES:
            with in_state(state, [*inventories][-1], hosts):
                time_state(state.name, dict(inventories), counts)
        time_state("edited", _changed(inventories, '"port"', '"tasks_max": 4000, "port"'), counts)
        (blank,) = lab.up([HostSpec("blank", release)])
        folder.joinpath("blank").mkdir()
        time_state("undeployed", {inventory_of(folder / "blank", lab, [blank]): [blank]}, [1])
        blank.destroy()
        silent = _changed({inventory_of(folder, lab, hosts[:1]): ()}, repr(hosts[0].address), repr(_unused(lab)))
        time_state("unreachable", silent, [1])
    rows = [row for report in reports for row in report.rows]
    return StatesReport(
        reports[-1].date, release, reports[-1].cpus, (reports[0].load[0], reports[-1].load[1]), rows, lines
    )


def first_lines(inventory: str) -> list[str]:
    """The first lines of `check` in a terminal of COLUMNS."""
    environment = os.environ | {"COLUMNS": str(COLUMNS)}
    done = subprocess.run([RIG, "check", inventory], env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in STATUSES:
        raise BenchmarkFailed(done.stdout + done.stderr)
    return done.stdout.splitlines()[:FIRST_LINES]


@contextmanager
def in_state(state: HostState, inventory: str, hosts: Sequence[LabHost]) -> Iterator[None]:
    """Hosts in a state; they serve again afterwards.

    Raises:
        TimeoutError: a host does not come into it, or does not serve again.
    """
    _run_everywhere(state.enter, inventory, hosts)
    _wait(state.name, state.awaited, hosts)
    try:
        yield
    finally:
        _run_everywhere(state.leave, inventory, hosts)
        _wait("healthy", SERVES, hosts)


@contextmanager
def in_realtime(hosts: Iterable[LabHost]) -> Iterator[None]:
    """All threads of hosts at real-time priority, and those that they start; each at an ordinary one afterwards."""
    _schedule(hosts, os.SCHED_FIFO, PRIORITY)
    try:
        yield
    finally:
        _schedule(hosts, os.SCHED_OTHER, 0)


def _schedule(hosts: Iterable[LabHost], policy: int, priority: int) -> None:
    for host in hosts:
        for pid in cgroups.list_processes(host.namespace):
            for thread in Path(f"/proc/{pid}/task").glob("*"):
                with suppress(ProcessLookupError):
                    os.sched_setscheduler(int(thread.name), policy, os.sched_param(priority))


def _run_everywhere(command: str, inventory: str, hosts: Sequence[LabHost]) -> None:
    if command.startswith(RIG):
        subprocess.run([*command.split(), inventory, "chat"], capture_output=True, check=True)
        return
    for host in hosts:
        host.run(command or "true")


def _wait(state: str, awaited: str, hosts: Sequence[LabHost]) -> None:
    end = time.monotonic() + PATIENCE
    for host in hosts:
        while not host.run(f"({awaited}) >/dev/null && echo yes", check=False):
            if time.monotonic() > end:
                raise TimeoutError(f"{host.name} is not {state} after {PATIENCE:.0f} s")
            time.sleep(0.05)


def _changed(inventories: Mapping[str, Sequence[LabHost]], old: str, new: str) -> dict[str, Sequence[LabHost]]:
    """The same inventories in files of their own, with another text in place of one."""
    changed = {}
    for inventory, hosts in inventories.items():
        text = Path(inventory).read_text()
        path = Path(inventory).with_suffix("") / "changed.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace(old.replace('"', "'"), new.replace('"', "'")))
        if path.read_text() == text:
            raise RuntimeError(f"{inventory} has no {old}")
        changed[str(path)] = hosts
    return changed


def _unused(lab: ThrowawayLab) -> str:
    """An address of the lab's subnet that no host has."""
    return str([*lab.subnet][-2])
