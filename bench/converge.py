"""How quick a deploy is that changes nothing: on one host and on four, beside ansible-core doing the same work.

What runs, runs in turns: a machine that is busy with something else is busy for all of them. So trust the ratios.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench import peer, sessions
from lab import kept
from lab.hosts import Host, HostSpec
from lab.labs import Lab
from rigwright.inventory import load
from rigwright.paths import ROOT
from rigwright.plan import facts
from rigwright.render import render

PORT = 8020
HOSTS = 4
PYINFRA = str(Path(sys.executable).with_name("pyinfra"))
PEER = "ansible-playbook"


class NotConverged(Exception):
    """A run that was to change nothing did, or failed."""


@dataclass
class Row:
    """One kind of run on so many hosts."""

    run: str
    hosts: int
    operations: int | None
    """On each host; None for what has none."""
    sessions: int = 0
    """That it opened on all hosts."""
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The middle of its times."""
        return median(self.seconds)


@dataclass(frozen=True)
class Report:
    """What was measured, and on what."""

    date: str
    release: str
    cpus: int
    versions: dict[str, str]
    load: tuple[float, float]
    """Of one minute, at the beginning and the end of the timed runs."""
    rows: list[Row]

    def ratio(self, row: Row) -> float:
        """How often a run fits into ansible's on as many hosts."""
        theirs = next(one for one in self.rows if (one.run, one.hosts) == (PEER, row.hosts))
        return theirs.median / row.median

    def as_json(self) -> str:
        """For programs."""
        rows = [asdict(row) | {"median": row.median, "ratio": self.ratio(row)} for row in self.rows]
        return json.dumps(asdict(self) | {"rows": rows}, indent=2) + "\n"


