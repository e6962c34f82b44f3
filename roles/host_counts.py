"""Hosts of a run by their state, in one line."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from rigwright.host_selection import format_counts, is_many

T = TypeVar("T")
INTERVAL = 10.0  # seconds between two lines of counts


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


class LookCounts:
    """How many hosts of a verb have answered."""

    def __init__(self, hosts: int) -> None:
        self.hosts, self.begun = hosts, 0
        self.ended: Counter[str] = Counter()

    def run(self, look: Callable[[str], T], name: str) -> T:
        """Look at a connected host."""
        self.begun += 1
        try:
            result = look(name)
        except BaseException:
            self.ended["failed"] += 1
            raise
        self.ended["done"] += 1
        return result

    def describe(self) -> str:
        """The hosts by their state: `612 done, 30 running, 3 failed, 355 waiting`. Those out of reach wait."""
        running = self.begun - self.ended.total()
        done, failed = self.ended["done"], self.ended["failed"]
        counted = {"done": done, "running": running, "failed": failed, "waiting": self.hosts - self.begun}
        return format_counts(counted)


@contextmanager
def show_counts(hosts: Collection[str], interval: float = INTERVAL) -> Iterator[LookCounts]:
    """Write a line of counts to a terminal in intervals while the block looks at many hosts."""
    counts, ended = LookCounts(len(hosts)), threading.Event()

    def write() -> None:
        while not ended.wait(interval):
            sys.stderr.write(f"{counts.describe()}\n")
            sys.stderr.flush()

    if is_many(hosts) and sys.stderr.isatty():
        threading.Thread(target=write, daemon=True).start()
    try:
        yield counts
    finally:
        ended.set()
