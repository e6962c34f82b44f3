"""What it costs an instance that its box is watched: processor and memory of what tells, and tokens a second.

On a throwaway host with a gateway, this machine asks as Prometheus does: the host, the gateway and the engine. What a
look takes is seen on a host that does nothing else; loads then take turns with and without. Starts and loads differ by
more than looks each SECONDS cost, so looks are FASTER as many, and what they cost is divided by that.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from urllib.request import urlopen

from bench.fronted import PLAIN_PORT, REAL, SOCKET, Box, NotMeasured, deployed
from bench.fronts import parse
from bench.streams import Asked
from lab.hosts import Host
from lab.labs import Lab

SECONDS = 5.0  # between two looks: the shortest that an inventory takes
FASTER = 20
LOOKS = 100
NODE_PORT, NODE = 9100, "rigwright_node"
UNITS = (NODE, "rigwright_gateway", "rigwright_router", f"rigwright-{REAL}")
# Nanoseconds of processor that each thread of a unit has had (Documentation/scheduler/sched-stats.rst)
PROCESSOR = """
for unit in %s; do
  group=$(systemctl show --property=ControlGroup --value $unit)
  cat /sys/fs/cgroup$group/cgroup.procs /sys/fs/cgroup/systemd$group/cgroup.procs 2>/dev/null
done | sort -u | while read -r pid; do cut -d ' ' -f 1 /proc/$pid/task/*/schedstat; done
""" % " ".join(UNITS)  # noqa: UP031 # a shell's own braces
RESIDENT = f"sed -n 's/^VmRSS: *//p' /proc/$(systemctl show --property=MainPID --value {NODE})/status"
STREAMS, WORDS = 4, 48
LIKE_NONE_BEFORE = '{"ignore_eos": true, "cache_prompt": false}'


@dataclass(frozen=True)
class Report:
    """All figures of a run."""

    date: str
    release: str
    cpus: int
    load: tuple[float, float]
    """Of one minute, before and after."""
    look_s: float
    """Of processor, over all that is asked."""
    node_bytes: int
    """Of memory, resident, that node exporter has."""
    watched: list[float]
    """Tokens a second of each round, while somebody asks FASTER times as often."""
    alone: list[float]
    """While nobody does."""

    def as_json(self) -> str:
        """All of it."""
        return json.dumps(asdict(self), indent=1) + "\n"

    def lines(self) -> list[str]:
        """What it comes to."""
        parts = sorted(one / other for one, other in zip(self.watched, self.alone, strict=True))
        least, middle, most = (1 - (1 - part) / FASTER for part in (parts[0], median(parts), parts[-1]))
        return [
            f"a look at all: {self.look_s * 1e3:.2f} ms of processor, "
            f"{self.look_s / SECONDS:.3%} of a core every {SECONDS:.0f} s",
            f"node exporter: {self.node_bytes / 1e6:.1f} MB resident",
            f"tokens/s, watched \N{DIVISION SIGN} alone: {middle:.4f} every {SECONDS:.0f} s ({least:.4f}-{most:.4f}), "
            f"as it is {median(parts):.3f} every {SECONDS / FASTER:.2f} s, over {len(parts)} rounds",
            f"{self.date}, {self.release}, {self.cpus} CPUs, load {self.load[0]:.1f} to {self.load[1]:.1f}",
        ]


def measure(release: str, layers: tuple[str, ...], rounds: int, seconds: float) -> Report:
    """Measure everything.

    Args:
        release: The host's Debian.
        layers: Folders laid over its base image that hold a compiled engine.
        rounds: Of one load with and one without.
        seconds: Of each load.

    Raises:
        NotMeasured: a deploy or a program failed, or somebody who asks is not answered.
        lab.machine.Unsupported: this machine cannot run a lab.
        RuntimeError: a program fails that prepares all this.
        TimeoutError: a host does not answer.
    """
    with TemporaryDirectory(prefix="rigwright-bench-") as name, deployed(Path(name), release, layers, tells) as box:
        before = os.getloadavg()[0]
        _look(box)
        began = _processor(box)
        for _ in range(LOOKS):
            _look(box)
        look_s = (_processor(box) - began) / LOOKS
        asked = Asked(box.place(SOCKET, REAL), REAL, STREAMS, seconds, WORDS, kept=False, more=LIKE_NONE_BEFORE)
        rates: dict[bool, list[float]] = {True: [], False: []}
        for number in range(rounds):
            for watched in (True, False) if number % 2 else (False, True):
                with looking(box) if watched else nullcontext():
                    rates[watched].append(parse(box.begin(asked).end()).tokens_a_second)
        resident = int(box.host.run(RESIDENT).split()[0]) * 1024
        load = (before, os.getloadavg()[0])
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return Report(now, release, os.cpu_count() or 1, load, look_s, resident, rates[True], rates[False])


def tells(lab: Lab, host: Host) -> dict[str, object]:
    """What the host is declared to tell, and this machine to ask."""
    return {"monitoring": {"address": host.address, "node_port": NODE_PORT, "scrapers": [f"{lab.gateway}/32"]}}


@contextmanager
def looking(box: Box) -> Iterator[None]:
    """Look at all every so often while the block runs.

    Raises:
        NotMeasured: it was not answered.
    """
    over, failed = threading.Event(), []

    def work() -> None:
        due = time.monotonic()
        while not over.wait(max(0.0, due - time.monotonic())):
            try:
                _look(box)
            except NotMeasured as error:
                failed.append(error)
            due += SECONDS / FASTER

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if failed:
        raise failed[0]


def _look(box: Box) -> None:
    for port, path in ((NODE_PORT, ""), (PLAIN_PORT, ""), (PLAIN_PORT, f"/{REAL}")):
        try:
            with urlopen(f"http://{box.host.address}:{port}/metrics{path}", timeout=10) as told:
                told.read()
        except OSError as error:
            raise NotMeasured(f"port {port}, /metrics{path}: {error}") from None


def _processor(box: Box) -> float:
    return sum(map(int, box.host.run(PROCESSOR).split())) / 1e9
