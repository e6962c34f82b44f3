"""Models on demand: wakes beside bare starts of the same command, and random models beside llama-server's router mode.

Both on one throwaway host, on the processor. Wakes and bare starts take turns, so that a busy machine is busy for both.
The router mode is that of the same llama-server, with the same arguments and as many models at a time as the budget of
Rigwright's instances holds; its clients send the same requests.
"""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks import BenchmarkFailed
from benchmarks.on_demand_host import (
    BUDGET,
    CONTEXT,
    GATEWAY_PORT,
    ROUTER_PORT,
    SLOTS,
    THREADS,
    WEIGHT,
    OnDemandBox,
    deploy_on_demand,
)
from benchmarks.on_demand_load import RandomLoad, RandomRequest
from lab.hosts import LabHost
from rigwright.project_root import ROOT

GOAL = 1.2
SLEEPER, IDLE_S, SLEEP_LIMIT_S = "m1", 3, 60.0
ROUTER = "bench-router"
SOCKET, KEY = "/run/bench-bare.sock", f"/etc/rigwright/credentials/{SLEEPER}.api-key"
OURS, THEIRS = "Rigwright", "llama-server's router"


@dataclass(frozen=True)
class WakePair:
    """A wake and a bare start, one after the other."""

    wake_s: float
    bare_s: float

    @property
    def ratio(self) -> float:
        """How often the bare start fits into the wake."""
        return self.wake_s / self.bare_s


@dataclass(frozen=True)
class LoadRow:
    """The end of a load's requests."""

    server: str
    models: int
    seconds: float
    requests: list[RandomRequest]

    def waits(self) -> list[float]:
        """Seconds to the first token of streams, and to other answers; in order of size."""
        return sorted(one.first_s for one in self.requests if not one.problem) or [0.0]

    def table_row(self) -> tuple[str, ...]:
        """The figures."""
        waits = self.waits()
        return (
            *(self.server, str(self.models), f"{self.seconds:.0f}", str(len(self.requests))),
            str(sum(one.is_lost for one in self.requests)),
            str(sum(one.is_refusal for one in self.requests)),
            *(f"{median(waits):.1f}", f"{waits[int(0.95 * (len(waits) - 1))]:.1f}", f"{waits[-1]:.1f}"),
            str(sum(one.tokens for one in self.requests)),
        )


@dataclass(frozen=True)
class OnDemandReport:
    """All figures of a run."""

    date: str
    cpus: int
    load: float
    clients: int
    residence: int
    wakes: list[WakePair]
    loads: list[LoadRow]

    def goal(self) -> str:
        """Whether the goal is reached."""
        ratio = median(one.ratio for one in self.wakes)
        seconds = (median(one.wake_s for one in self.wakes), median(one.bare_s for one in self.wakes))
        word = "reached" if ratio <= GOAL else "missed"
        return (
            f"wake {seconds[0]:.2f} s, bare start {seconds[1]:.2f} s, median ratio {ratio:.2f} of {len(self.wakes)} "
            f"pairs ({min(one.ratio for one in self.wakes):.2f} to {max(one.ratio for one in self.wakes):.2f}); "
            f"goal {GOAL}: {word}"
        )

    def as_json(self) -> str:
        """All of it."""
        return json.dumps(asdict(self), indent=1)


@dataclass(frozen=True)
class OnDemandEffort:
    """The extent of a measurement."""

    pairs: int
    seconds: float
    clients: int
    models: tuple[int, ...]
    residence: int
    with_router: bool = True
    tokens: int = 16


def measure(release: str, effort: OnDemandEffort, show: Callable[[str], None]) -> OnDemandReport:
    """Measure it.

    Args:
        release: The host's Debian.
        effort: How much of it.
        show: Shows a step.

    Raises:
        BenchmarkFailed: a deploy, a start or a load failed.
        lab.machine_requirements.UnsupportedMachine: this machine cannot run a lab.
        RuntimeError: a program fails that makes the lab.
        TimeoutError: the host does not answer.
    """
    names = [f"m{number}" for number in range(1, max(*effort.models, 1) + 1)]
    models = {name: {"idle": IDLE_S if name == SLEEPER else 0} for name in names}
    with TemporaryDirectory(prefix="rigwright-bench-") as folder:
        show("deploying a host")
        budget = {"host_memory": BUDGET, "residence": effort.residence}
        with deploy_on_demand(Path(folder), release, models, budget) as box:
            wakes = []
            for number in range(effort.pairs):
                show(f"wake {number + 1} of {effort.pairs}")
                wakes.append(measure_pair(box, is_bare_first=number % 2 == 1))
            loads = []
            for count in effort.models:
                for server in (OURS, THEIRS) if effort.with_router else (OURS,):
                    show(f"{count} models, {server}")
                    loads.append(measure_load(box, server, names[:count], effort))
            load = os.getloadavg()[0]
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return OnDemandReport(now, os.cpu_count() or 1, load, effort.clients, effort.residence, wakes, loads)


