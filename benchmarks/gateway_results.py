"""Results of the loads of `python -m benchmarks gateway`: each way in terms of the instance's own port."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from bench.load_statistics import LoadTimes, percentile
from benchmarks import JsonReport
from benchmarks.gateway_host import LITELLM, PACED, PLAIN, PORT, SOCKET, TLS

WAYS = (SOCKET, PORT, PLAIN, TLS, LITELLM)
OURS = (PLAIN, TLS)
MOST_LATER_S, LEAST_RATIO, MOST_RESIDENT, MOST_RENDERING_S = 0.005, 0.99, 100e6, 0.1
JUDGED = 64
"""Streams under which the first token's goal is held."""


@dataclass
class Row:
    """One way to an engine under one kind of load; in each round one load, those of all ways in turns."""

    engine: str
    streams: int
    together: bool
    """Whether all streams ask at the same moment, again and again, in place of one after the other."""
    way: str
    loads: list[LoadTimes] = field(default_factory=list)
    kept: bool = True
    """Whether a stream's requests are all on one connection, as OpenAI's clients have it; else each makes one."""

    @property
    def load(self) -> tuple[str, int, bool, bool]:
        """The parts that it has in common with those of the other ways."""
        return self.engine, self.streams, self.together, self.kept

    @property
    def requests(self) -> int:
        """Of all loads."""
        return sum(len(load.requests) for load in self.loads)

    @property
    def rate(self) -> float:
        """Tokens a second of all streams, while they have a request under way: the middle of the loads."""
        return median(self.rates)

    @property
    def rates(self) -> list[float]:
        """Of each load."""
        return [
            self.streams * sum(one.tokens for one in load.requests) / sum(one.total_s for one in load.requests)
            for load in self.loads
        ]

    def first_s(self, percent: float) -> float:
        """A percentile of the seconds to the first token, over all loads' requests."""
        return percentile((one.first_s for load in self.loads for one in load.requests), percent)

    def firsts(self, percent: float) -> list[float]:
        """The same of each load."""
        return [percentile((one.first_s for one in load.requests), percent) for load in self.loads]

    def gap_s(self, percent: float) -> float:
        """A percentile of the seconds from a token to the next, over all loads' requests."""
        return percentile((gap for load in self.loads for one in load.requests for gap in one.gaps_s), percent)


@dataclass(frozen=True)
class Crowd:
    """Memory while many streams are open."""

    way: str
    streams: int
    """That were open at once."""
    resident: int
    """Bytes of what is between client and engine: nginx and router, or LiteLLM's proxy."""
    idle: int
    """Bytes before."""


@dataclass(frozen=True)
class Large:
    """Streams of a way while another client sends large bodies, next to the same without."""

    way: str
    bodies: int
    body_s: float
    """Seconds until a large one was answered: the middle."""
    beside: Row
    without: Row


