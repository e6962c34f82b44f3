"""Connections and one command on many simulated hosts, beside one host, and with hosts that hang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import paramiko

from benchmarks import BenchmarkFailed, JsonReport
from benchmarks.ssh_simulation import FAULTS
from benchmarks.timed_verbs import LAUNCHER
from rigwright.project_root import ROOT

LIMIT = 20.0  # seconds of one command
PROGRAM = """
import sys, time
began = time.perf_counter()
import pyinfra_cli
import json
from pathlib import Path
from checks.connections import map_inventory
from roles import root_shell

inventory, out, limit = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
answered = []

def ask(box):
    try:
        lines = root_shell.run_command(box.target, "echo fine", limit=limit, whole=limit).lines
    except root_shell.ConnectionGone:
        return False
    if lines == ["fine"]:
        answered.append(time.perf_counter() - began)
    return lines == ["fine"]

found, gone = map_inventory(inventory, None, ask)
fine = sum(answer for _, answer in found)
figures = {"answered": max(answered), "ended": time.perf_counter() - began}
out.write_text(json.dumps(figures | {"fine": fine, "gone": len(gone), "failed": len(found) - fine}))
"""
"""A program that connects to all hosts of an inventory and runs one command on each."""


@dataclass
class FleetRow:
    """One fleet."""

    hosts: int
    faulty: int
    """Hosts with a fault, of each of FAULTS in turns."""
    answered: list[float] = field(default_factory=list)
    """Seconds until the last host without a fault has answered its command."""
    ended: list[float] = field(default_factory=list)
    """Seconds until all hosts with a fault were given up, too."""
    processor: list[float] = field(default_factory=list)
    """Seconds of the controller's processor."""
    simulation: list[float] = field(default_factory=list)
    """The same of the simulation."""
    peak_bytes: int = 0


@dataclass(frozen=True)
class FleetReport(JsonReport):
    """The measurement, and its machine."""

    date: str
    cpus: int
    load: float
    rows: list[FleetRow]

    def further_ms(self, row: FleetRow) -> float:
        """Milliseconds of the controller's processor for each further host than the first row's."""
        first = self.rows[0]
        return 1000 * (median(row.processor) - median(first.processor)) / max(row.hosts - first.hosts, 1)


def write_fleet(folder: Path, hosts: int, faulty: int) -> None:
    """Write keys and faults of simulated hosts; faults are spread over the fleet."""
    faults = {number * hosts // faulty: FAULTS[number % len(FAULTS)] for number in range(faulty)}
    for name in ("key", "other"):
        paramiko.ECDSAKey.generate().write_private_key_file(str(folder / name))
    (folder / "faults").write_text("\n".join(faults.get(number, "") for number in range(hosts)))


def write_inventory(folder: Path, ports: list[int]) -> Path:
    """Write the inventory of simulated hosts."""
    key = paramiko.ECDSAKey.from_private_key_file(str(folder / "key"))
    shared = {
        "ssh_user": "root",
        "ssh_hostname": "127.0.0.1",
        "ssh_key": str(folder / "key"),
        "ssh_host_key": f"{key.get_name()} {key.get_base64()}",
        "instances": {"chat": {"variant": "llamacpp/demo-wheel", "port": 8020}},
        "mirrors": {"shelf": ["http://192.0.2.1/"]},
    }
    boxes = {f"n{number:04}": {"ssh_port": port} for number, port in enumerate(ports, 1)}
    file = folder / "fleet.py"
    file.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({boxes!r}, **{shared!r})\n")
    return file


@contextmanager
def simulate(folder: Path) -> Iterator[tuple[list[int], Callable[[], float]]]:
    """Run the simulation; gives its ports, and the function for the seconds of processor that it has used."""
    command = [sys.executable, "-m", "benchmarks.ssh_simulation", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT) as process:
        assert process.stdout
        try:
            ports = [int(port) for port in process.stdout.readline().split()]
            ticks = os.sysconf("SC_CLK_TCK")

            def used() -> float:
                words = Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2].split()
                return (int(words[11]) + int(words[12])) / ticks

            yield ports, used
        finally:
            process.terminate()


def run_once(row: FleetRow) -> None:
    """Run the program over a fleet, and add its figures.

    Raises:
        BenchmarkFailed: a host without a fault did not answer, or one with a fault did.
    """
    with TemporaryDirectory(prefix="rigwright-bench-") as name:
        folder = Path(name)
        write_fleet(folder, row.hosts, row.faulty)
        with simulate(folder) as (ports, used):
            inventory = write_inventory(folder, ports)
            words = ["-c", PROGRAM, str(inventory), str(folder / "figures"), str(LIMIT)]
            launcher = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(folder / "launched"), sys.executable, *words]
            done = subprocess.run(
                launcher, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=ROOT, check=False
            )
            simulation = used()
        if done.returncode:
            raise BenchmarkFailed((done.stdout + done.stderr)[-3000:])
        figures = json.loads((folder / "figures").read_text())
        if figures["fine"] != row.hosts - row.faulty:
            raise BenchmarkFailed(f"{row.hosts} hosts, {row.faulty} with a fault: {figures}")
        _, processor, kibibytes = (folder / "launched").read_text().split()
    row.answered.append(figures["answered"])
    row.ended.append(figures["ended"])
    row.processor.append(float(processor))
    row.simulation.append(simulation)
    row.peak_bytes = max(row.peak_bytes, int(kibibytes) * 1024)


def measure(hosts: int, faulty: int, runs: int, say: Callable[[str], None]) -> FleetReport:
    """Time one host, many hosts, and as many of which some have a fault, in turns.

    Raises:
        BenchmarkFailed: as `run_once`.
    """
    rows = [FleetRow(1, 0), FleetRow(hosts, 0), *([FleetRow(hosts, faulty)] if faulty else [])]
    for number in range(runs):
        for row in rows:
            say(f"run {number + 1} of {runs}: {row.hosts} hosts, {row.faulty} with a fault")
            run_once(row)
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return FleetReport(now, os.cpu_count() or 0, os.getloadavg()[0], rows)
