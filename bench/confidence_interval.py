"""How sure a ratio is: the interval in which it lies by what was measured, and whether that is enough to judge it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

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
        """What is known of a ratio that has to be at least `goal`."""
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
    """The interval of a ratio; None of a single group, of which nobody knows how far another would be off.

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
