"""A deploy without changes and `check` on many simulated hosts, which answer from a recording of a throwaway host."""

from __future__ import annotations

import hashlib
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import paramiko

from benchmarks import BenchmarkFailed
from benchmarks.fleet_connections import simulate, write_fleet
from benchmarks.noop_deploy import PORT, own_lab
from benchmarks.ssh_recording import RECORDED_NAME
from benchmarks.ssh_simulation import name_host
from benchmarks.timed_verbs import LAUNCHER
from checks.required_check_ids import declared_digest
from lab.hosts import HostSpec, LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.inventory import load_rig
from rigwright.model.rig import Rig
from rigwright.plan import host_probe
from rigwright.plan.plan_inputs import build_target_state
from rigwright.project_root import ROOT
from rigwright.render import render

VERBS = ("deploy", "check")
UNCHANGED = {
    "deploy": re.compile(r"^(?:\S+|.* \(([0-9]+) hosts\)): nothing to do \(", re.MULTILINE),
    "check": re.compile(r"^(?:\S+|.* \(([0-9]+) hosts\)): conforms \(", re.MULTILINE),
}
"""The line of hosts that a verb found as declared."""
NAMED = ("manifest.json", "units/rigwright.target")
"""Files of a generation that depend on the host's name."""


@dataclass
class VerbRow:
    """One verb over so many hosts."""

    verb: str
    hosts: int
    faulty: int = 0
    """Hosts with a fault, of each of benchmarks.ssh_simulation.FAULTS in turns."""
    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    """Seconds of the controller's processor."""
    simulation: list[float] = field(default_factory=list)
    """The same of the simulation."""
    peak_bytes: int = 0
    connections: int = 0
    """The largest number of connections at the same time."""


@dataclass(frozen=True)
class VerbsReport:
    """The measurement, and its machine."""

    date: str
    release: str
    cpus: int
    load: float
    rows: list[VerbRow]

    def as_json(self) -> str:
        """For programs."""
        rows = [asdict(row) | {"further_ms": self.further_ms(row), "ratio": self.ratio(row)} for row in self.rows]
        return json.dumps(asdict(self) | {"rows": rows}, indent=2) + "\n"

    def _first(self, row: VerbRow) -> VerbRow:
        return next(one for one in self.rows if one.verb == row.verb)

    def further_ms(self, row: VerbRow) -> float:
        """Milliseconds of the controller's processor for each further host than the verb's first row has."""
        first = self._first(row)
        return 1000 * (median(row.processor) - median(first.processor)) / max(row.hosts - first.hosts, 1)

    def ratio(self, row: VerbRow) -> float:
        """Its seconds of processor by those of the verb's first row."""
        return median(row.processor) / median(self._first(row).processor)


def write_inventory(folder: Path, ports: Sequence[int], shelf: str, names: Sequence[str]) -> Path:
    """Write an inventory of simulated or recorded hosts, all of them declared as the throwaway host is."""
    key = paramiko.ECDSAKey.from_private_key_file(str(folder / "key"))
    connection = {
        "ssh_user": "root",
        "ssh_hostname": "127.0.0.1",
        "ssh_key": str(folder / "login"),
        "ssh_host_key": f"{key.get_name()} {key.get_base64()}",
    }
    boxes = {name: {**connection, "ssh_port": port} for name, port in zip(names, ports, strict=True)}
    return write_declarations(folder / "fleet.py", boxes, shelf)


def write_declarations(file: Path, boxes: Mapping[str, Mapping[str, object]], shelf: str) -> Path:
    """Write an inventory of boxes that differ in their connections only."""
    shared = {"instances": {"chat": {"variant": "llamacpp/demo-wheel", "port": PORT}}, "mirrors": {"shelf": [shelf]}}
    file.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({boxes!r}, **{shared!r})\n")
    return file


@contextmanager
def record(folder: Path, host: LabHost) -> Iterator[int]:
    """Record what a host answers while the block runs; gives the port that leads to it."""
    keys = host.inventory_keys
    words = [str(folder), str(keys["ssh_hostname"]), str(keys["ssh_host_key"])]
    command = [sys.executable, "-m", "benchmarks.ssh_simulation", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT) as process:
        assert process.stdout
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


def run_verb(verb: str, inventory: Path, figures: Path) -> tuple[str, list[float]]:
    """Run a verb; returns its output, and seconds, seconds of processor and the peak of its memory in KiB."""
    words = [sys.executable, str(ROOT), verb, str(inventory)]
    launcher = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(figures), *words]
    done = subprocess.run(launcher, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=ROOT, check=False)
    return done.stdout + done.stderr, [float(word) for word in figures.read_text().split()]


def count_unchanged(verb: str, output: str) -> int:
    """The hosts that a verb found as declared, by its output."""
    return sum(int(number or 1) for number in UNCHANGED[verb].findall(output))


