"""Changes of several hosts, of which equal ones are reviewed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from checks.change_review.fingerprint_diff import HostChange


@dataclass(frozen=True)
class ChangeGroup:
    """A change, and all hosts that have it."""

    change: HostChange
    """As the first host has it."""
    hosts: tuple[str, ...]


def group_changes(changes: Mapping[str, Sequence[HostChange]]) -> list[ChangeGroup]:
    """Group equal changes, by class and key: of one run, equal entries have equal values on all hosts.

    Args:
        changes: Host -> its changes.
    """
    hosts: dict[tuple[str, ...], list[str]] = {}
    first: dict[tuple[str, ...], HostChange] = {}
    for host, listed in sorted(changes.items()):
        for one in listed:
            same = (one.entry_class, one.key, one.change, one.run_value or one.now)
            first.setdefault(same, one)
            hosts.setdefault(same, []).append(host)
    return [ChangeGroup(first[same], tuple(hosts[same])) for same in sorted(first)]
