"""Hosts of a run by their state, in one line."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from rigwright.host_selection import format_counts


class CountedRow(Protocol):
    """One host of a run."""

    state: str
    step: str


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
    counts = format_counts(counted)
    return f"{step}: {counts}" if step else counts
