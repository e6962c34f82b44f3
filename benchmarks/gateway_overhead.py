"""The cost of a gateway for the clients of an instance, next to the instance by itself and LiteLLM's proxy in front of
it.

All ways begin in one process on the host's own loopback interface and end at one engine, so that what differs is what
stands in between. Loads take turns; the order changes from round to round. Two cores are not enough to measure a
real engine under many streams together with what it lacks then: more than sixteen are the stand-in's
(benchmarks/paced_engine.py), in an instance's place. All of it shares one machine, so trust the differences.
"""

from __future__ import annotations

import os
import runpy
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TypeVar

from bench.load_statistics import LoadTimes, parse_load_times
from benchmarks import BenchmarkFailed, litellm
from benchmarks.gateway_host import LITELLM, PACED, PLAIN, PORT, PORTS, REAL, TLS, Box, deployed, gateway
from benchmarks.gateway_results import WAYS, Crowd, Large, Report, Row
from benchmarks.http_streams import StreamRequest
from rigwright.gateway.gateway_units import render_gateway
from rigwright.inventory import load_rig
from rigwright.serving.instance_units import OWNED_HEADER

WORDS = {PACED: 16, REAL: 338}
"""Tokens of an answer: of the real engine as many as people's conversations have in the mean (ShareGPT's 337.99:
arXiv:2309.06180, figure 11). The extra cost of a shorter one is in its time to the first token."""
SPREAD = 0.6
"""Seconds over which streams begin: about an answer of the stand-in's."""
PROMPT, LARGE = 80, 3_000_000
"""Bytes of what is asked."""
BOXES = 8
T = TypeVar("T")
# Prompts and answers of a real engine: as long for each request, and nothing from a cache.
MORE = {PACED: "{}", REAL: '{"ignore_eos": true, "cache_prompt": false}'}


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    rounds: int
    seconds: float
    """Of a load."""
    streams: tuple[int, ...]
    """Of the stand-in; a real engine gets those up to its slots."""
    crowd: int
    """Streams that are open at once where memory is looked at."""


@dataclass(frozen=True)
class Front:
    """The host, and the proxy that may be in front of it."""

    box: Box
    proxy: litellm.Proxy | None
    effort: Effort

    @property
    def ways(self) -> tuple[str, ...]:
        """Those that there are."""
        return WAYS if self.proxy else tuple(way for way in WAYS if way != LITELLM)

    def stream_request(self, way: str, engine: str, streams: int, kept: bool = True) -> StreamRequest:
        """A load, one stream after the other."""
        place = self.box.place(way, engine, self.proxy)
        wanted = StreamRequest(place, engine, streams, self.effort.seconds, WORDS[engine], kept=kept, more=MORE[engine])
        return replace(wanted, spread=SPREAD, prompt=PROMPT)

    def load(self, asked: StreamRequest) -> LoadTimes:
        """Put it on.

        Raises:
            BenchmarkFailed: it fails.
        """
        return _load(self.box.begin(asked).end())


def measure(
    release: str, layers: tuple[str, ...], effort: Effort, with_litellm: bool, say: Callable[[str], None]
) -> Report:
    """Measure everything.

    Args:
        release: The host's Debian.
        layers: Folders laid over its base image that hold a compiled engine; none takes what was kept, or compiles one.
        effort: How much.
        with_litellm: Whether to measure LiteLLM's proxy, too.
        say: Told what is under way.

    Raises:
        BenchmarkFailed: a deploy or a program failed.
        lab.machine_requirements.UnsupportedMachine: this machine cannot run a lab.
        RuntimeError: a program fails that prepares all this.
        TimeoutError: a host does not answer.
    """
    rendering_s = list(islice(rendering(), 6))
    skipped = litellm.prepare() if with_litellm else "not asked for"
    with TemporaryDirectory(prefix="rigwright-bench-") as name, ExitStack() as stack:
        say("deploying a host with a gateway")
        box = stack.enter_context(deployed(Path(name), release, layers))
        proxy = None
        if not skipped:
            say("starting LiteLLM's proxy")
            served = {one: (f"http://127.0.0.1:{port}/v1", box.engine_key(one)) for one, port in PORTS.items()}
            proxy = stack.enter_context(litellm.proxy(Path(name), served, box.inside))
        front = Front(box, proxy, effort)
        before = os.getloadavg()[0]
        crowds = [_crowd(front, way, say) for way in front.ways if way in (PLAIN, TLS, LITELLM)]
        rows, short = _turns(front, say)
        large = [_large(front, way, say) for way in (PORT, PLAIN)]
        load = (before, os.getloadavg()[0])
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    version = "" if skipped else litellm.version()
    counted = (effort.rounds, version, skipped, rows, short, crowds, large, rendering_s)
    return Report(now, release, os.cpu_count() or 1, load, *counted)


