"""What is found out about a host, and what it comes to: evidence and causes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rigwright.operate.instance_health import CardUse, InstanceHealth

Severity = Literal["critical", "high", "medium", "low"]
LENGTH = 200  # characters of evidence


@dataclass(frozen=True)
class Diagnosis:
    """One likely cause."""

    id: str
    """Of the symptom, the same on every box."""
    where: str
    """The instance, or the card; empty for the host."""
    means: str
    evidence: str
    """What was seen, a line of a log among it."""
    cure: str
    """The command, or what to do."""
    weight: int
    """The larger, the likelier that this is it; causes come in that order."""
    times: int = 1


@dataclass(frozen=True)
class FailedCheck:
    """A check that does not hold."""

    id: str
    title: str
    part: str
    severity: Severity
    expected: str
    found: str
    cure: str


@dataclass(frozen=True)
class HostEvidence:
    """All that was found out about a host."""

    inventory: str
    """As a command names it; empty where a file is read in place of a host."""
    host: str
    driver: str = ""
    """Its version; empty where nobody says."""
    logs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Instance -> lines of its journal, the last one last."""
    kernel: Sequence[str] = ()
    healths: Sequence[InstanceHealth] = ()
    red: Sequence[FailedCheck] = ()
    cards: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Instance -> indexes of its cards."""
    uses: Sequence[CardUse] = ()
    """What cards have in use."""
    cards_say: str = ""
    """What is wrong with cards, as nvidia-smi says it."""
    reboot: bool = False
    """Whether one is pending."""


def shorten_line(line: str) -> str:
    """A line as evidence has it."""
    return " ".join(line.split())[:LENGTH]


def excerpt_line(line: str, start: int) -> str:
    """A line as evidence has it, cut at its beginning if what matters begins late in it."""
    return shorten_line(line) if start < LENGTH // 2 else f"... {shorten_line(line[start - LENGTH // 4 :])}"[:LENGTH]
