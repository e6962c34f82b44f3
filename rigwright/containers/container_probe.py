"""The probe's facts of containers; the choice of their packages reads more of them by itself."""

from __future__ import annotations

from rigwright.host.channel import yes_or_no
from rigwright.model.fact_source import FactSource

CONTAINER_FACTS = FactSource(
    "containers",
    "containers/probe.sh.j2",
    lambda rig: {"containers": f"{rig.roots.state}/containers"},
    {"containers_ours": (yes_or_no,)},
    lambda output: {"containers_ours": output.one("containers_ours")},
)
