"""What holds apt to a driver's branch, or to the driver that is locked."""

from __future__ import annotations

from rigwright.model.nvidia.driver_supply import DriverSupply
from rigwright.nvidia.driver.driver_facts import DriverFacts
from rigwright.nvidia.packages.locked_driver import find_locked_driver
from rigwright.types import Archive

# Below the 1000 that would let apt downgrade, above what any other archive's packages have (apt_preferences(5))
PRIORITY = 990
# Of NVIDIA's archive beside the distribution's: its toolkits can be installed, and it replaces nothing (ibid.)
SECONDARY_PRIORITY = 100


def render_pins(driver_supply: DriverSupply, facts: DriverFacts, source: Archive, branch: int) -> str:
    """Text for apt's preferences; of several records for a package the first that fits counts."""
    exact = find_locked_driver(driver_supply, facts.system)
    # a driver stays until an upgrade: while another branch is locked, apt must not offer what does not fit beside it
    if exact and (exact.branch, exact.source) != (branch, source):
        exact = None
    of = " ".join(one.format(branch=branch) for one in driver_supply.tables.pins[source])
    records = [(of, f"version {exact.version}*" if exact else f"version {branch}.*", PRIORITY)]
    if source == "distribution":
        records = [
            (of, "release o=NVIDIA", SECONDARY_PRIORITY),
            *records,
            ("*", "release o=NVIDIA", SECONDARY_PRIORITY),
        ]
    return "\n".join(f"Package: {name}\nPin: {which}\nPin-Priority: {rank}\n" for name, which, rank in records)