def measure_pair(box: OnDemandBox, *, is_bare_first: bool) -> WakePair:
    """Time a wake and a bare start."""
    until_asleep(box)
    bare = measure_bare_start(box.host) if is_bare_first else 0.0
    (one,) = box.run_load(RandomLoad(f"127.0.0.1:{GATEWAY_PORT}", (SLEEPER,), 1, 1.0, 1, requests=1, plain=0.0))
    if one.problem or not one.first_s:
        raise BenchmarkFailed(f"the model was not woken: {one.problem}")
    until_asleep(box)
    return WakePair(one.first_s, bare or measure_bare_start(box.host))


def until_asleep(box: OnDemandBox) -> None:
    """Wait until nothing is loaded."""
    deadline = time.monotonic() + SLEEP_LIMIT_S
    while box.loaded():
        if time.monotonic() > deadline:
            raise BenchmarkFailed(f"{SLEEPER} does not go to sleep")
        time.sleep(0.2)


def engine_command(host: LabHost) -> list[str]:
    """The engine's command line, of the instance's own unit, at another socket."""
    unit = host.run(f"cat /etc/systemd/system/rigwright-{SLEEPER}.service")
    (line,) = (one for one in unit.splitlines() if one.startswith("ExecStart="))
    words = shlex.split(line.removeprefix("ExecStart=").replace("${CREDENTIALS_DIRECTORY}/api-key", KEY))
    words[words.index("--host") + 1] = SOCKET
    return words


def measure_bare_start(host: LabHost) -> float:
    """Seconds of a start without unit, socket and gateway."""
    program = (ROOT / "benchmarks" / "bare_start.py").read_text()
    return float(host.run(shlex.join(["python3", "-I", "-c", program, SOCKET, KEY, *engine_command(host)])))


def measure_load(box: OnDemandBox, server: str, models: list[str], effort: OnDemandEffort) -> LoadRow:
    """Run clients through the gateway, or through llama-server's router."""
    port = GATEWAY_PORT
    if server == THEIRS:
        start_router(box.host, models)
        port = ROUTER_PORT
    load = RandomLoad(f"127.0.0.1:{port}", tuple(models), effort.clients, effort.seconds, effort.tokens)
    try:
        return LoadRow(server, len(models), effort.seconds, box.run_load(load))
    finally:
        if server == THEIRS:
            box.host.run(f"systemctl stop {ROUTER}")
        else:
            # the router's models are to have the processors for themselves
            for name in models:
                box.host.run(f"systemctl stop rigwright-{name}")


def start_router(host: LabHost, models: list[str]) -> None:
    """Start llama-server's router mode with one model at a time, and wait until it answers."""
    weight = f"/srv/models/{WEIGHT}/1/{WEIGHT}.gguf"
    preset = "".join(f"[{name}]\nmodel = {weight}\n" for name in models)
    (server,) = engine_command(host)[:1]
    options = ["--ctx-size", CONTEXT, "--parallel", SLOTS, "--threads", THREADS, "--n-gpu-layers", 0, "--fit", "off"]
    options += ["--load-mode", "none", "--models-preset", "/run/bench.ini", "--models-max", 1]
    command = [server, "--host", "127.0.0.1", "--port", ROUTER_PORT, *options]
    run = ["systemd-run", "--quiet", "--collect", f"--unit={ROUTER}", *map(str, command)]
    host.run(f"printf %s {shlex.quote(preset)} > /run/bench.ini && {shlex.join(run)}")
    url = f"http://127.0.0.1:{ROUTER_PORT}/health"
    host.run(f"timeout 60 sh -c 'until curl -sf {url} > /dev/null; do sleep 0.2; done'")
