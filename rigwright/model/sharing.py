"""The state of the unit that shares weights."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SharingFacts:
    """What a host shares now (templates/sharing/state.sh.j2)."""

    there: bool = False
    """Whether the unit's file is."""
    active: str = "inactive"
    enabled: str = "not-found"
    started_from: str = ""
    """SHA-256 of unit and configuration as the process has read them; empty where that is not known."""
    replaced: bool = False
    """Whether nginx on disk is another one than the one that runs."""
    reload_needed: bool = False

    def is_running(self, wanted: str) -> bool:
        """Whether the process was started from these texts and this program."""
        return self.active == "active" and self.started_from == wanted and not self.replaced

    def is_settled(self, wanted: str) -> bool:
        """Whether nothing is left to do, now and for the next boot."""
        return self.is_running(wanted) and self.there and self.enabled == "enabled" and not self.reload_needed


NO_SHARING = SharingFacts()
