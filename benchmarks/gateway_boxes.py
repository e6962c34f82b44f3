"""The first token of an instance of another box, next to one of the gateway's own box, through the same gateway.

Two throwaway hosts, each with the stand-in of a fixed pace (benchmarks/paced_engine.py) as an instance. Loads of both
take turns; the order changes from round to round, and each round gives one difference. Both hosts share one machine:
the figures are the part of Rigwright, without the latency of a network.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.load_statistics import LoadTimes, parse_load_times, percentile
from benchmarks import BenchmarkFailed, JsonReport
from benchmarks.gateway_host import (
    PACED,
    PLAIN_PORT,
    PORTS,
    START_LIMIT,
    RunningLoad,
    put_stand_in,
    rigwright,
    start_load,
)
from benchmarks.http_streams import ServerAddress, StreamRequest
from benchmarks.noop_deploy import own_lab
from lab.hosts import HostSpec, LabHost
from lab.throwaway_lab import ThrowawayLab

OWN, OTHER = "own", "other"
"""Models of the gateway: of an instance of its own box, and of one of the other box."""
GOAL_S = 0.002
TOKENS, PROMPT, SPREAD = 16, 80, 0.6


@dataclass
class BoxesRow:
    """Loads of both models under so many streams, one of each a round."""

    streams: int
    loads: dict[str, list[LoadTimes]] = field(default_factory=lambda: {OWN: [], OTHER: []})

    def first_s(self, model: str, percent: float) -> float:
        """A percentile of the seconds to the first token, over all loads."""
        return percentile((one.first_s for load in self.loads[model] for one in load.requests), percent)

    def later_s(self, percent: float) -> list[float]:
        """By how much the first token of the other box comes later, of each round."""
        firsts = (
            [percentile((one.first_s for one in load.requests), percent) for load in self.loads[model]]
            for model in (OWN, OTHER)
        )
        return [other - own for own, other in zip(*firsts, strict=True)]


@dataclass(frozen=True)
class BoxesReport(JsonReport):
    """All figures of a run."""

    date: str
    cpus: int
    rounds: int
    load: float
    rows: list[BoxesRow]

    def table(self) -> list[tuple[str, ...]]:
        """A row for each number of streams: P50 and P99 of both, and the middle of the differences."""
        return [
            (
                str(row.streams),
                *(f"{1000 * row.first_s(model, percent):.1f}" for percent in (50, 99) for model in (OWN, OTHER)),
                *(f"{1000 * median(row.later_s(percent)):+.1f}" for percent in (50, 99)),
            )
            for row in self.rows
        ]

    def goal(self) -> str:
        """Whether the goal is reached."""
        worst = max(median(row.later_s(99)) for row in self.rows)
        word = "reached" if worst <= GOAL_S else "missed"
        said = f"at worst {1000 * worst:+.1f} ms; goal {1000 * GOAL_S:.0f} ms: {word}"
        return f"P99 of the first token of another box: {said}"


def measure(
    release: str, rounds: int, seconds: float, streams: Sequence[int], say: Callable[[str], None]
) -> BoxesReport:
    """Measure it.

    Args:
        release: The hosts' Debian.
        rounds: Loads of each model and number of streams.
        seconds: Of a load.
        streams: Concurrent requests.
        say: Told what is under way.

    Raises:
        BenchmarkFailed: a deploy or a load failed.
        lab.machine_requirements.UnsupportedMachine: this machine cannot run a lab.
        RuntimeError: a program fails that makes the lab.
        TimeoutError: a host does not answer.
    """
    rows = [BoxesRow(count) for count in streams]
    with TemporaryDirectory(prefix="rigwright-bench-") as name:
        say("deploying two hosts")
        with _deployed(Path(name), release) as host:
            for number in range(rounds):
                for row in rows:
                    say(f"round {number + 1} of {rounds}: {row.streams} streams")
                    for model in (OTHER, OWN) if number % 2 else (OWN, OTHER):
                        row.loads[model].append(parse_load_times(_begin(host, model, row.streams, seconds).end()))
        load = os.getloadavg()[0]
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return BoxesReport(now, os.cpu_count() or 1, rounds, load, rows)


def _begin(host: LabHost, model: str, streams: int, seconds: float) -> RunningLoad:
    place = ServerAddress(f"127.0.0.1:{PLAIN_PORT}")
    asked = StreamRequest(place, model, streams, seconds, TOKENS, spread=SPREAD if seconds else 0.0, prompt=PROMPT)
    return start_load(host, asked)


@contextmanager
def _deployed(folder: Path, release: str) -> Iterator[LabHost]:
    """The host with the gateway; both are gone when the block ends."""
    with own_lab() as lab:
        one, two = lab.up([HostSpec(f"h{number}", release) for number in (1, 2)])
        rigwright("deploy", str(_declare(folder, lab, one, two)))
        for host in (one, two):
            put_stand_in(host)
        deadline = time.monotonic() + START_LIMIT
        while True:
            try:
                for model in (OWN, OTHER):
                    _begin(one, model, 1, 0).end()
                break
            except BenchmarkFailed:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
        yield one


def _declare(folder: Path, lab: ThrowawayLab, one: LabHost, two: LabHost) -> Path:
    instances = {PACED: {"variant": "llamacpp/demo-wheel", "port": PORTS[PACED]}}
    shared = {"instances": instances, "mirrors": {"shelf": [lab.shelf_url]}}
    models = {OWN: {"instances": [PACED], "queue": 4096}, OTHER: {"instances": [f"two/{PACED}"], "queue": 4096}}
    listeners = {"lan": {"address": "0.0.0.0", "port": PLAIN_PORT, "keys": False}}
    entries = {
        "one": {**one.inventory_keys, **shared, "gateway": {"listeners": listeners, "models": models}},
        "two": {**two.inventory_keys, **shared, "fleet": {"address": two.address}},
    }
    inventory = folder / "rig.py"
    inventory.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({entries!r})\n")
    return inventory
