"""One line of a bench's table."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median


@dataclass
class Row:
    """One thing that was timed, and what it is compared with."""

    what: str
    against: str
    goal: str
    ours: list[float] = field(default_factory=list)
    """Seconds."""
    theirs: list[float] = field(default_factory=list)
    """Seconds."""

    @property
    def ratio(self) -> float | None:
        """Ours in terms of theirs; None where there is nothing to compare with."""
        return median(self.ours) / median(self.theirs) if self.theirs else None
