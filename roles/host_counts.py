"""Hosts of a run by their state, in one line."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from rigwright.host_selection import FEW


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


def is_many(hosts: Collection[object]) -> bool:
    """Whether a run shows its hosts by their states, and not one by one."""
    return len(hosts) > FEW


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


def group_lines(lines: Collection[tuple[str, str]]) -> dict[str, list[str]]:
    """Text -> the hosts that it is about, of pairs of a host and its text; the most frequent text comes first."""
    found: dict[str, list[str]] = {}
    for host, text in lines:
        found.setdefault(text, []).append(host)
    return dict(sorted(found.items(), key=lambda pair: -len(pair[1])))
