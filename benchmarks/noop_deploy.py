"""How quick a deploy is that changes nothing: on one host and on four, beside ansible-core doing the same work.

The runs take turns: a machine that is busy with other work is busy for all of them. So trust the ratios.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import ansible_core, ssh_command_count
from benchmarks.timed_verbs import Report, Row, Verb, timed
from lab import engine_cache
from lab.hosts import HostSpec, LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.inventory import load_rig
from rigwright.plan import host_probe
from rigwright.project_root import ROOT
from rigwright.render import render

PORT = 8020
HOSTS = 4
PYINFRA = str(Path(sys.executable).with_name("pyinfra"))
PEER = "ansible-playbook"


@dataclass(frozen=True)
class PeerReport(Report):
    """The measurements next to ansible, with versions."""

    versions: dict[str, str]

    def ratio(self, row: Row) -> float:
        """How often a run fits into ansible's on as many hosts."""
        theirs = next(one for one in self.rows if (one.verb, one.hosts) == (PEER, row.hosts))
        return theirs.median / row.median

    def row_figures(self, row: Row) -> dict[str, object]:
        """A row's figures, for programs."""
        return super().row_figures(row) | {"ratio": self.ratio(row)}


def measure(release: str, layers: tuple[str, ...], runs: int, say: Callable[[str], None]) -> PeerReport:
    """Boot hosts, converge them, and time what changes nothing.

    Args:
        release: The hosts' Debian.
        layers: Folders laid over its base image that hold a compiled engine; none compiles one.
        runs: How often each is timed.
        say: Told what is under way.

    Raises:
        BenchmarkFailed: there is something to change after a deploy.
        lab.machine_requirements.UnsupportedMachine: this machine cannot run a lab.
        RuntimeError: a program fails that prepares all this.
        TimeoutError: a host does not answer.
    """
    ansible_core.install()
    with TemporaryDirectory(prefix="rigwright-bench-") as name, own_lab() as lab:
        folder = Path(name)
        say("converging")
        converge(lab, folder, release, layers, HOSTS)
        ansible = ansible_core.Peer(folder / "ansible", lab.hosts, _ansible_variables(lab, folder))
        try:
            return _measure(lab, folder, ansible, release, runs, say)
        finally:
            ansible.close()


@contextmanager
def own_lab() -> Iterator[ThrowawayLab]:
    """A lab of this process, gone when the block ends."""
    lab = ThrowawayLab(f"b{os.getpid() % 100_000}")
    lab.down()
    try:
        yield lab
    finally:
        lab.down()


def inventory_of(folder: Path, lab: ThrowawayLab, hosts: Sequence[LabHost]) -> str:
    """An inventory as its operator would write it; returns its path."""
    instances = {"chat": {"variant": "llamacpp/demo", "port": PORT}}
    shared = {"instances": instances, "mirrors": {"shelf": [lab.shelf_url]}}
    entries = {host.name: host.inventory_keys | shared for host in hosts}
    path = folder / f"hosts{len(hosts)}.py"
    path.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({entries!r})\n")
    return str(path)


def converge(lab: ThrowawayLab, folder: Path, release: str, layers: tuple[str, ...], hosts: int) -> None:
    """So many hosts: the first alone, for what it has to compile then comes with the others."""
    for count in (1, hosts):
        new = range(len(lab.hosts) + 1, count + 1)
        lab.up([HostSpec(f"h{number}", release, layers or engine_cache.cached_layers(release)) for number in new])
        command = [PYINFRA, inventory_of(folder, lab, lab.hosts), str(ROOT / "deploy.py"), "--yes"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the deploy failed:\n{done.stderr[-3000:]}")
        engine_cache.save_engines(lab.hosts[0])
    ssh_command_count.prepare(lab.hosts)


def _ansible_variables(lab: ThrowawayLab, folder: Path) -> dict[str, dict[str, object]]:
    told = {}
    for name, data in runpy.run_path(inventory_of(folder, lab, lab.hosts))["rigs"]:
        rig, host = load_rig(data["rig"]), lab.host(name)
        found = host_probe.parse(host.run(render("probe/probe.sh.j2", **host_probe.probe_values(rig))).splitlines())
        current = shlex.quote(f"{rig.roots.config}/current")
        number = int(host.run(f"basename $(readlink {current})"))
        told[name] = ansible_core.variables(rig, found, number)
    return told


def _measure(
    lab: ThrowawayLab, folder: Path, ansible: ansible_core.Peer, release: str, runs: int, say: Callable[[str], None]
) -> PeerReport:
    verbs = [one for count in (1, HOSTS) for one in _verbs(lab.hosts[:count], folder, lab, ansible)]
    report = timed(verbs, release, runs, say)
    versions = {name: version(name) for name in ("pyinfra", "paramiko", "gevent")}
    versions |= {"ansible-core": ansible_core.installed_version(), "python": sys.version.split()[0]}
    return PeerReport(report.date, release, report.cpus, report.load, report.rows, versions)


def _verbs(hosts: Sequence[LabHost], folder: Path, lab: ThrowawayLab, ansible: ansible_core.Peer) -> list[Verb]:
    """The comparison on some hosts: ours after ansible, so that each sees the other's result."""
    deploy = [str(ROOT / "rig"), "deploy", inventory_of(folder, lab, hosts)]
    return [
        Verb(
            Row(PEER, len(hosts)),
            ansible.command(hosts),
            hosts,
            environment=ansible.environment,
            unchanged=no_task_changed,
        ),
        Verb(Row("rig deploy", len(hosts)), deploy, hosts, unchanged=partial(no_step_changed, len(hosts))),
    ]


def no_task_changed(output: str) -> bool:
    """Whether ansible-playbook changed nothing, by its recap."""
    return ansible_core.changed_tasks(output) == 0


def no_step_changed(hosts: int, output: str) -> bool:
    """Whether `rig deploy` had nothing to do on any of so many hosts."""
    return len(re.findall(r"^\S+: nothing to do \(", output, re.MULTILINE)) == hosts