@dataclass(frozen=True)
class Report(JsonReport):
    """All figures of a run."""

    date: str
    release: str
    cpus: int
    load: tuple[float, float]
    """Of one minute, at the beginning and the end of the loads."""
    rounds: int
    litellm: str
    """Its version; empty where it was not measured."""
    skipped: str
    """Why it was not."""
    rows: list[Row]
    short: dict[str, list[float]]
    """Way -> requests a second, of each round."""
    crowds: list[Crowd]
    large: list[Large]
    rendering_s: list[float]
    """Of a gateway's files for eight boxes, the first of a process and more."""

    def same_load(self, row: Row, way: str = PORT) -> Row:
        """Another way under the same load."""
        return next(one for one in self.rows if (one.load, one.way) == (row.load, way))

    def table(self) -> list[tuple[str, ...]]:
        """A line a row, with what it is in terms of the instance's own port."""
        told: list[tuple[str, ...]] = []
        for row in self.rows:
            port = self.same_load(row)
            later = [one - other for one, other in zip(row.firsts(99), port.firsts(99), strict=True)]
            ratio = median(self._ratios(row))
            told.append(
                (
                    *(row.engine, _describe_load(row), row.way, str(row.requests)),
                    *(f"{row.rate:.1f}", f"{1000 * row.first_s(50):.2f}", f"{1000 * row.first_s(99):.2f}"),
                    *(f"{1000 * row.gap_s(99):.2f}", f"{1000 * (row.first_s(50) - port.first_s(50)):+.2f}"),
                    *(f"{1000 * (row.first_s(99) - port.first_s(99)):+.2f}", _span(later, 1000, "+.2f")),
                    f"{ratio:.3f}",
                )
            )
        return told

    def _ratios(self, row: Row) -> list[float]:
        return [one / other for one, other in zip(row.rates, self.same_load(row).rates, strict=True)]

    def goals(self) -> list[str]:
        """The goals, next to the results."""
        said = []
        for way in OURS:
            judged = [
                row
                for row in self.rows
                if (row.engine, row.way, row.together) == (PACED, way, False) and row.streams <= JUDGED
            ]
            last = max(judged, key=lambda row: row.streams)
            over = {
                other: 1000 * (last.first_s(99) - self.same_load(last, other).first_s(99)) for other in (PORT, SOCKET)
            }
            said.append(
                f"{way}: TTFT P99 with {last.streams} streams {over[PORT]:+.2f} ms beside the port, "
                f"{over[SOCKET]:+.2f} beside the socket; goal: at most {1000 * MOST_LATER_S:.0f} ms later"
            )
            for kept, how in ((True, "connections kept"), (False, "a connection each answer")):
                rows = [row for row in self.rows if (row.way, row.together, row.kept) == (way, False, kept)]
                if rows:
                    worst = min(median(self._ratios(row)) for row in rows)
                    ratio = f"{way}: tokens/s \N{DIVISION SIGN} the port's, at worst {worst:.3f}, {how}"
                    said.append(f"{ratio}; goal: {LEAST_RATIO}")
        for one in self.crowds:
            goal = f"; goal: at most {MOST_RESIDENT / 1e6:.0f} MB" if one.way in OURS else ""
            said.append(
                f"{one.way}: {one.resident / 1e6:.1f} MB with {one.streams} streams open, {one.idle / 1e6:.1f} before"
                f"{goal}"
            )
        for beside in self.large:
            with_, without = beside.beside, beside.without
            said.append(
                f"{beside.way}: {beside.bodies} bodies of 3 MB, one at a time, {1000 * beside.body_s:.0f} ms each; "
                f"{with_.streams} other streams: TTFT P99 {1000 * without.first_s(99):.2f} ms, then "
                f"{1000 * with_.first_s(99):.2f}; ITL P99 {1000 * without.gap_s(99):.2f} ms, then "
                f"{1000 * with_.gap_s(99):.2f}"
            )
        for way, rates in self.short.items():
            said.append(
                f"{way}: {median(rates):.0f} short answers a second over 16 connections ({_span(rates, 1, '.0f')})"
            )
        first, *more = self.rendering_s
        said.append(
            f"rendering the gateways of 8 boxes: {first:.3f} s, again {median(more):.3f}; goal: at most "
            f"{MOST_RENDERING_S} s"
        )
        return said

    @property
    def about(self) -> str:
        """On what, and when."""
        return (
            f"{self.date}, {self.release}, {self.cpus} CPUs, {self.rounds} rounds in turns; "
            f"LiteLLM {self.litellm or f'left out: {self.skipped}'}; "
            f"load {self.load[0]:.1f} at the beginning, {self.load[1]:.1f} at the end"
        )


def _describe_load(row: Row) -> str:
    return f"{row.streams}{' at once' if row.together else ''}{'' if row.kept else ', new connections'}"


def _span(values: Sequence[float], factor: float, form: str) -> str:
    return f"{min(values) * factor:{form}} to {max(values) * factor:{form}}"
