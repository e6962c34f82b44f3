"""Which hosts of an inventory a `--limit` names."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rigwright.problems import describe_unknown


def find_name_clashes(hosts: Collection[str], groups: Mapping[str, Collection[str]]) -> list[str]:
    """The problems of groups that have the name of a host: a limit to that host reached all of the group.

    Args:
        hosts: All there are.
        groups: Group -> its hosts; those that the inventory has given a name.
    """
    return [
        f'"{name}" is a host, and a group with other hosts ({", ".join(sorted(others))}): '
        "rename one of them, for --limit could mean both"
        for name, members in groups.items()
        if name in hosts and (others := {*members} - {name})
    ]


def select_hosts(limit: str | None, hosts: Sequence[str], groups: Mapping[str, Collection[str]]) -> list[str]:
    """The hosts that a limit names, in their order.

    Args:
        limit: Names of hosts or groups, or patterns of hosts' names such as `box*`, with commas between; None for all.
        hosts: All there are.
        groups: Group -> its hosts.

    Raises:
        LookupError: one of them names nothing; the text has the nearest name.
    """
    if limit is None:
        return list(hosts)
    wanted: set[str] = set()
    for one in limit.split(","):
        # an inventory's file, too, is a group of all hosts, and often has the name of the first
        named = {one} if one in hosts else set(groups.get(one, fnmatch.filter(hosts, one)))
        if not named:
            # a group of all hosts, such as the file or `rigs`, limits nothing
            parts = {name for name, members in groups.items() if {*members} < {*hosts}}
            raise LookupError(describe_unknown("host or group", one, {*hosts, *parts}))
        wanted |= named
    return [host for host in hosts if host in wanted]


FEW = 8
"""Hosts that a message lists one by one."""
RANGES = 12
"""Ranges of more hosts that a message has."""


def format_hosts(names: Collection[str]) -> str:
    """Hosts of a message: a few one by one, more as ranges of their numbers: `n001 to n300, n302 (301 hosts)`."""
    if len(names) <= FEW:
        return ", ".join(sorted(names))
    ranges: list[list[str]] = []
    following = ""
    for name in sorted(names, key=_split_number):
        if name == following:
            ranges[-1].append(name)
        else:
            ranges.append([name])
        before, digits, number, after = _split_number(name)
        following = f"{before}{number + 1:0{digits}}{after}" if digits else ""
    shown = [f"{one[0]} to {one[-1]}" if one[2:] else ", ".join(one) for one in ranges[:RANGES]]
    more = ["..."] if ranges[RANGES:] else []
    return f"{', '.join([*shown, *more])} ({len(names)} hosts)"


def _split_number(name: str) -> tuple[str, int, int, str]:
    """A name as text, digits and value of its last number, and text."""
    found = re.fullmatch(r"(.*?)([0-9]{1,9})([^0-9]*)", name)
    return (found[1], len(found[2]), int(found[2]), found[3]) if found else (name, 0, 0, "")


def is_many(hosts: Collection[object]) -> bool:
    """Whether a run shows its hosts by their states, and not one by one."""
    return len(hosts) > FEW


def group_lines(lines: Collection[tuple[str, str]]) -> dict[str, list[str]]:
    """Text -> the hosts that it is about, of pairs of a host and its text; the most frequent text comes first."""
    found: dict[str, list[str]] = {}
    for host, text in lines:
        found.setdefault(text, []).append(host)
    return dict(sorted(found.items(), key=lambda pair: -len(pair[1])))


def format_counts(counts: Mapping[str, int]) -> str:
    """Hosts by their state, without states that none has: `612 done, 3 failed`."""
    return ", ".join(f"{number} {state}" for state, number in counts.items() if number)


@dataclass
class CountedLine:
    """When the line of a run over many hosts was written last."""

    written: float = 0.0

    def is_due(self, now: float, interval: float) -> bool:
        """Whether a further line may be written."""
        return now - self.written >= interval
