"""Figures of a load: rates, latencies, medians and confidence intervals."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, median, stdev

# Student's t, two-sided 95 %, for 1 to 30 degrees of freedom; beyond them the normal distribution's is close enough.
T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
    *(2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
NORMAL = 1.960


@dataclass(frozen=True)
class ConfidenceInterval:
    """A ratio, and between what it lies with 95 % confidence."""

    ratio: float
    """The geometric mean: a ratio and its inverse weigh the same."""
    low: float
    high: float
    groups: int
    """Independent figures that it is made of."""

    def describe_against_goal(self, goal: float) -> str:
        """The verdict about a ratio that has to be at least `goal`."""
        if self.low >= goal:
            return f"at least {goal}"
        if self.high < goal:
            return f"below {goal}"
        # the width falls with the square root of what it is made of
        wide, needed = (self.high - self.low) / 2, 1 - goal
        more = math.ceil(self.groups * (wide / needed) ** 2)
        return f"cannot tell whether at least {goal}: {100 * wide:.1f} % either way; {more} such would, if it is 1"

    def as_json(self) -> dict[str, float]:
        """For programs."""
        return {"ratio": self.ratio, "low": self.low, "high": self.high, "groups": self.groups}


def confidence_interval(groups: Sequence[Sequence[float]]) -> ConfidenceInterval | None:
    """The interval of a ratio; None for a single group, which shows no spread between groups.

    Args:
        groups: Ratios that have something in common, such as the processes that were compared, each group with its own:
            ten loads of one process say no more of the next process than one does.
    """
    if len(groups) < 2:
        return None
    means = [fmean(map(math.log, group)) for group in groups]
    middle, degrees = fmean(means), len(means) - 1
    half = (T[degrees - 1] if degrees <= len(T) else NORMAL) * stdev(means) / math.sqrt(len(means))
    return ConfidenceInterval(math.exp(middle), math.exp(middle - half), math.exp(middle + half), len(means))


# outside of any sandbox, over a socket, or in its place another instance's unit over its own; the unit over its socket;
# the same through the port that systemd holds for it
BARE, OTHER, UNIT, PORT = "bare", "other", "unit", "port"


@dataclass(frozen=True)
class RequestTimes:
    """One request's times, in seconds."""

    first_s: float
    """To the first token, the wait for a slot in it."""
    gaps_s: tuple[float, ...]
    """From a token to the next."""
    total_s: float
    tokens: int
    prompt_tokens: int | None = None
    """Those of the prompt, where the server says it."""

    @property
    def per_token_s(self) -> float:
        """Of output, after the first token."""
        return sum(self.gaps_s) / max(self.tokens - 1, 1)


@dataclass(frozen=True)
class LoadTimes:
    """One run of the load program."""

    seconds: float
    requests: tuple[RequestTimes, ...]

    @property
    def tokens_a_second(self) -> float:
        """Of output, over all streams."""
        return sum(request.tokens for request in self.requests) / self.seconds

    @property
    def first_s(self) -> float:
        """The middle of the seconds to the first token."""
        return median(request.first_s for request in self.requests)


def parse_load_times(said: str) -> LoadTimes:
    """Read what bench/load_generator.py or benchmarks/http_streams.py prints.

    Raises:
        ValueError: it is something else.
    """
    try:
        found = json.loads(said)
        made = tuple(
            RequestTimes(
                float(one["first_s"]), tuple(map(float, one["gaps_s"])), float(one["total_s"]), int(one["tokens"])
            )
            for one in found["requests"]
        )
        return LoadTimes(float(found["seconds"]), made)
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"the load program printed {said[:500]!r}") from None


def parse_load(said: str, requests: int, tokens: int) -> LoadTimes:
    """Read what bench/load_generator.py prints.

    Args:
        said: Its output.
        requests: How many there must be.
        tokens: How many each must have been answered with.

    Raises:
        ValueError: it is something else, or the server answered less than it was asked for.
    """
    load = parse_load_times(said)
    if len(load.requests) != requests:
        raise ValueError(f"{len(load.requests)} answers to {requests} requests")
    if short := [one.tokens for one in load.requests if one.tokens != tokens]:
        raise ValueError(f"an answer of {short[0]} tokens where {tokens} were asked for")
    return load


def percentile(values: Iterable[float], percent: float) -> float:
    """The smallest of the values that so many percent of them do not exceed.

    Raises:
        ValueError: there are no values.
    """
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]


