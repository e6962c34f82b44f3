"""What a host's cards are set to, beside what they are to be, and the record of both."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from rigwright.declaration.rig import POWER_UNIT, Rig
from rigwright.nvidia.cards import topology
from rigwright.nvidia.cards.smi import bus_address
from rigwright.nvidia.cards.topology import Topology
from rigwright.nvidia.driver.choice import DriverPlan
from rigwright.nvidia.driver.files import APPLIED, DEVICES, TIMEOUT, limits, record_path, script_path
from rigwright.nvidia.driver.found import DriverFacts

PERSISTENCE_UNIT = "nvidia-persistenced.service"
# W. A card rounds what it is told
TOLERANCE = 1.0


@dataclass(frozen=True)
class Live:
    """A host with its driver running."""

    units: dict[str, tuple[str, str, str]]
    """Unit -> whether it is enabled, its state, and whether systemd has to read it again, in systemd's words."""
    cards: dict[str, tuple[str, str]]
    """Address -> persistence mode and power limit, in nvidia-smi's words."""
    applied: bool
    """Whether the power script as it lies there was the last one to set anything."""
    sysctl: dict[str, str]
    record: str
    """SHA-256 of what is written down."""
    topology: Topology


def units(rig: Rig) -> tuple[str, ...]:
    """The units that have to run for a rig's cards."""
    powered = rig.driver.power_w is not None or rig.driver.clocks_mhz is not None
    return (PERSISTENCE_UNIT, *([POWER_UNIT] if powered else []))


def questions(rig: Rig) -> dict[str, object]:
    """The values of templates/nvidia_driver/live.sh.j2."""
    return {
        "units": units(rig),
        "sysctl": list(rig.driver.sysctl),
        "script": script_path(rig),
        "applied": APPLIED,
        "record": record_path(rig),
        "timeout": TIMEOUT,
        "devices": DEVICES,
    }


def parse(lines: list[str]) -> Live:
    """Read its lines.

    Raises:
        ValueError: one is malformed.
    """
    rows = [line.removeprefix("live ").split() for line in lines if line.startswith("live ")]
    return Live(
        units={row[1]: (row[2], row[3], row[4]) for row in rows if row[0] == "unit"},
        cards={bus_address(row[1]): (row[2], row[3]) for row in rows if row[0] == "card"},
        applied=["power", "applied"] in rows,
        sysctl={row[1]: " ".join(row[2:]) for row in rows if row[0] == "sysctl"},
        record=next((row[1] for row in rows if row[0] == "record" and len(row) == 2), ""),
        topology=topology.parse([line for line in lines if not line.startswith("live ")]),
    )


def unset(rig: Rig, live: Live) -> dict[str, list[str]]:
    """What is not as the rig says: what has to be done about it -> why.

    The keys are `reload`, `enable UNIT`, `restart UNIT` and `sysctl`.
    """
    found: dict[str, list[str]] = {}

    def note(step: str, why: str) -> None:
        found.setdefault(step, []).append(why)

    for unit in units(rig):
        enabled, state, reload = live.units.get(unit, ("none", "inactive", "no"))
        if reload != "no":
            note("reload", f"{unit} was changed")
            note(f"restart {unit}", f"{unit} was changed")
        if enabled != "enabled":
            note(f"enable {unit}", f"{unit} is {enabled}")
        if state != "active":
            note(f"restart {unit}", f"{unit} is {state}")
    for address, (persistence, _) in live.cards.items():
        if persistence != "Enabled":
            note(f"restart {PERSISTENCE_UNIT}", f"persistence mode of {address} is {persistence}")
    if POWER_UNIT in units(rig):
        if not live.applied:
            note(f"restart {POWER_UNIT}", "the limits and clocks that are declared were not set")
        places = [card.address for card in live.topology.cards]
        for slot, (address, wanted) in enumerate(zip(places, limits(rig), strict=False)):
            has = live.cards.get(address, ("", ""))[1]
            if wanted is not None and not _near(has, wanted):
                note(f"restart {POWER_UNIT}", f"card {slot} has {has or 'no'} W, and {wanted} W are declared")
    for name, value in rig.driver.sysctl.items():
        if live.sysctl.get(name) != str(value):
            note("sysctl", f"{name} is {live.sysctl.get(name) or 'not there'}, and {value} is declared")
    return found


def record(plan: DriverPlan, facts: DriverFacts, live: Live) -> str:
    """What is written down: later roles bind to it, and checks tell by it what has moved since."""
    rows = {
        "version": facts.library.driver if facts.library else "",
        "branch": plan.branch,
        "flavour": plan.flavour,
        "source": plan.source,
        "kernel": facts.kernel,
        "packages": {package.name: package.version for package in facts.driver_packages},
        **live.topology.record(),
    }
    return json.dumps(rows, indent=2, sort_keys=True) + "\n"


def digest(text: str) -> str:
    """SHA-256 of a record."""
    return hashlib.sha256(text.encode()).hexdigest()


def _near(has: str, wanted: int) -> bool:
    try:
        return abs(float(has) - wanted) <= TOLERANCE
    except ValueError:
        return False
