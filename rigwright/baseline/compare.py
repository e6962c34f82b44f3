"""What is slower: more than a share below what was accepted, and more than that differs from start to start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from rigwright.baseline.run import BaselineRun

SLOWER = 0.05
"""Of what was accepted, by which a rate has to be below it; public write-ups see as much between two starts of one
engine on one card.
"""
BOOTS = 2
"""Starts of the engine, of which runs have to be accepted before anything is called slower: how much they differ is not
known from one.
"""
WIDTH = 2.0
"""Standard deviations between starts that are noise."""
RateVerdict = Literal["same", "slower", "faster", "unjudged"]


@dataclass(frozen=True)
class AcceptedLevel:
    """What was accepted of one rate."""

    mean: float
    """Tokens a second, of all starts alike."""
    noise: float | None
    """Tokens a second by which starts differ; None of fewer than BOOTS."""
    boots: int


def compute_level(runs: Sequence[BaselineRun], name: str) -> AcceptedLevel | None:
    """What accepted runs come to; None where none of them has this rate."""
    boots: dict[str, list[float]] = {}
    for run in runs:
        if name in run.rates:
            boots.setdefault(run.boot, []).append(run.rates[name].mean)
    means = [fmean(values) for values in boots.values()]
    if not means:
        return None
    return AcceptedLevel(fmean(means), WIDTH * stdev(means) if len(means) >= BOOTS else None, len(means))


@dataclass(frozen=True)
class RateComparison:
    """One rate of a run beside what was accepted."""

    name: str
    now: float
    """Tokens a second."""
    before: AcceptedLevel
    verdict: RateVerdict

    @property
    def change(self) -> float:
        """In terms of what was accepted: -0.1 is a tenth less."""
        return self.now / self.before.mean - 1 if self.before.mean else 0.0

    @property
    def description(self) -> str:
        """In words."""
        noise = self.before.noise
        known = f"noise \N{PLUS-MINUS SIGN}{noise:.1f}" if noise is not None else "noise unknown: one start"
        return f"{self.name}: {self.now:.1f} tokens/s, {100 * self.change:+.1f} % of {self.before.mean:.1f} ({known})"


def compare_rates(run: BaselineRun, accepted: Sequence[BaselineRun]) -> list[RateComparison]:
    """Each rate of a run that was accepted before, too."""
    found = []
    for name, series in run.rates.items():
        before = compute_level(accepted, name)
        if before is not None:
            found.append(RateComparison(name, series.mean, before, _verdict(series.mean, before)))
    return found


def _verdict(now: float, before: AcceptedLevel) -> RateVerdict:
    if before.noise is None:
        return "unjudged"
    off = now - before.mean
    if abs(off) <= SLOWER * before.mean or abs(off) <= before.noise:
        return "same"
    return "slower" if off < 0 else "faster"
