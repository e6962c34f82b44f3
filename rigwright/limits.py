"""Which hosts of an inventory a `--limit` names."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping, Sequence

from rigwright.problems import unknown


def limited(limit: str | None, hosts: Sequence[str], groups: Mapping[str, Collection[str]]) -> list[str]:
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
        named = set(groups.get(one, fnmatch.filter(hosts, one)))
        if not named:
            raise LookupError(unknown("host or group", one, {*hosts, *groups}))
        wanted |= named
    return [host for host in hosts if host in wanted]
