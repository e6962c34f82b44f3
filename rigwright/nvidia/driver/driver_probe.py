"""The probe's facts of the driver; the choice of a driver reads more of them by itself."""

from __future__ import annotations

from rigwright.host.channel import yes_or_no
from rigwright.model.fact_source import FactSource

DRIVER_FACTS = FactSource(
    "nvidia_driver",
    "nvidia_driver/probe.sh.j2",
    schema={"driver_ours": (yes_or_no,)},
    read=lambda output: {"driver_ours": output.one("driver_ours")},
)
