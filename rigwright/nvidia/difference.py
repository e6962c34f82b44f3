"""What checks find: one thing that is not as it has to be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """Something that is not what it has to be."""

    expected: str
    found: str
    next_step: str
