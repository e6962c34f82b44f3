"""Hosts of a run by their state, in one line."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol


class CountedRow(Protocol):
    """One host of a run."""

    state: str
    step: str


@dataclass
class CountedLine:
    """When the line of a run over many hosts was written last."""

    written: float = 0.0

    def is_due(self, now: float, interval: float) -> bool:
        """Whether a further line may be written."""
        return now - self.written >= interval


def describe_states(rows: Collection[CountedRow]) -> str:
    """The hosts of a run by their state in its latest step: `Engines: Install x: 612 done, 30 running, 3 failed`."""
    running = [row.step for row in rows if row.state == "working"]
    # all hosts take a step before the next one begins
    done = [row.step for row in rows if row.state == "waiting" and row.step]
    step = next(iter([*running, *reversed(done)]), "")
    counted = {
        "done": sum(one == step for one in done),
        "running": len(running),
        "failed": sum(row.state == "failed" for row in rows),
    }
    counted["waiting"] = len(rows) - sum(counted.values())
    counts = ", ".join(f"{number} {state}" for state, number in counted.items() if number)
    return f"{step}: {counts}" if step else counts
