"""How quick environments are: put together beside `uv pip sync`, found unchanged, and fetched once for four boxes.

Hosts are throwaway ones, and what they fetch is served by this machine: programs are measured, not a network. The
compared runs take turns, so trust the ratios.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks import BenchmarkFailed, JsonReport
from benchmarks.noop_deploy import own_lab
from benchmarks.table_row import Row
from checks.connections import connect_inventory
from checks.survey.section import SurveyScope
from checks.survey.survey_program import COMMAND, collect_questions, parse_answers, render_survey_program
from checks.survey.trees import TREES
from lab.hosts import HostSpec, LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.project_root import ROOT
from rigwright.supply.lock import Artefact, Lock
from roles import root_shell
from tests.stand_ins import conda_python
from tests.stand_ins.environment_source import EnvironmentSource, LabEnvironment, write_declaration

FLEET = 4
PORT = 8090
QUICK = 5
"""How often what takes a second is timed, of one run of what takes minutes."""
# name -> group of the lock, distribution, modules
WHICH = {
    "vllm": ("vllm-0.21.0", "vllm", ("vllm",)),
    "small": ("hub-client", "huggingface-hub", ("huggingface_hub",)),
}
ENGINES, MODELS = "/opt/rigwright/engines", "/srv/models"
AWAY = "/var/tmp/bench-envs"
"""Where a host keeps what was made before. A file system without a journal looks past all inodes that were freed in the
last five minutes, each time that it makes a file (ext4, `recently_deleted()`): after the removal of another
environment, which no box in use has, writing one takes longer.
"""
NICE = 5
"""The priority of our jobs."""
MADE = f"{ENGINES}/.making-* {ENGINES}/bench-* {MODELS}/* /var/lib/rigwright/weights/*"
FORGET = f"rm -rf {MADE} {AWAY}.*"
SET_ASIDE = f'into=$(mktemp -d {AWAY}.XXXXXX); for one in {MADE}; do if [ -e "$one" ]; then mv "$one" "$into"; fi; done'


@dataclass(frozen=True)
class Report(JsonReport):
    """All figures of a run."""

    date: str
    cpus: int
    load: tuple[float, float]
    """Of one minute, at the beginning and the end."""
    python: str
    """Which interpreter it was."""
    packages: int
    fetched_bytes: int
    """Of an environment's packages."""
    installed_bytes: int
    rows: list[Row]
    fleet_packages: int
    uplink: float
    """Bytes of packages that four boxes drew from outside, in terms of one's."""
    own_bytes: int
    """Of what puts environments together, which each box draws once for itself."""

    @property
    def table(self) -> list[tuple[str, ...]]:
        """A line a row: medians, and what one is in terms of the other and how much more."""
        told: list[tuple[str, ...]] = []
        for row in self.rows:
            ours, theirs = median(row.ours), median(row.theirs) if row.theirs else 0.0
            beside = (f"{theirs:.2f}", f"{ours / theirs:.2f}", f"{ours - theirs:+.2f}") if theirs else ("", "", "")
            told.append((row.what, f"{ours:.2f}", row.against, *beside, row.goal))
        return told

    @property
    def fleet(self) -> str:
        """The traffic of four boxes."""
        return (
            f"four boxes drew {self.uplink:.3f} of one's bytes of {self.fleet_packages} packages from outside; goal: "
            f"at most 1.05; each draws {self.own_bytes / 1e6:.0f} MB once, to put environments together with"
        )

    @property
    def about(self) -> str:
        """On what."""
        return (
            f"{self.date}, {self.cpus} CPUs, {self.python}, {self.packages} packages of {self.fetched_bytes / 1e9:.2f} "
            f"GB, installed {self.installed_bytes / 1e9:.2f} GB; load {self.load[0]:.1f} at the beginning, "
            f"{self.load[1]:.1f} at the end"
        )


