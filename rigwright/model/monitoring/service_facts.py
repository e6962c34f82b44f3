"""The state of monitoring on a host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ServiceFacts:
    """A unit of these whose file is on a host (templates/monitoring/state.sh.j2)."""

    active: str = "inactive"
    enabled: str = "not-found"
    started_from: str = ""
    """SHA-256 of what the process was started from; empty where that is not known."""
    replaced: bool = False
    """Whether its program on disk is another one than the one that runs."""
    reload_needed: bool = False

    def is_running(self, wanted: str) -> bool:
        """Whether the process was started from this, and from this program."""
        return self.active == "active" and self.started_from == wanted and not self.replaced

    def is_settled(self, wanted: str) -> bool:
        """Whether nothing is left to do, now and for the next boot."""
        return self.is_running(wanted) and self.enabled == "enabled" and not self.reload_needed


@dataclass(frozen=True)
class MonitoringFacts:
    """What of all this is on a host."""

    units: Mapping[str, ServiceFacts]
    """Service -> its unit, of those that are there."""
    secrets: frozenset[str] = frozenset()
    """Paths of tokens and addresses of receivers."""

    @property
    def is_present(self) -> bool:
        """Whether there is anything of it."""
        return bool(self.secrets or self.units)


NO_MONITORING = MonitoringFacts({})
