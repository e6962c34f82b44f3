"""Archives and locked packages of container engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rigwright.model.containers.archive_tables import ContainerTables
from rigwright.model.deb_package_groups import PackageGroup


@dataclass(frozen=True)
class ContainerSupply:
    """The packages that containers on a rig need, and their origin."""

    tables: ContainerTables
    """The archives of these packages."""
    groups: Mapping[str, PackageGroup] = field(default_factory=dict)
    """Group of the lock -> its packages; empty for a rig without containers."""
