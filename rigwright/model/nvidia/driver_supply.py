"""Known and locked NVIDIA drivers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rigwright.model.nvidia.driver_tables import DriverTables
from rigwright.supply.lock import Artefact


@dataclass(frozen=True)
class DriverSupply:
    """The drivers that a rig can get."""

    tables: DriverTables
    """All known drivers."""
    packages: Mapping[str, tuple[Artefact, ...]] = field(default_factory=dict)
    """System -> the driver that is locked for it: its packages and its archive's key; only of a managed one."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """System -> that archive's key, armoured, where the driver is NVIDIA's own."""