@dataclass(frozen=True)
class World:
    """Throwaway hosts, and what they fetch from."""

    lab: ThrowawayLab
    folder: Path
    source: EnvironmentSource

    def inventory(self, which: str, hosts: Sequence[LabHost], share: bool = False) -> tuple[Path, tuple[Artefact, ...]]:
        """An inventory of hosts with an environment, and its rows; of none where `which` is empty.

        Args:
            which: One of WHICH, or "".
            hosts: The first is everybody's peer if `share`.
            share: Whether they give each other what they have.
        """
        folder = self.folder / f"{which or 'none'}-{len(hosts)}"
        folder.mkdir(exist_ok=True)
        rows: tuple[Artefact, ...] = ()
        if which:
            group, distribution, modules = WHICH[which]
            rows = (*self.source.python, *self.source.environment_rows(Lock.load([ROOT / "locks"]).groups[group]))
            write_declaration(folder, LabEnvironment("bench", distribution, modules), rows)
        shared = {"mirrors": self.source.inventory_mirrors, "envs": ["bench"] if which else []}
        entries = {host.name: {**host.inventory_keys, **shared} for host in hosts}
        if share:
            first, *others = hosts
            entries[first.name]["share"] = {"address": first.address, "port": PORT, "allow": [str(self.lab.subnet)]}
            for host in others:
                entries[host.name]["peers"] = [f"http://{first.address}:{PORT}"]
        path = folder / "rig.py"
        path.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({entries!r})\n")
        return path, rows


def measure(which: str, fleet: str, release: str, runs: int, say: Callable[[str], None]) -> Report:
    """Measure everything.

    Args:
        which: The environment that is timed, one of WHICH.
        fleet: The one that four boxes get.
        release: The hosts' Debian.
        runs: How often it is put together.
        say: Reports the present step.

    Raises:
        BenchmarkFailed: a deploy or a program failed, or there is no Python of the series that is locked for.
        lab.machine_requirements.UnsupportedMachine: this machine cannot run a lab.
    """
    interpreter = conda_python.find_interpreter()
    if not interpreter.wanted:
        raise BenchmarkFailed(
            f"{interpreter} is here alone: environments are locked for CPython {conda_python.DEFAULT_SERIES}"
        )
    before = os.getloadavg()[0]
    with TemporaryDirectory(prefix="rigwright-bench-") as name, own_lab() as lab:
        lab.up([HostSpec(f"h{number}", release) for number in (1, 2)])
        with EnvironmentSource(lab.gateway, Path(name) / "channel", interpreter) as source:
            world = World(lab, Path(name), source)
            inventory, rows = world.inventory(which, lab.hosts[:1])
            timed = [*_made(world, inventory, rows, runs, say), *_unchanged(world, inventory, say)]
            size = int(lab.hosts[0].run(f"du -s -B1 {ENGINES}/bench-*/env").split()[0])
            lab.hosts[0].run(FORGET)
            count, uplink = _fleet(world, fleet, release, say)
            own = sum(one.size for one in Lock.load([ROOT / "locks"]).groups["installers"])
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    load = (before, os.getloadavg()[0])
    total = sum(row.size for row in rows)
    return Report(now, os.cpu_count() or 1, load, str(interpreter), len(rows), total, size, timed, count, uplink, own)


def _made(
    world: World, inventory: Path, rows: Sequence[Artefact], runs: int, say: Callable[[str], None]
) -> Iterator[Row]:
    """A deploy of a host that lacks nothing else, beside uv alone with the same wheels from the same index."""
    whole = Row("deploy that brings it", "uv pip sync, compiled, synced", "at most 1.2")
    say("a first deploy")
    deploy(inventory)
    host = world.lab.hosts[0]
    for run in range(runs):
        say(f"uv alone, run {run + 1}")
        whole.theirs.append(_uv(world, host, rows))
        say(f"a deploy, run {run + 1}")
        host.run(SET_ASIDE)
        whole.ours.append(deploy(inventory))
    yield whole
    part = Row("of it putting together, judging, trying", "", "")
    part.ours = [float(json.loads(host.run(f"cat {ENGINES}/bench-*/build.json"))["seconds"])]
    yield part


