"""What the units of instances take: memory, since when they are what they are, and how long that took."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rigwright.host import channel
from rigwright.host.channel import free_text, number, tolerant, unit


@dataclass(frozen=True)
class UnitUsage:
    """Of one unit."""

    since: str
    """As systemd writes a moment; empty for a unit that was never active."""
    memory: int | None
    """Bytes of the whole service; None where it does not run."""
    start_seconds: float | None = None
    """From the beginning of its last start to its first answer; None where it is not known, or not over."""


MICRO = 1_000_000  # systemd's unit of time in a second
# systemd writes `[not set]` and the like for a unit that does not run
SCHEMA: channel.Schema = {"use": (unit, free_text, tolerant(number, None), tolerant(number, 0), tolerant(number, 0))}
"""What templates/look/use.sh.j2 tells."""


def parse_unit_usage(output: Iterable[str]) -> dict[str, UnitUsage]:
    """By unit.

    Raises:
        ValueError: the host told something else.
    """
    return {
        name: UnitUsage(since, memory, (ready - began) / MICRO if 0 < began < ready else None)
        for name, since, memory, began, ready in channel.parse_output(output, SCHEMA).many("use")
    }