def make_recordings(folder: Path, release: str, lab: ThrowawayLab) -> tuple[Rig, list[str]]:
    """Converge a throwaway host and record each verb on it.

    Returns:
        Its rig, and the lines of its probe.

    Raises:
        BenchmarkFailed: a verb finds changes after a deploy.
    """
    (host,) = lab.up([HostSpec(RECORDED_NAME, release)])
    write_fleet(folder, 1, 0)
    shutil.copy(lab.key, folder / "login")
    # the recording server transfers no files: the recorded deploy has nothing to change
    direct = write_declarations(folder / "direct.py", {RECORDED_NAME: host.inventory_keys}, lab.shelf_url)
    run_verb("deploy", direct, folder / "figures")
    for verb in VERBS:
        with record(folder, host) as port:
            inventory = write_inventory(folder, [port], lab.shelf_url, [RECORDED_NAME])
            output, _ = run_verb(verb, inventory, folder / "figures")
        (folder / "recording").rename(folder / verb)
    if not count_unchanged("check", output):
        raise BenchmarkFailed(output[-3000:])
    rig = load_rig(dict(runpy.run_path(str(inventory))["rigs"])[RECORDED_NAME]["rig"])
    return rig, host.run(render("probe/probe.sh.j2", **host_probe.probe_values(rig))).splitlines()


def list_texts(rig: Rig, lines: list[str], names: Sequence[str]) -> dict[str, Mapping[str, str]]:
    """Host -> text of the recorded host -> its own: the name, and all digests that depend on it."""
    facts = host_probe.parse(lines)

    def texts(name: str) -> list[str]:
        made = build_target_state(replace(rig, name=name), facts).generation
        digests = [hashlib.sha256(made.files[path].encode()).hexdigest() for path in NAMED]
        return [name, made.mark, made.digest, declared_digest(rig.digest, made.digest), *digests]

    recorded = texts(RECORDED_NAME)
    return {name: dict(zip(recorded, texts(name), strict=True)) for name in names}


def run_once(row: VerbRow, recordings: Path, texts: Mapping[str, Mapping[str, str]], shelf: str) -> None:
    """Run a verb over a fleet, and add its figures.

    Raises:
        BenchmarkFailed: a host is not as declared.
    """
    with TemporaryDirectory(prefix="rigwright-bench-") as name:
        folder = Path(name)
        write_fleet(folder, row.hosts, row.faulty)
        shutil.copy(recordings / "login", folder / "login")
        shutil.copy(recordings / row.verb, folder / "recording")
        (folder / "texts").write_text(json.dumps(texts))
        names = [name_host(number) for number in range(1, row.hosts + 1)]
        with simulate(folder) as (ports, used):
            inventory = write_inventory(folder, ports, shelf, names)
            output, (seconds, processor, kibibytes) = run_verb(row.verb, inventory, folder / "figures")
            simulation = used()
        connections = int((folder / "connections").read_text())
    if (unchanged := count_unchanged(row.verb, output)) != row.hosts - row.faulty:
        raise BenchmarkFailed(
            f"{row.verb}: {unchanged} of {row.hosts} hosts, {row.faulty} of them with a fault, are as declared: "
            f"{output[-3000:]}"
        )
    row.seconds.append(seconds)
    row.processor.append(processor)
    row.simulation.append(simulation)
    row.peak_bytes = max(row.peak_bytes, int(kibibytes) * 1024)
    row.connections = max(row.connections, connections)


def measure(release: str, counts: Sequence[int], faulty: int, runs: int, say: Callable[[str], None]) -> VerbsReport:
    """Record a throwaway host, and time each verb over so many simulated hosts.

    Args:
        release: Of the recorded host.
        counts: Numbers of simulated hosts.
        faulty: Hosts with a fault in a further row, which has the largest number of hosts; 0 for no such row.
        runs: How often each is timed.
        say: Called with what is under way.

    Raises:
        BenchmarkFailed: as `run_once`.
    """
    rows = [VerbRow(verb, hosts) for verb in VERBS for hosts in counts]
    rows += [VerbRow(verb, max(counts), faulty) for verb in VERBS if faulty]
    with TemporaryDirectory(prefix="rigwright-bench-") as name, own_lab() as lab:
        folder = Path(name)
        say("recording a throwaway host")
        rig, lines = make_recordings(folder, release, lab)
        names = [name_host(number) for number in range(1, max(counts) + 1)]
        texts = list_texts(rig, lines, names)
        for number in range(runs):
            for row in rows:
                say(f"run {number + 1} of {runs}: {row.verb} of {row.hosts} hosts, {row.faulty} with a fault")
                run_once(row, folder, texts, lab.shelf_url)
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return VerbsReport(now, release, os.cpu_count() or 0, os.getloadavg()[0], rows)
