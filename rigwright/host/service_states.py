"""Units of systemd's and their processes: one type for plans, roles and checks.

Two collectors fill it: `templates/probe/units.sh.j2`, which needs no Python on the host, and
`checks/survey/host/frontend_services.py`, which asks systemd over its own socket. The real process of a unit (its
program, words and digests) has a reader of its own (`checks/survey/host/processes.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from rigwright.host.script_output import HostOutput, Schema, optional, sha256, tolerant, unit, word, yes_or_no


@dataclass(frozen=True)
class ServiceState:
    """A unit, in systemd's words."""

    active: str = "inactive"
    enabled: str = "not-found"
    """By what lies on the disk."""
    started_from: str = ""
    """SHA-256 of what the process was started from, as root wrote it down then; empty where that is not known."""
    replaced: bool = False
    """Whether its program on disk is another one than the one that runs."""
    reload_needed: bool = False
    """Whether systemd has yet to read its files."""

    def is_running(self, wanted: str) -> bool:
        """Whether the process was started from this, and from the program that is on disk."""
        return self.active == "active" and self.started_from == wanted and not self.replaced

    def is_settled(self, wanted: str) -> bool:
        """Whether nothing is left to do, now and for the next boot."""
        return self.is_running(wanted) and self.enabled == "enabled" and not self.reload_needed


NO_SERVICE = ServiceState()
"""A unit that is not there."""
UNIT_SCHEMA: Schema = {
    "unit": (
        unit,
        optional(word, NO_SERVICE.active),
        optional(word, NO_SERVICE.enabled),
        tolerant(sha256),
        yes_or_no,
        optional(yes_or_no, False),
    )
}
"""The output of templates/probe/units.sh.j2: the name, and fields of ServiceState in their order."""


def read_service_states(told: HostOutput) -> Mapping[str, ServiceState]:
    """Unit -> its state, of those that a host reports."""
    return MappingProxyType({name: ServiceState(*row) for name, *row in told.many("unit")})
