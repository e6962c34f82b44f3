"""What the ledger, the list of what is ours on a host, says of packages."""

from __future__ import annotations

from collections.abc import Iterable

from rigwright.host import channel
from rigwright.host.channel import matching, tolerant

SCHEMA: channel.Schema = {"package": (tolerant(matching(r"[a-z0-9][a-z0-9+.:-]{0,200}", "a package's name")),)}
"""What templates/look/ledger.sh.j2 tells."""


def parse_ledger_packages(output: Iterable[str]) -> tuple[str, ...]:
    """Those that a host has because of us, by name.

    Raises:
        ValueError: it told something else.
    """
    return tuple(filter(None, channel.parse_output(output, SCHEMA).all("package")))
