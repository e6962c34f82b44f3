"""Counts of engines, in Prometheus' text format, under the names that each kind has for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

MOST = 20_000  # lines that are read of an answer: a taken-over engine may send any
LARGEST = 1e15  # beyond which a figure is refused: sums of those stay bounded
# https://prometheus.io/docs/instrumenting/exposition_formats/ , without time stamps, which engines do not send
LINE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]{0,127})(?:\{(.{0,2000})\})? ([0-9eE+.-]{1,32}|[+-]?Inf|NaN)")


@dataclass(frozen=True)
class MetricNames:
    """The names of a kind's counts; empty for missing ones. Several are added up."""

    progress: tuple[str, ...] = ()
    """Counters of which one grows with every step that is computed."""
    running: str = ""
    waiting: str = ""
    kv_used: str = ""
    """Of the KV cache, 0 to 1."""
    prompt_tokens: tuple[str, ...] = ()
    """Tokens of prompts, those of a cache included."""
    tokens: str = ""
    """Tokens that were made."""
    prefix_hits: str = ""
    prefix_queries: str = ""
    preemptions: str = ""
    drafts: str = ""
    """Steps in which something was guessed ahead."""
    draft_tokens: str = ""
    accepted: str = ""
    """Tokens that were guessed right."""

    @property
    def all(self) -> frozenset[str]:
        """Every one of them."""
        load = (self.running, self.waiting, self.kv_used, self.preemptions)
        made = (self.tokens, self.prefix_hits, self.prefix_queries, self.drafts, self.draft_tokens, self.accepted)
        return frozenset(filter(None, (*self.progress, *self.prompt_tokens, *load, *made)))


@dataclass(frozen=True)
class EngineMetrics:
    """The counts of an engine since it began; None for missing ones."""

    progress: float | None = None
    """Grows with every step; how much means nothing."""
    running: float | None = None
    """Requests that are worked on."""
    waiting: float | None = None
    kv_used: float | None = None
    """Of the KV cache, 0 to 1."""
    prompt_tokens: float | None = None
    tokens: float | None = None
    prefix_hits: float | None = None
    """Tokens of prompts that a cache had, of `prefix_queries`."""
    prefix_queries: float | None = None
    preemptions: float | None = None
    drafts: float | None = None
    draft_tokens: float | None = None
    accepted: float | None = None

    @property
    def is_busy(self) -> bool:
        """Whether it has requests."""
        return bool(self.running or self.waiting)

    def accept_length(self, since: EngineMetrics | None = None) -> float | None:
        """Tokens a step where some are guessed ahead: 1 is what comes without; None where none were."""
        then = since or EngineMetrics()
        drafts, accepted = _counter_growth(self.drafts, then.drafts), _counter_growth(self.accepted, then.accepted)
        return None if not drafts or accepted is None else 1 + accepted / drafts

    def hit_rate(self, since: EngineMetrics | None = None) -> float | None:
        """Of prompts' tokens, those that the prefix cache had, 0 to 1."""
        then = since or EngineMetrics()
        queries = _counter_growth(self.prefix_queries, then.prefix_queries)
        hits = _counter_growth(self.prefix_hits, then.prefix_hits)
        return None if not queries or hits is None else hits / queries

    def foreign_tokens(self, since: EngineMetrics, prompt_tokens: int, tokens: int) -> int | None:
        """Tokens of requests that were not ours, since an earlier look; None where the engine does not count them.

        Args:
            since: That look.
            prompt_tokens: Those of our prompts.
            tokens: Those that were made for us.
        """
        read, made = (
            _counter_growth(self.prompt_tokens, since.prompt_tokens),
            _counter_growth(self.tokens, since.tokens),
        )
        if read is None or made is None:
            return None
        return max(0, round(read) - prompt_tokens) + max(0, round(made) - tokens)


def _counter_growth(now: float | None, then: float | None) -> float | None:
    """By how much a counter has grown; of one that began anew, all of it."""
    if now is None:
        return None
    return now - then if then is not None and now >= then else now


@dataclass(frozen=True)
class MetricSamples:
    """All samples of an answer: name -> its values, one for each of its labels."""

    values: Mapping[str, list[float]] = field(default_factory=dict)

    def total_of(self, *names: str) -> float | None:
        """The sum of names that are there; None where none is."""
        found = [value for name in names for value in self.values.get(name, ())]
        return sum(found) if found else None

    def largest_of(self, name: str) -> float | None:
        """The largest value of a name; None for none."""
        return max(self.values.get(name, ()), default=None)


def parse_samples(text: str) -> MetricSamples:
    """The samples in an answer; all else in it is left out."""
    found: dict[str, list[float]] = {}
    for line in text.split("\n", MOST)[:MOST]:
        if (sample := LINE.fullmatch(line.strip())) is None:
            continue
        try:
            value = float(sample[3])
        except ValueError:
            continue
        if abs(value) <= LARGEST:  # and so no NaN
            found.setdefault(sample[1], []).append(value)
    return MetricSamples(found)


def parse_metrics(text: str, names: MetricNames) -> EngineMetrics:
    """The figures at an engine's metrics' path."""
    found = parse_samples(text)
    return EngineMetrics(
        progress=found.total_of(*names.progress),
        running=found.total_of(names.running),
        waiting=found.total_of(names.waiting),
        kv_used=found.largest_of(names.kv_used),
        prompt_tokens=found.total_of(*names.prompt_tokens),
        tokens=found.total_of(names.tokens),
        prefix_hits=found.total_of(names.prefix_hits),
        prefix_queries=found.total_of(names.prefix_queries),
        preemptions=found.total_of(names.preemptions),
        drafts=found.total_of(names.drafts),
        draft_tokens=found.total_of(names.draft_tokens),
        accepted=found.total_of(names.accepted),
    )
