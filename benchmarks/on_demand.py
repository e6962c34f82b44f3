"""Models on demand: wakes beside bare starts of the same command, and random models beside llama-server's router mode.

All on throwaway hosts, on the processor. Wakes and bare starts take turns, so that a busy machine is busy for both.
The router mode is that of the same llama-server, with the arguments of an instance's own unit and as many models at a
time as the budget of Rigwright's instances holds; its clients send the same requests.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import BenchmarkFailed
from benchmarks.on_demand_host import (
    BUDGETS,
    GATEWAY_PORT,
    ROUTER_PORT,
    WEIGHT,
    OnDemandBox,
    deploy_on_demand,
    disturb_regularly,
)
from benchmarks.on_demand_load import RandomLoad
from benchmarks.on_demand_results import LoadRow, OnDemandReport, WakePair
from benchmarks.stand_in_card import install_card, need_of_device
from lab.hosts import LabHost
from rigwright.project_root import ROOT

SLEEPER, IDLE_S, SLEEP_LIMIT_S = "m1", 3, 60.0
ROUTER = "bench-router"
SOCKET, KEY = "/run/bench-bare.sock", f"/etc/rigwright/credentials/{SLEEPER}.api-key"
OURS, THEIRS = "Rigwright", "llama-server's router"
RESIDENCY = "rigwright_residency"
# need of a model on a stand-in card; models at the same time -> memory of the card
NEED_MIB, CARD_MIB = 700, {1: 1200, 2: 1900}
# texts before and after a model's name in the journal's lines about its start
OUR_START, THEIR_START = ("", " is starting"), ("spawning server instance with name=", "")


@dataclass(frozen=True)
class OnDemandEffort:
    """The extent of a measurement."""

    pairs: int
    seconds: float
    clients: int
    models: tuple[int, ...]
    residence: int
    with_router: bool = True
    kills: float = 0.0
    """Seconds between two kills, restarts or reloads while clients ask; 0: none."""
    with_card: bool = False
    """Whether models have memory of a stand-in card, in place of the host's."""
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
    wakes: list[WakePair] = []
    loads = []
    for count in effort.models:
        names = [f"m{number}" for number in range(1, count + 1)]
        models = {name: {"idle": IDLE_S if name == SLEEPER else 0} for name in names}
        at_a_time = at_the_same_time(count)
        budget = {"host_memory": BUDGETS[at_a_time], "residence": effort.residence}
        with TemporaryDirectory(prefix="rigwright-bench-") as folder:
            show(f"deploying a host with {count} models")
            with deploy_on_demand(Path(folder), release, models, budget) as box:
                if effort.with_card:
                    install_card(box.host, CARD_MIB[at_a_time])
                    need_of_device(box.host, "0", NEED_MIB)
                for number in range(0 if wakes else effort.pairs):
                    show(f"wake {number + 1} of {effort.pairs}")
                    wakes.append(measure_pair(box, is_bare_first=number % 2 == 1))
                for server in (OURS, THEIRS) if effort.with_router else (OURS,):
                    show(f"{count} models, {server}")
                    loads.append(measure_load(box, server, at_a_time, effort))
                load = os.getloadavg()[0]
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return OnDemandReport(now, os.cpu_count() or 1, load, effort.clients, effort.residence, wakes, loads)


def at_the_same_time(models: int) -> int:
    """Models that the memory holds: two of five, so that the service has to choose the one to stop."""
    return 1 if models < 3 else 2


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


def measure_load(box: OnDemandBox, server: str, at_a_time: int, effort: OnDemandEffort) -> LoadRow:
    """Run clients through the gateway, or through llama-server's router."""
    port, unit, mark, kills = GATEWAY_PORT, RESIDENCY, OUR_START, effort.kills
    if server == THEIRS:
        port, unit, mark, kills = ROUTER_PORT, ROUTER, THEIR_START, 0.0
        start_router(box, at_a_time)
    load = RandomLoad(f"127.0.0.1:{port}", box.models, effort.clients, effort.seconds, effort.tokens)
    began = time.time()
    try:
        with disturb_regularly(box.host, kills) as disturbances:
            requests = box.run_load(load)
        loads = box.count_loads(unit, mark, began)
        longest = max(box.load_seconds().values()) if server == OURS else 0.0
        shape = (len(box.models), at_a_time, effort.seconds, effort.residence)
        return LoadRow(server, *shape, requests, loads, longest, len(disturbances))
    finally:
        if server == THEIRS:
            box.host.run(f"systemctl stop {ROUTER}")
        else:
            # the router's models are to have the processors for themselves
            for name in box.models:
                box.host.run(f"systemctl stop rigwright-{name}")


def start_router(box: OnDemandBox, at_a_time: int) -> None:
    """Start llama-server's router mode with the arguments of an instance, and wait until it answers."""
    weight = f"/srv/models/{WEIGHT}/1/{WEIGHT}.gguf"
    preset = "".join(f"[{name}]\nmodel = {weight}\n" for name in box.models)
    server, *arguments = engine_command(box.host)
    for option in ("--model", "--alias", "--host", "--api-key-file"):
        place = arguments.index(option)
        del arguments[place : place + 2]
    options = ["--models-preset", "/run/bench.ini", "--models-max", str(at_a_time)]
    command = [server, "--host", "127.0.0.1", "--port", str(ROUTER_PORT), *arguments, *options]
    run = ["systemd-run", "--quiet", "--collect", f"--unit={ROUTER}", *command]
    box.host.run(f"printf %s {shlex.quote(preset)} > /run/bench.ini && {shlex.join(run)}")
    url = f"http://127.0.0.1:{ROUTER_PORT}/health"
    box.host.run(f"timeout 60 sh -c 'until curl -sf {url} > /dev/null; do sleep 0.2; done'")
