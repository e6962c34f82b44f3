"""The cost of another box between a gateway and an instance: two throwaway hosts with the same stand-in for an engine.

The gateway of the first host serves two models: `near` is an instance of the first host, `far` one of the second.
Clients run in the first host's network. Loads of both models take turns, and the order changes from round to round.
Both hosts share one machine: their link has no network's latency, so add the round trips of a real one.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.load_statistics import LoadTimes, parse_load_times, percentile
from benchmarks import BenchmarkFailed
from benchmarks.gateway_host import PACED, PLAIN_PORT, START_LIMIT, begin_load, rigwright, start_stand_in
from benchmarks.http_streams import ServerAddress, StreamRequest
from benchmarks.noop_deploy import own_lab
from lab.hosts import HostSpec, LabHost
from lab.throwaway_lab import ThrowawayLab

NEAR, FAR = "near", "far"
TOKENS, SPREAD, PROMPT = 16, 0.6, 80
"""Tokens of an answer, seconds over which the streams of a load begin, bytes of a prompt: as for one box."""
GOAL_MS = 2.0
"""Milliseconds by which the 99th percentile of the first token may be later over boxes than within a box."""


@dataclass
class BoxRow:
    """The loads of both models with so many streams, one pair per round."""

    streams: int
    loads: dict[str, list[LoadTimes]] = field(default_factory=lambda: {NEAR: [], FAR: []})

    def first_ms(self, model: str, percent: float) -> float:
        """Milliseconds to the first token, over all rounds."""
        return 1000 * percentile((one.first_s for load in self.loads[model] for one in load.requests), percent)

    def later_ms(self, percent: float) -> list[float]:
        """Milliseconds by which the first token of `far` is later, one number per round."""
        pairs = zip(self.loads[NEAR], self.loads[FAR], strict=True)
        return [1000 * (_first(far, percent) - _first(near, percent)) for near, far in pairs]


def _first(load: LoadTimes, percent: float) -> float:
    return percentile((one.first_s for one in load.requests), percent)


@dataclass(frozen=True)
class BoxesReport:
    """One run of this benchmark."""

    date: str
    release: str
    cpus: int
    rounds: int
    load: tuple[float, float]
    """Of this machine, before and after."""
    rows: list[BoxRow]

    def table(self) -> list[tuple[str, ...]]:
        """One line per number of streams."""
        return [
            (
                str(row.streams),
                str(sum(len(load.requests) for load in row.loads[FAR])),
                *(f"{row.first_ms(model, percent):.2f}" for model in (NEAR, FAR) for percent in (50, 99)),
                f"{row.first_ms(FAR, 50) - row.first_ms(NEAR, 50):+.2f}",
                f"{row.first_ms(FAR, 99) - row.first_ms(NEAR, 99):+.2f}",
                f"{min(later := row.later_ms(99)):+.2f} to {max(later):+.2f}",
            )
            for row in self.rows
        ]

    def as_json(self) -> str:
        """All times, seconds."""
        return json.dumps(asdict(self), indent=2) + "\n"


def measure(
    release: str, streams: Sequence[int], rounds: int, seconds: float, say: Callable[[str], None]
) -> BoxesReport:
    """Measure both models in turn.

    Args:
        release: The hosts' Debian.
        streams: Numbers of concurrent requests.
        rounds: Pairs of loads per number of streams.
        seconds: Duration of a load.
        say: Shows the present step.

    Raises:
        BenchmarkFailed: a deploy or a load fails.
        lab.machine_requirements.UnsupportedMachine: this machine cannot run a lab.
        TimeoutError: a host does not answer.
    """
    rows = [BoxRow(count) for count in streams]
    with TemporaryDirectory(prefix="rigwright-bench-") as name:
        say("deploying two hosts")
        with _deployed(Path(name), release) as inside:
            before = os.getloadavg()[0]
            for number in range(rounds):
                for row in rows:
                    say(f"round {number + 1} of {rounds}: {row.streams} streams")
                    for model in (NEAR, FAR) if number % 2 == 0 else (FAR, NEAR):
                        row.loads[model].append(_load(inside, model, row.streams, seconds))
            load = (before, os.getloadavg()[0])
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return BoxesReport(now, release, os.cpu_count() or 1, rounds, load, rows)


def _load(inside: Sequence[str], model: str, streams: int, seconds: float) -> LoadTimes:
    place = ServerAddress(f"127.0.0.1:{PLAIN_PORT}")
    asked = StreamRequest(place, model, streams, seconds, TOKENS, kept=True, spread=SPREAD, prompt=PROMPT)
    return parse_load_times(begin_load(inside, asked).end())


@contextmanager
def _deployed(folder: Path, release: str) -> Iterator[list[str]]:
    """The two hosts, gone when the block ends; gives the command that runs a program in the first one's network."""
    with own_lab() as lab:
        one, two = lab.up([HostSpec(name, release) for name in ("one", "two")])
        rigwright("deploy", str(_declare(folder, lab, one, two)))
        for host in (one, two):
            start_stand_in(host)
        inside = ["ip", "netns", "exec", one.namespace]
        deadline = time.monotonic() + START_LIMIT
        while True:
            try:
                for model in (NEAR, FAR):
                    _load(inside, model, 4, 0)
                break
            except BenchmarkFailed:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
        yield inside


def _declare(folder: Path, lab: ThrowawayLab, one: LabHost, two: LabHost) -> Path:
    """Write the inventory; returns its path."""
    shared: dict[str, object] = {
        "instances": {PACED: {"variant": "llamacpp/demo-wheel", "port": 8021}},
        "mirrors": {"shelf": [lab.shelf_url]},
    }
    gateway = {
        "listeners": {"lan": {"address": "0.0.0.0", "port": PLAIN_PORT, "keys": False}},
        "models": {name: {"instances": [reference], "queue": 4096} for name, reference in _references().items()},
    }
    fleet = {"address": str(two.inventory_keys["ssh_hostname"])}
    entries = {
        "one": one.inventory_keys | shared | {"gateway": gateway},
        "two": two.inventory_keys | shared | {"fleet": fleet},
    }
    path = folder / "fleet.py"
    path.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({entries!r})\n")
    return path


def _references() -> dict[str, str]:
    """Model -> its instance."""
    return {NEAR: PACED, FAR: f"two/{PACED}"}
