"""What units of ours are to be, and to hold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Slot:
    """What a unit's process is to be, and to hold."""

    unit: str
    started_from: str
    """SHA-256 of the files that it is started from, as a script of its generation writes it down."""
    port: int
    """That it listens on; 0 for none."""
    cards: frozenset[int]
    holder: str = ""
    """The socket unit that listens there in its stead; empty without one."""
    leads_to: str = ""
    """The unit of the instance that its port leads to; empty for an instance itself."""
