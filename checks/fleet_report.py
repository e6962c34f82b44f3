"""Reports of checks of many hosts: each failure once with all of its hosts, and hosts by their verdict."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass, field

import pytest

from checks import strip_control_characters
from checks.pytest_frame import ChecksPlugin
from checks.report import ChecksReporter
from checks.results import FailureCause, Result
from rigwright.host_selection import CountedLine, format_counts, format_hosts, group_lines
from roles.connection_failures import strip_address

INTERVAL = 10.0  # seconds between two lines of counts
HOST = "HOST"
"""Stands for the name of each host in a command for several."""


@dataclass
class FailureGroup:
    """A cause, a failure or changes that hosts have in common."""

    first: Result | FailureCause
    """As its first host has it."""
    hosts: list[str] = field(default_factory=list)


class FleetReporter(ChecksReporter):  # type: ignore[misc] # as that
    """Groups failures of hosts by their cause, and hosts by their verdict."""

    def __init__(self, config: pytest.Config, frame: ChecksPlugin) -> None:
        super().__init__(config, frame)
        self.groups: dict[Hashable, FailureGroup] = {}
        self.counted = CountedLine(time.monotonic())

    def print_progress(self, target: str, result: Result) -> None:
        """Print how many hosts are judged, at times; with -v a line a check."""
        super().print_progress(target, result)
        if self.counted.is_due(now := time.monotonic(), INTERVAL):
            self.counted.written = now
            print(self.describe_counts(), file=sys.__stderr__, flush=True)

    def describe_counts(self) -> str:
        """The hosts by their state: `612 done, 385 waiting, 3 failed`."""
        failed = sum(counted["fail"] > 0 for counted in self.tally.values())
        waiting = len(self.frame.look.hosts) - len(self.tally)
        counts = {"done": len(self.tally) - failed, "waiting": waiting, "failed": failed}
        return format_counts(counts)

    def print_decided(self, target: str) -> None:
        """Nothing before the end: hosts with the same failure share its lines."""

    def print_failures(self, target: str, results: list[Result]) -> None:
        """Keep what does not hold on a host, until all of them are judged."""
        failures = [one for one in results if one.verdict == "fail"]
        causes = self.frame.find_causes(target) if failures else []
        explained = {label for cause in causes for label in cause.results}
        for cause in causes:
            self._add((cause.id, cause.headline), cause, target)
        for result in results:
            if result.label not in explained:
                changes = tuple(one.describe() for one in result.changes)
                key = (*(result.id, result.part, result.name, result.expected, result.found), changes, result.waivers)
                self._add(key, result, target)

    def _add(self, key: Hashable, first: Result | FailureCause, target: str) -> None:
        self.groups.setdefault(key, FailureGroup(first)).hosts.append(target)

    def print_groups(self) -> None:
        """Print each failure as that of its first host, and the other hosts after it."""
        for group in sorted(self.groups.values(), key=lambda one: -len(one.hosts)):
            first, *others = group.hosts
            if isinstance(group.first, FailureCause):
                self.print_cause(first, group.first)
            elif group.first.verdict == "fail":
                self.print_failure(first, group.first)
            elif group.first.verdict == "waived":
                self.print_waived(first, group.first)
            else:
                self.print_changes(first, group.first)
            if others:
                self._print_rows("        ", {"also on": format_hosts(others)})

    def short_test_summary(self) -> None:
        """The failures, and the hosts by their verdict."""
        self.print_groups()
        look = self.frame.look
        gone = [(name, strip_address(look.hosts[name].why)) for name in sorted(self.frame.gone)]
        for why, hosts in group_lines(gone).items():
            self.print_unreached(format_hosts(hosts), why)
        verdicts: dict[tuple[str, str], list[str]] = defaultdict(list)
        for target in self.tally:
            verdicts[self.describe_verdict(target)].append(target)
        for (verdict, counts), hosts in verdicts.items():
            self.print_host_verdict(format_hosts(hosts), verdict, counts)
        more = [
            (target, line.replace(f"--limit {target} ", f"--limit {HOST} "))
            for target in self.tally
            for line in self.describe_more(target)
        ]
        unleft = self.frame.unleft.items()
        more += [(name, f"monitoring did not get this result: {strip_control_characters(why)}") for name, why in unleft]
        for line, hosts in group_lines(more).items():
            self.print_more(format_hosts(hosts), line)
