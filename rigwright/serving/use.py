"""What the units of instances take: memory, and since when they are what they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rigwright.host import channel
from rigwright.host.channel import number, said, tolerant, unit


@dataclass(frozen=True)
class Use:
    """Of one unit."""

    since: str
    """As systemd writes a moment; empty for a unit that was never active."""
    memory: int | None
    """Bytes of the whole service; None where it does not run."""


# systemd writes `[not set]` and the like for a unit that does not run
SCHEMA: channel.Schema = {"use": (unit, said, tolerant(number, None))}
"""What templates/look/use.sh.j2 tells."""


def parse(output: Iterable[str]) -> dict[str, Use]:
    """By unit.

    Raises:
        ValueError: the host told something else.
    """
    return {name: Use(since, memory) for name, since, memory in channel.read(output, SCHEMA).many("use")}