def _turns(front: Front, say: Callable[[str], None]) -> tuple[list[Row], dict[str, list[float]]]:
    counts = front.effort.streams
    kinds = [(PACED, count, False, True) for count in counts] + [(PACED, max(counts), True, True)]
    kinds += [(REAL, count, False, kept) for count in counts if count <= 16 for kept in (True, False)]
    rows = [Row(*kind[:3], way, kept=kind[3]) for kind in kinds for way in front.ways]
    short: dict[str, list[float]] = {way: [] for way in front.ways}
    for engine in PORTS:
        for way in front.ways:
            front.load(replace(front.stream_request(way, engine, 4), seconds=0))
    for number in range(front.effort.rounds):
        for kind in kinds:
            say(f"round {number + 1} of {front.effort.rounds}: {kind[0]}, {kind[1]} streams")
            for row in _in_turn([row for row in rows if row.load == kind], number):
                asked = front.stream_request(row.way, row.engine, row.streams, row.kept)
                row.loads.append(front.load(replace(asked, spread=0.0) if row.together else asked))
        say(f"round {number + 1} of {front.effort.rounds}: short answers")
        for way in _in_turn(front.ways, number):
            load = front.load(replace(front.stream_request(way, PACED, 16), stream=False, tokens=1, spread=0.0))
            short[way].append(len(load.requests) / load.seconds)
    return rows, short


def _in_turn(ways: Sequence[T], number: int) -> Sequence[T]:
    """A slowdown over time is on all sides."""
    return ways[::-1] if number % 2 else ways


def _crowd(front: Front, way: str, say: Callable[[str], None]) -> Crowd:
    """So many streams, of a token in two seconds each."""
    count = front.effort.crowd
    say(f"{count} streams open: {way}")
    proxy = front.proxy if way == LITELLM else None

    def look() -> int:
        return proxy.resident if proxy else front.box.resident()

    idle = most = look()
    own = connections = front.box.connections(PACED)
    more = '{"interval_ms": 2000}'
    begun = front.box.begin(
        replace(front.stream_request(way, PACED, count), seconds=0, tokens=6, spread=3.0, more=more)
    )
    while begun.process.poll() is None:
        most = max(most, look())
        connections = max(connections, front.box.connections(PACED))
    _load(begun.end())
    return Crowd(way, connections - own, most, idle)


def _large(front: Front, way: str, say: Callable[[str], None]) -> Large:
    """Sixteen streams, with and without another client that sends one large body after the other."""
    say(f"large bodies: {way}")
    one = replace(front.stream_request(way, PACED, 1), stream=False, tokens=1, prompt=LARGE, pause=0.5, spread=0.0)
    found = {name: Row(PACED, 16, False, way) for name in ("beside", "without")}
    bodies = []
    for number in range(front.effort.rounds):
        for name in _in_turn(list(found), number):
            sender = front.box.begin(one) if name == "beside" else None
            found[name].loads.append(front.load(front.stream_request(way, PACED, 16)))
            if sender:
                bodies += [request.total_s for request in _load(sender.end()).requests]
    return Large(way, len(bodies), median(bodies), **found)


def _load(said: str) -> LoadTimes:
    try:
        return parse_load_times(said)
    except ValueError as error:
        raise BenchmarkFailed(str(error)) from None


def rendering() -> Iterator[float]:
    """Seconds that it takes to render all files of eight boxes' gateways; the first time templates are read, too."""
    instances = {name: {"variant": "llamacpp/demo", "port": port} for name, port in PORTS.items()}
    shared = {"instances": instances, "gateway": gateway(), "mirrors": {"shelf": ["http://192.0.2.99"]}}
    entries = {f"box{number}": {"ssh_hostname": f"192.0.2.{number}", **shared} for number in range(1, BOXES + 1)}
    with TemporaryDirectory(prefix="rigwright-bench-") as folder:
        inventory = Path(folder) / "rig.py"
        inventory.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({entries!r})\n")
        rigs = [load_rig(data["rig"]) for _, data in runpy.run_path(str(inventory))["rigs"]]
    while True:
        started = time.perf_counter()
        for rig in rigs:
            render_gateway(rig.roots, rig.accounts, rig.instances, rig.gateway, rig.monitoring, OWNED_HEADER)
        yield time.perf_counter() - started
