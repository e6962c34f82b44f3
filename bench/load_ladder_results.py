"""Results of the loads of a ladder: figures under the names of `vllm bench serve`, and where more streams bring no
more, and why.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from bench.load_generator import REFUSED
from bench.load_statistics import RequestTimes
from rigwright.engines.metrics import EngineMetrics
from rigwright.operate.gateway_probes import ProbeAllowance
from rigwright.problems import printable

# Percentiles that are reported, in addition to the mean and the median.
PERCENTILES = (90, 99)
TIMES = ("ttft", "tpot", "itl", "e2el")
# The gain of requests per second that one more step of a ladder has to bring to be more.
GAIN = 0.05
# Of the KV cache, from which on an engine holds requests back or drops what it has worked out.
FULL = 0.9
# Of a processor, from which on a client's own times are in the figures.
BUSY = 0.8
# Of our own tokens, and tokens a request: an engine counts what ends an answer, too.
SLACK, ENDS = 0.02, 2
KINDS = 3  # of errors, that are reported
WORDS = 100  # characters of each

Seconds = Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)]
Tokens = Annotated[int, Field(ge=0, le=10**9)]


class _LoadLine(BaseModel):
    """A line of bench/load_generator.py's: the output of a host has to have its shape."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class LoadAnswer(_LoadLine):
    """A request that was answered."""

    first_s: Seconds
    gaps_s: list[Seconds] = Field(max_length=1_000_000)
    total_s: Seconds
    tokens: Tokens
    prompt_tokens: Tokens | None


class LoadFailure(_LoadLine):
    """A request that was not."""

    error: str = Field(max_length=200)


class MetricsSample(_LoadLine):
    """A sample of the server's own figures."""

    second: Seconds
    told: str = Field(max_length=1_000_000)


class LoadResult(_LoadLine):
    """All requests of a load."""

    seconds: Seconds
    processor_s: Seconds
    requests: list[LoadAnswer | LoadFailure] = Field(min_length=1, max_length=1_000_000)