def _uv(world: World, host: LabHost, rows: Sequence[Artefact]) -> float:
    """Seconds of it in an environment of this Python. It ends, as ours does, once all is on the disk."""
    wheels = [row for row in rows if row.kind == "wheel"]
    asked = "".join(f"{row.name}=={row.version} --hash=sha256:{row.sha256}\n" for row in wheels)
    peer = shlex.quote(host.run(f"mktemp -d {AWAY}.XXXXXX").strip())
    host.run(f"printf %s {shlex.quote(asked)} > {peer}/asked.txt")
    uv = shlex.quote(host.run("ls -d /opt/rigwright/installers-*/bin/uv").split()[0])
    host.run(f"{uv} --no-config venv -q --python {ENGINES}/bench-*/env/bin/python {peer}/env 2>&1")
    words = ["pip", "sync", "-q", "--require-hashes", "--no-build", "--compile-bytecode", "--link-mode=hardlink"]
    words += [f"--default-index={world.source.index.url}", f"--python={peer}/env", f"--cache-dir={peer}/cache"]
    # jobs give way to what is served: beside other work, a peer at another priority would be another machine's
    return _timed(
        host, f"nice -n {NICE} {uv} --no-config {shlex.join([*words, f'{peer}/asked.txt'])} && sync -f {peer}"
    )


def _unchanged(world: World, inventory: Path, say: Callable[[str], None]) -> Iterator[Row]:
    """The cost on a host that has one, next to a host that has none."""
    second = world.lab.hosts[1]
    without, _ = world.inventory("", [second])
    deploy(without)
    row = Row("deploy that changes nothing", "the same without one", "at most 0.2 s more")
    for run in range(QUICK + 1):
        say(f"deploys that change nothing, run {run} of {QUICK}")
        ours, theirs = deploy(inventory), deploy(without)
        if run:  # the first warms up
            row.ours.append(ours)
            row.theirs.append(theirs)
    yield row
    look = Row("files compared with root's record", "", "at most 1 s")
    look.ours = [_compared(inventory) for _ in range(QUICK)]
    yield look


def _compared(inventory: Path) -> float:
    """Seconds that a host takes to compare all that is installed there with root's records."""
    (box,) = (box for box in connect_inventory(str(inventory), None)[0])
    questions = collect_questions(SurveyScope(box.rig, box.resolve_desired()), (TREES,))
    answer = parse_answers(root_shell.run_command(box.target, COMMAND, render_survey_program(questions)).out)[
        TREES.name
    ]
    if "told" not in answer:
        raise BenchmarkFailed(f"what is installed was not looked at: {answer}")
    return float(str(answer["took"]))


def _fleet(world: World, which: str, release: str, say: Callable[[str], None]) -> tuple[int, float]:
    """How many packages four boxes had, and what they drew in terms of one box alone."""
    world.lab.up([HostSpec(f"h{number}", release) for number in range(3, FLEET + 1)])
    boxes = world.lab.hosts[:FLEET]
    say("one box, and four that have it as their peer")
    alone, rows = world.inventory(which, boxes[:1])
    together, _ = world.inventory(which, boxes, share=True)
    # whatever else they fetch is there by then
    deploy(together)
    drawn = []
    for inventory, hosts in ((alone, boxes[:1]), (together, boxes)):
        for host in hosts:
            host.run(FORGET)
        before = world.source.sent_bytes
        deploy(inventory)
        drawn.append(world.source.sent_bytes - before)
    return len(rows), drawn[1] / drawn[0]


def _timed(host: LabHost, command: str) -> float:
    """Seconds of a command on a host, by its own clock: connections are not counted."""
    said = host.run(f"a=$(date +%s%N); sh -c {shlex.quote(command)} >&2 || exit; echo $(($(date +%s%N) - a))")
    return int(said.split()[-1]) / 1e9


def deploy(inventory: Path) -> float:
    """Run one to its end; returns the seconds.

    Raises:
        BenchmarkFailed: it fails.
    """
    began = time.perf_counter()
    command = [sys.executable, "-m", "cli", "deploy", str(inventory)]
    done = subprocess.run(command, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise BenchmarkFailed((done.stdout + done.stderr)[-3000:])
    return time.perf_counter() - began
