"""How many published advisories are open on a rig, by data on this machine alone: a figure of reports, no check."""

from __future__ import annotations

from rigwright.advisories.assessment import STATES
from rigwright.advisories.audit import UnreadableData, audit
from rigwright.model.rig import Rig
from rigwright.problems import Invalid


def count_advisories(rig: Rig) -> dict[str, int]:
    """State -> advisories, by the shipped data and those of the rig's bundle; empty where these cannot be read.

    An open advisory is no drift: the host is what its rig declares, so no check fails for it.
    """
    try:
        (found,) = audit({rig.name: rig})
    except (Invalid, UnreadableData):
        return {}
    return {state: found.count(state) for state in STATES}
