"""Hosts of a run by their state, in one line."""

from __future__ import annotations

from collections import Counter
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
    """The hosts of a run by their state: `612 done, 30 running (28 in Engines: Install x), 3 failed, 2 waiting`."""
    # between two of its steps a host runs, too
    running = [row.step for row in rows if row.state == "working" or (row.state == "waiting" and row.step)]
    step, number = next(iter(Counter(running).most_common(1)), ("", 0))
    counted = {
        "done": sum(row.state == "done" for row in rows),
        f"running ({number} in {step})": len(running),
        "failed": sum(row.state == "failed" for row in rows),
    }
    counted["waiting"] = len(rows) - sum(counted.values())
    return ", ".join(f"{number} {state}" for state, number in counted.items() if number)
