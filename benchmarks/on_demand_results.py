"""Figures of models on demand: pairs of a wake and a bare start, and clients that ask for models at random."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from statistics import median

from benchmarks.on_demand_load import RandomRequest

GOAL = 1.2
BOUND_EXTRA_S = 10.0
LOAD_HEAD = (
    *("server", "models", "at a time", "seconds", "kills", "requests", "lost", "refused"),
    *("by client", "loads", "P50 s", "P95 s", "longest s", "bound s", "tokens"),
)
MODEL_HEAD = ("server", "model", "requests", "loads", "wait P50 s", "P95 s", "longest s")


@dataclass(frozen=True)
class WakePair:
    """A wake and a bare start, one after the other."""

    wake_s: float
    bare_s: float

    @property
    def ratio(self) -> float:
        """The seconds of the wake divided by those of the bare start."""
        return self.wake_s / self.bare_s


def percentile(ordered: list[float], share: float) -> float:
    """The value below which a share of the values is; 0 without values."""
    return ordered[int(share * (len(ordered) - 1))] if ordered else 0.0


@dataclass(frozen=True)
class LoadRow:
    """The requests of a load, with their results."""

    server: str
    models: int
    at_a_time: int
    """Models that the memory holds at the same time."""
    seconds: float
    residence: int
    requests: list[RandomRequest]
    loads: dict[str, int] = field(default_factory=dict)
    """Model -> number of its loads during the run."""
    load_s: float = 0.0
    """Seconds of the longest one among the last loads of all models."""
    kills: int = 0
    """Kills, restarts and reloads of parts of the server."""

    def waits(self, model: str = "") -> list[float]:
        """Seconds to the first token of streams, and to other answers; in order of size."""
        rows = (one for one in self.requests if not one.problem and model in ("", one.model))
        return sorted(one.first_s for one in rows)

    @property
    def bound_s(self) -> float:
        """The longest wait that the order of the queue explains: all other models have their turn before.

        A turn is a load, the residence, and the last answers of the model that leaves.
        """
        streams = [one.total_s - one.first_s for one in self.requests if one.stream and not one.problem]
        turns = self.models - self.at_a_time + 1
        return turns * (self.load_s + self.residence + 2 * max(streams, default=0.0)) + BOUND_EXTRA_S

    def table_row(self) -> tuple[str, ...]:
        """The figures of all models."""
        waits = self.waits()
        by_client = Counter(one.client for one in self.requests).values() or [0]
        return (
            *(self.server, str(self.models), str(self.at_a_time), f"{self.seconds:.0f}", str(self.kills)),
            str(len(self.requests)),
            str(sum(one.is_lost for one in self.requests)),
            str(sum(one.is_refusal for one in self.requests)),
            f"{min(by_client)} to {max(by_client)}",
            str(sum(self.loads.values())),
            *(f"{percentile(waits, 0.5):.1f}", f"{percentile(waits, 0.95):.1f}", f"{percentile(waits, 1.0):.1f}"),
            f"{self.bound_s:.0f}" if self.load_s else "",
            str(sum(one.tokens for one in self.requests)),
        )

    def model_rows(self) -> list[tuple[str, ...]]:
        """The figures of each model."""
        rows = []
        for model in sorted({one.model for one in self.requests}):
            waits = self.waits(model)
            figures = (f"{percentile(waits, share):.1f}" for share in (0.5, 0.95, 1.0))
            count = sum(one.model == model for one in self.requests)
            rows.append((self.server, model, str(count), str(self.loads.get(model, "")), *figures))
        return rows

    def problems(self) -> list[str]:
        """Each kind of lost or refused request, with the number of requests."""
        found = Counter(one.problem for one in self.requests if one.problem)
        return [f"{self.server}, {self.models} models: {count} × {text}" for text, count in found.most_common()]


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
        if not self.wakes:
            return "no wake was timed"
        ratio = median(one.ratio for one in self.wakes)
        seconds = (median(one.wake_s for one in self.wakes), median(one.bare_s for one in self.wakes))
        word = "reached" if ratio <= GOAL else "missed"
        return (
            f"wake {seconds[0]:.2f} s, bare start {seconds[1]:.2f} s, median ratio {ratio:.2f} of {len(self.wakes)} "
            f"pairs ({min(one.ratio for one in self.wakes):.2f} to {max(one.ratio for one in self.wakes):.2f}); "
            f"goal {GOAL}: {word}"
        )

    def as_json(self) -> str:
        """The report as JSON, with the computed figures."""
        value = asdict(self)
        for row, one in zip(value["loads"], self.loads, strict=True):
            row["bound_s"] = one.bound_s
        return json.dumps(value, indent=1)