@dataclass
class ServingRow:
    """One way of serving under so many streams: in each round as many loads, those of all ways in the same order."""

    streams: int
    way: str
    loads: list[LoadTimes] = field(default_factory=list)

    @property
    def tokens_a_second(self) -> float:
        """The middle of the loads."""
        return median(load.tokens_a_second for load in self.loads)

    def first_s(self, percent: float) -> float:
        """A percentile of the seconds to the first token, over all loads' requests."""
        return percentile((one.first_s for load in self.loads for one in load.requests), percent)

    def gap_s(self, percent: float) -> float:
        """A percentile of the seconds between two tokens, over all loads' requests."""
        return percentile((gap for load in self.loads for one in load.requests for gap in one.gaps_s), percent)

    def as_json(self) -> dict[str, object]:
        """For programs."""
        shares = {"p50": 50.0, "p99": 99.0}
        return {
            "streams": self.streams,
            "way": self.way,
            "tokens_a_second": self.tokens_a_second,
            "first_s": {name: self.first_s(percent) for name, percent in shares.items()},
            "gap_s": {name: self.gap_s(percent) for name, percent in shares.items()},
            "loads": [
                {
                    "seconds": load.seconds,
                    "tokens_a_second": load.tokens_a_second,
                    "requests": [
                        {name: getattr(one, name) for name in ("first_s", "per_token_s", "total_s", "tokens")}
                        for one in load.requests
                    ],
                }
                for load in self.loads
            ],
        }


@dataclass(frozen=True)
class MeasuredMachine:
    """The measured machine."""

    host: str
    instance: str
    variant: str
    slots: int
    card: str
    """Names and driver as nvidia-smi has them; empty without any."""
    engine: str
    cpus: int


@dataclass(frozen=True)
class PairedLoads:
    """One way of serving in terms of another, load by load: an effect on both, such as a hot card, is on both sides."""

    ratios: tuple[float, ...]
    """Tokens a second in terms of the other's."""
    later_s: tuple[float, ...]
    """Seconds that the first token comes later."""

    @property
    def median_ratio(self) -> float:
        """The middle of the ratios."""
        return median(self.ratios)

    @property
    def median_later_s(self) -> float:
        """The middle of `later_s`."""
        return median(self.later_s)

    def as_json(self) -> dict[str, object]:
        """For programs."""
        return {
            "tokens_a_second": {"median": self.median_ratio, "loads": self.ratios},
            "first_later_s": {"median": self.median_later_s, "loads": self.later_s},
        }


@dataclass(frozen=True)
class ServingReport:
    """The measurement, its time and its machine."""

    date: str
    machine: MeasuredMachine
    prompt_tokens: int
    output_tokens: int
    requests: int
    """Of each stream, in each load."""
    rows: list[ServingRow]
    starts: dict[str, list[float]] = field(default_factory=dict)
    """Process -> seconds until it was ready, in each of its turns."""

    @property
    def baseline_ways(self) -> dict[str, str]:
        """Way of serving -> the one that it is put in terms of."""
        against = OTHER if any(row.way == OTHER for row in self.rows) else BARE
        return {UNIT: against, PORT: UNIT}

    @property
    def streams(self) -> list[int]:
        """How many at once, a load each."""
        return list(dict.fromkeys(row.streams for row in self.rows))

    def pairs(self, streams: int, way: str) -> PairedLoads:
        """A way of serving in terms of the one that `beside` has for it."""
        found = {row.way: row.loads for row in self.rows if row.streams == streams}
        both = list(zip(found[way], found[self.baseline_ways[way]], strict=True))
        return PairedLoads(
            tuple(one.tokens_a_second / other.tokens_a_second for one, other in both),
            tuple(one.first_s - other.first_s for one, other in both),
        )

    def interval(self, streams: int, way: str) -> ConfidenceInterval | None:
        """How sure the ratio of `pairs` is. Unit and port are one process, asked alternately: each pair counts. Others
        are two processes that are started anew in each round: each round counts.
        """
        ratios = self.pairs(streams, way).ratios
        rounds = len(ratios) if way == PORT else max(len(taken) for taken in (*self.starts.values(), [0.0]))
        each = max(len(ratios) // rounds, 1)
        return confidence_interval([ratios[at : at + each] for at in range(0, len(ratios), each)])

    def as_json(self) -> str:
        """For programs."""
        beside: dict[str, dict[str, object]] = {}
        for way, other in self.baseline_ways.items():
            found = {count: (self.pairs(count, way), self.interval(count, way)) for count in self.streams}
            beside[f"{way}_by_{other}"] = {
                str(count): {**pairs.as_json(), "interval": sure.as_json() if sure else None}
                for count, (pairs, sure) in found.items()
            }
        said = {
            "date": self.date,
            "machine": asdict(self.machine),
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "requests": self.requests,
            "rows": [row.as_json() for row in self.rows],
            "starts_s": self.starts,
            **beside,
        }
        return json.dumps(said, indent=2) + "\n"