@dataclass(frozen=True)
class Contestant:
    """One command line, and how its output tells that nothing was changed."""

    row: Row
    hosts: Sequence[Host]
    command: list[str]
    environment: dict[str, str]
    unchanged: Callable[[str], bool]

    def run(self) -> float:
        """Run it to its end; returns the seconds.

        Raises:
            NotConverged: it failed, or changed something.
        """
        started = time.perf_counter()
        done = subprocess.run(
            self.command, env=self.environment, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        seconds = time.perf_counter() - started
        if done.returncode or not self.unchanged(done.stdout + done.stderr):
            raise NotConverged(f"{self.row.run} on {self.row.hosts} hosts:\n{(done.stdout + done.stderr)[-3000:]}")
        return seconds


def measure(release: str, layers: tuple[str, ...], runs: int, say: Callable[[str], None]) -> Report:
    """Boot hosts, converge them, and time what changes nothing.

    Args:
        release: The hosts' Debian.
        layers: Folders laid over its base image that hold a compiled engine; none compiles one.
        runs: How often each is timed.
        say: Told what is under way.

    Raises:
        NotConverged: there is something to change after a deploy.
        lab.machine.Unsupported: this machine cannot run a lab.
        RuntimeError: a program fails that prepares all this.
        TimeoutError: a host does not answer.
    """
    peer.install()
    with TemporaryDirectory(prefix="rigwright-bench-") as name, own_lab() as lab:
        folder = Path(name)
        say("converging")
        converge(lab, folder, release, layers, HOSTS)
        ansible = peer.Peer(folder / "ansible", lab.hosts, _told(lab, folder))
        try:
            return _measure(lab, folder, ansible, release, runs, say)
        finally:
            ansible.close()


@contextmanager
def own_lab() -> Iterator[Lab]:
    """A lab of this process, gone when the block ends."""
    lab = Lab(f"b{os.getpid() % 100_000}")
    lab.down()
    try:
        yield lab
    finally:
        lab.down()


def inventory_of(folder: Path, lab: Lab, hosts: Sequence[Host]) -> str:
    """An inventory as its operator would write it; returns its path."""
    instances = {"chat": {"variant": "llamacpp/demo", "port": PORT}}
    shared = {"instances": instances, "mirrors": {"shelf": [lab.shelf_url]}}
    entries = {host.name: host.connection | shared for host in hosts}
    path = folder / f"hosts{len(hosts)}.py"
    path.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({entries!r})\n")
    return str(path)


def converge(lab: Lab, folder: Path, release: str, layers: tuple[str, ...], hosts: int) -> None:
    """So many hosts: the first alone, for what it has to compile then comes with the others."""
    for count in (1, hosts):
        new = range(len(lab.hosts) + 1, count + 1)
        lab.up([HostSpec(f"h{number}", release, layers or kept.layers(release)) for number in new])
        command = [PYINFRA, inventory_of(folder, lab, lab.hosts), str(ROOT / "deploy.py"), "--yes"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the deploy failed:\n{done.stderr[-3000:]}")
        kept.keep(lab.hosts[0])
    sessions.prepare(lab.hosts)


def _told(lab: Lab, folder: Path) -> dict[str, dict[str, object]]:
    told = {}
    for name, data in runpy.run_path(inventory_of(folder, lab, lab.hosts))["rigs"]:
        rig, host = load(data["rig"]), lab.host(name)
        found = facts.parse(host.run(render("probe/probe.sh.j2", **facts.questions(rig))).splitlines())
        current = shlex.quote(f"{rig.roots.config}/current")
        number = int(host.run(f"basename $(readlink {current})"))
        told[name] = peer.variables(rig, found, number)
    return told


def _measure(lab: Lab, folder: Path, ansible: peer.Peer, release: str, runs: int, say: Callable[[str], None]) -> Report:
    contestants = [one for count in (1, HOSTS) for one in _contestants(lab.hosts[:count], folder, lab, ansible)]
    say("each once, to warm up and to count remote commands")
    for one in contestants:
        with sessions.counted(one.hosts) as count:
            one.run()
        one.row.sessions = count.total
    before = os.getloadavg()[0]
    for number in range(runs):
        say(f"timing, {number + 1} of {runs}")
        for one in contestants:
            one.row.seconds.append(one.run())
    versions = {name: version(name) for name in ("pyinfra", "paramiko", "gevent")}
    versions |= {"ansible-core": peer.installed_version(), "python": sys.version.split()[0]}
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    load_average = (before, os.getloadavg()[0])
    return Report(now, release, os.cpu_count() or 0, versions, load_average, [one.row for one in contestants])


def _contestants(hosts: Sequence[Host], folder: Path, lab: Lab, ansible: peer.Peer) -> list[Contestant]:
    """What is compared on some hosts: ours after ansible, so that each sees what the other has left."""
    inventory = inventory_of(folder, lab, hosts)
    rig = str(ROOT / "rig")
    plain = [PYINFRA, inventory, str(ROOT / "deploy.py")]
    environment = os.environ | {"PYINFRA_PROGRESS": "off"}
    operations = _operations(plain, environment)
    tasks = peer.recap(_output(ansible.command(hosts), ansible.environment)).tasks

    def contestant(
        run: str, command: list[str], unchanged: Callable[[str], bool], operations: int | None = None
    ) -> Contestant:
        return Contestant(Row(run, len(hosts), operations), hosts, command, environment, unchanged)

    return [
        Contestant(Row(PEER, len(hosts), tasks), hosts, ansible.command(hosts), ansible.environment, _no_task_changed),
        contestant("rig deploy", [rig, "deploy", inventory], _no_operation_changed, operations),
        contestant("pyinfra -y", [*plain, "-y"], _no_operation_changed, operations),
        contestant("pyinfra --dry", [*plain, "--dry"], _no_change_planned, operations),
        contestant("rig check", [rig, "check", inventory], lambda said: True),
        contestant("rig plan", [rig, "plan", inventory], lambda said: said.count(": nothing to do") == len(hosts)),
    ]


def _output(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return done.stdout


def _operations(plain: list[str], environment: dict[str, str]) -> int:
    """How many operations a deploy has, by pyinfra's own account of one that changes nothing."""
    said = json.loads(_output([*plain, "--yes", "--json"], environment))
    rows = said["results"]["operations"]
    changed = [row["name"] for row in rows if set(row["success"]) - set(row["no_change"])]
    if changed or not rows:
        raise NotConverged(f"a deploy after a deploy changes: {', '.join(changed) or 'it has no operations'}")
    return len(rows)


def _no_task_changed(said: str) -> bool:
    return peer.recap(said).changed == 0


def _no_operation_changed(said: str) -> bool:
    """Whether pyinfra's table of results has hosts in no column but `No Change`."""
    total = re.search(r"Grand total +(\S+) +(\S+) +(\S+) +(\S+)", said)
    return total is not None and total[1] == total[4]


def _no_change_planned(said: str) -> bool:
    """Whether pyinfra's table of changes has nothing but dashes."""
    rows = re.findall(r"^ +\S.* \| .*?  +(\S+) +(\S+) *$", said, re.MULTILINE)
    return bool(rows) and all(row == ("-", "-") for row in rows)
