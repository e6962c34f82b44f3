"""The driver of a bundle: relations of its locked packages, and the distribution's packages that they need."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from cli.lock_resolver.apt_archives import run_program
from cli.lock_resolver.distribution_packages import LockedArchive, PackageTransaction
from rigwright.model.deb_package_groups import RELATION_FIELDS, parse_relations, render_apt_list, render_relations
from rigwright.model.nvidia_tables import DRIVER, bundled_debs
from rigwright.model.rig import Rig
from rigwright.nvidia.packages.bundled_driver import list_bundle_transactions
from rigwright.nvidia.packages.driver_target import HEADERS
from rigwright.supply.bundle import DEBS, RELATIONS, BundleRow
from rigwright.supply.lock import Artefact


class BundledDriver:
    """The driver of a system in a bundle."""

    def __init__(self, rigs: Sequence[Rig], system: str, folder: Path) -> None:
        """Choose it.

        Args:
            rigs: The rigs of the bundle.
            system: The system of the hosts.
            folder: The bundle's.
        """
        self.rigs = [rig for rig in rigs if rig.driver.managed]
        self.system = system
        self.path = f"{DEBS}/{DRIVER}{system}/{RELATIONS}"
        self.file = folder / self.path
        self.rows: tuple[Artefact, ...] = next(
            (rows for rig in self.rigs if (rows := bundled_debs(rig.driver_supply, system))), ()
        )

    @property
    def components(self) -> tuple[str, ...]:
        """The further components of the distribution's archive that the driver needs."""
        found = (
            one.component for rig in self.rigs for one in rig.driver_supply.tables.offers if self.system in one.systems
        )
        return tuple(dict.fromkeys(filter(None, found))) if self.rows else ()

    def transactions(self, kernels: Sequence[str]) -> list[PackageTransaction]:
        """The packages of a host with the driver.

        Args:
            kernels: Kernels whose headers it needs besides; archives of other systems may have them.
        """
        names = [
            one for rig in self.rigs for one in list_bundle_transactions(rig.driver, rig.driver_supply, self.system)
        ]
        headers = tuple(f"{HEADERS}{kernel}" for kernel in kernels)
        return [PackageTransaction(one, headers) for one in dict.fromkeys(names)]

    def write_relations(self) -> BundleRow:
        """Write the relations of its packages, whose files are there.

        Raises:
            DownloadUnavailable: dpkg-deb cannot read one of them.
        """
        files = [self.file.with_name(row.file) for row in self.rows]
        text = render_relations(run_program(["dpkg-deb", "-f", str(path), *RELATION_FIELDS]) for path in files)
        new = self.file.with_name(f"{RELATIONS}.new")
        new.write_text(text)
        new.replace(self.file)
        return BundleRow(path=self.path, sha256=hashlib.sha256(text.encode()).hexdigest(), size=len(text))

    def locked_archive(self) -> LockedArchive:
        """An archive of them for apt.

        Raises:
            ValueError: the relations are not those of the lock's packages.
        """
        relations = parse_relations(self.file.read_text("ascii"))
        return LockedArchive(
            tuple(self.file.with_name(row.file) for row in self.rows), render_apt_list(self.rows, relations)
        )