def percentile(values: Sequence[float], percent: float) -> float:
    """Between the two nearest of the values in proportion, as numpy and so `vllm bench serve` have it; 0 of none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _maximum(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


@dataclass(frozen=True)
class LadderStep:
    """One load: so many streams for a time, each with a request under way at all times."""

    streams: int
    seconds: float
    """From the first request to the last answer, which may come after that time."""
    requests: tuple[RequestTimes, ...]
    """Those that were answered."""
    errors: Mapping[str, int]
    """The other results -> their number."""
    client: float
    """Of one processor, what the client took itself."""
    refused: int = 0
    """Requests that a gateway has sent away, its queue being full."""
    running: float | None = None
    """Requests that the engine was working at, at most; None where it does not say."""
    waiting: float | None = None
    kv: float | None = None
    """Of its KV cache, at most, 0 to 1."""
    preemptions: float | None = None
    """Requests that it put back to make room for others."""
    foreign: int | None = None
    """Tokens of other clients' requests meanwhile; None if the engine does not tell, or if requests have failed: their
    tokens belong to no client.
    """
    probed: int = 0
    """Requests at a time that may be probes of gateways."""

    @classmethod
    def from_load(
        cls,
        streams: int,
        loaded: LoadResult,
        samples: Sequence[EngineMetrics],
        probes: ProbeAllowance | None = None,
    ) -> LadderStep:
        """The result of a load.

        Args:
            streams: That it had.
            loaded: The client's lines about it.
            samples: The engine's own figures meanwhile, the first as the load began, the last when it was over; none
                where it has none.
            probes: Tokens that may be of the gateway's probes; None without a gateway.
        """
        answers = [one for one in loaded.requests if isinstance(one, LoadAnswer)]
        said = [one.error for one in loaded.requests if isinstance(one, LoadFailure)]
        failed = Counter(printable(words)[:WORDS] for words in said if REFUSED not in words)
        told = dict(failed.most_common(KINDS))
        if others := failed.total() - sum(told.values()):
            told["others"] = others
        first, last = (samples[0], samples[-1]) if samples else (EngineMetrics(), EngineMetrics())
        put_back = None if last.preemptions is None else last.preemptions - (first.preemptions or 0)
        mine = sum(one.prompt_tokens or 0 for one in answers), sum(one.tokens for one in answers)
        foreign = None if said else last.foreign_tokens(first, *mine)
        # one that ends an answer is counted by some engines
        slack = max(sum(mine) * SLACK, len(answers) * ENDS)
        if probes and foreign is not None and foreign > slack:
            foreign = probes.deduct(foreign)
        return cls(
            streams=streams,
            seconds=loaded.seconds,
            requests=tuple(
                RequestTimes(one.first_s, tuple(one.gaps_s), one.total_s, one.tokens, one.prompt_tokens)
                for one in answers
            ),
            errors=told,
            client=loaded.processor_s / loaded.seconds if loaded.seconds else 0.0,
            refused=len(said) - failed.total(),
            running=_maximum(one.running for one in samples),
            waiting=_maximum(one.waiting for one in samples),
            kv=_maximum(one.kv_used for one in samples),
            preemptions=put_back,
            foreign=None if foreign is None else foreign if foreign > slack else 0,
            probed=probes.gateways if probes is not None and foreign is not None else 0,
        )

    @property
    def failure_count(self) -> int:
        """How many requests were not answered."""
        return sum(self.errors.values())

    @property
    def output_tokens(self) -> int:
        """Of all answers."""
        return sum(one.tokens for one in self.requests)

    @property
    def request_throughput(self) -> float:
        """Answers a second."""
        return len(self.requests) / self.seconds if self.seconds else 0.0

    def nominal_throughput(self, planned_s: float) -> float:
        """Answers by the seconds that new requests were made for, those included that came after them.

        Load scripts of public write-ups divide so. The more an answer takes, the more of them come after that time.
        """
        return len(self.requests) / planned_s if planned_s else 0.0

    @property
    def is_contaminated(self) -> bool:
        """Whether others asked meanwhile."""
        return bool(self.foreign) or (self.running or 0) > self.streams + self.probed

    def times(self, what: str) -> list[float]:
        """All of a kind, in seconds: to the first token, for each further one (of a request), between two that came
        one after the other, and to the end.
        """
        if what == "itl":
            return [gap for one in self.requests for gap in one.gaps_s]
        if what == "tpot":
            return [(one.total_s - one.first_s) / (one.tokens - 1) for one in self.requests if one.tokens > 1]
        return [one.first_s if what == "ttft" else one.total_s for one in self.requests]

    def figures(self) -> dict[str, float | None]:
        """All of it, times in milliseconds."""
        found: dict[str, float | None] = {
            "max_concurrency": self.streams,
            "duration": self.seconds,
            "completed": len(self.requests),
            "failed": self.failure_count,
            "refused": self.refused,
            "total_output_tokens": self.output_tokens,
            "request_throughput": self.request_throughput,
            "output_throughput": self.output_tokens / self.seconds if self.seconds else 0.0,
        }
        for what in TIMES:
            times = self.times(what)
            found[f"mean_{what}_ms"] = 1000 * fmean(times) if times else 0.0
            found[f"median_{what}_ms"] = 1000 * percentile(times, 50)
            for percent in PERCENTILES:
                found[f"p{percent}_{what}_ms"] = 1000 * percentile(times, percent)
        state = {name: getattr(self, name) for name in ("running", "waiting", "kv", "preemptions", "client")}
        return found | state | {"foreign_tokens": self.foreign}


@dataclass(frozen=True)
class SaturationPoint:
    """Where more streams bring no more."""

    streams: int | None
    """The fewest that bring all there is; None where the last step still brought more."""
    limit: str
    """`max-num-seqs`, `KV cache`, `compute`, `errors`, `client` or `unknown`; empty where there is none yet."""
    said: str
    """It in words."""


def find_saturation(rungs: Sequence[LadderStep], capacity: int | None) -> SaturationPoint:
    """Judge a ladder.

    Args:
        rungs: Of one instance, from few streams to many.
        capacity: Requests that it serves at once, as its variant says (max-num-seqs, slots); None for no such bound.
    """
    good = [rung for rung in rungs if rung.requests]
    if not good:
        return SaturationPoint(None, "errors", "no request was answered")
    best = max(rung.request_throughput for rung in good)
    first = next(rung for rung in good if rung.request_throughput >= best * (1 - GAIN))
    last = good[-1]
    if first is last:
        return SaturationPoint(None, "", f"not saturated with {last.streams} streams: more may bring more")
    limit, why = _describe_limit([rung for rung in good if rung.streams >= first.streams], capacity)
    return SaturationPoint(first.streams, limit, f"{_describe_streams(first.streams)} {best:.1f} requests/s; {why}")


def _describe_streams(number: int) -> str:
    return "1 stream brings" if number == 1 else f"{number} streams bring"


def _describe_limit(rungs: Sequence[LadderStep], capacity: int | None) -> tuple[str, str]:
    """The limit of all of these, in a word and in words."""

    kv, running = _maximum(rung.kv for rung in rungs), _maximum(rung.running for rung in rungs)
    waiting, put_back = _maximum(rung.waiting for rung in rungs), _maximum(rung.preemptions for rung in rungs)
    if (kv or 0) >= FULL or (put_back or 0) > 0:
        again = f", and {put_back:.0f} requests were put back" if put_back else ""
        return "KV cache", f"the KV cache is the limit: {100 * (kv or 0):.0f} % of it is used{again}"
    if max(rung.client for rung in rungs) >= BUSY:
        return "client", "the client that asks took a whole processor: it may be the limit itself"
    if capacity is not None and rungs[-1].streams > capacity and (running is None or running >= capacity):
        used = "" if kv is None else f", and {100 * kv:.0f} % of the KV cache is used"
        return "max-num-seqs", f"{capacity} requests at once is the limit (max-num-seqs, slots){used}"
    if running is None:
        return "unknown", "what holds it back cannot be told: the engine tells nothing of itself"
    if waiting:
        return "unknown", f"{waiting:.0f} requests wait, and neither slots nor the KV cache are full"
    return "compute", f"what computes is the limit: {running:.0f} requests run, and none waits"


def describe_queues(rungs: Sequence[LadderStep], capacity: int | None) -> list[str]:
    """A note for each step with more streams than the instance serves at once."""
    return [
        f"{rung.streams} streams on {capacity} slots: "
        + (f"up to {rung.waiting:.0f} requests wait" if rung.waiting else f"{rung.streams - capacity} wait")
        + ", and that is in TTFT"
        for rung in rungs
        if capacity is not None and rung.streams > capacity
    ]


def render_csv(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows with the same keys, under a line of those."""
    out = io.StringIO()
    if rows:
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: "" if value is None else value for name, value in row.items()} for row in rows)
    return out.getvalue()
