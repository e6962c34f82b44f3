"""The driver that is locked for a system, and where its packages are had."""

from __future__ import annotations

from dataclasses import dataclass

from rigwright.model.network import DownloadNetwork
from rigwright.model.nvidia.driver_supply import DriverSupply
from rigwright.model.nvidia.versions import locked_driver_version
from rigwright.nvidia.driver.driver_facts import InstalledPackage
from rigwright.supply.lock import Artefact
from rigwright.types import Archive


@dataclass(frozen=True)
class LockedDriver:
    """One driver, every package of it."""

    version: str
    """The driver's own, such as 580.178.04."""
    packages: dict[str, Artefact]
    """Package -> its file; the artefact's version is the package's, as apt writes it."""
    key: str
    """The armoured key of NVIDIA's archive; empty where the distribution's archive has the driver."""

    @property
    def source(self) -> Archive:
        """Whose archive it is from."""
        return "nvidia" if self.key else "distribution"

    @property
    def branch(self) -> int:
        """The driver's first number."""
        return int(self.version.partition(".")[0])

    def has_package(self, package: InstalledPackage) -> bool:
        """Whether an installed package is one of these, in its version."""
        row = self.packages.get(package.name)
        return row is not None and row.version == package.version


def find_locked_driver(driver_supply: DriverSupply, system: str) -> LockedDriver | None:
    """The driver that is locked for a system, such as debian-13; None where none is."""
    rows = driver_supply.packages.get(system, ())
    packages = {row.name: row for row in rows if row.kind == "deb"}
    if not packages:
        return None
    return LockedDriver(locked_driver_version(rows), packages, driver_supply.keys.get(system, ""))


def archive_addresses(driver_supply: DriverSupply, network: DownloadNetwork, system: str) -> list[str]:
    """The folders in which NVIDIA's archive for a system is looked for, in order: the rig's mirrors', or NVIDIA's own.

    Raises:
        KeyError: NVIDIA has none for the system.
    """
    path = driver_supply.tables.archive(system).path
    return [f"{base.rstrip('/')}/{path}" for base in network.mirrors.get("nvidia") or (driver_supply.tables.base,)]
