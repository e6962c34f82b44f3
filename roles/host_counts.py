"""Hosts of a run by their state, in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Protocol

from rigwright.host_selection import format_counts


class CountedRow(Protocol):
    """One host of a run."""

    state: str
    step: str


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
    return format_counts(counted)
