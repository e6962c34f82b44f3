"""The archives that a test serves: which packages they have, where they lie, and what tells rigwright of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rigwright.host.supported_systems import CODENAMES
from rigwright.model.nvidia_tables import SHIPPED, load_driver_tables
from rigwright.project_root import ROOT
from tests.stand_ins.nvidia import apt_archive, nvidia_driver_packages, ubuntu_driver_packages
from tests.stand_ins.nvidia.debian_packages import StandInDeb
from tests.stand_ins.nvidia.signing_keys import SigningKey

NVIDIA = "cuda"
"""Folder below which NVIDIA's archives lie as they do at its place."""
COMPONENTS = {"debian": ("main", "contrib"), "ubuntu": ("main", "restricted", "universe", "multiverse")}
"""The components of a distribution's archive even where it is empty."""


def nvidia_packages(system: str, *versions: str, refuses: tuple[str, ...] = ()) -> list[StandInDeb]:
    """The packages of some drivers in NVIDIA's archive of a system, and the pins of each.

    Of a branch's versions, apt sees the pinning package of the last one given.
    """
    make = (
        nvidia_driver_packages.nvidia_debian_debs
        if system.startswith("debian")
        else nvidia_driver_packages.nvidia_ubuntu_debs
    )
    found = [deb for version in versions for deb in make(version, refuses=refuses)]
    pins = [deb for version in versions for deb in nvidia_driver_packages.pinning_packages(version)]
    return [*found, *pins]


def ubuntu_packages(
    system: str, *versions: str, releases: Sequence[str], flavour: str = "generic", respin: int = 1
) -> list[StandInDeb]:
    """The packages of some drivers in Ubuntu's archive: both stacks, and the server's modules for some kernels.

    Args:
        system: Such as ubuntu-24.04.
        versions: Drivers, each in the component that the tables say. Of a branch only the last one has modules.
        releases: Kernels for which there are modules, the oldest first.
        flavour: Of the kernels' metapackages.
        respin: Counted up where a kernel that was there gets another driver.
    """
    last = {nvidia_driver_packages.driver_branch(version): version for version in versions}
    found = ubuntu_driver_packages.signature_packages(releases, respin=respin)
    parts = {
        b: o.component
        for o in load_driver_tables(ROOT).offers
        if system in o.systems and o.component
        for b in o.branches
    }
    for version in versions:
        component = parts.get(nvidia_driver_packages.driver_branch(version), "restricted")
        release = system.partition("-")[2]
        for kind in (ubuntu_driver_packages.SERVER, ubuntu_driver_packages.DESKTOP):
            found += ubuntu_driver_packages.stack_packages(version, release, kind, component=component)
        if version == last[nvidia_driver_packages.driver_branch(version)]:
            found += ubuntu_driver_packages.prebuilt_modules(
                version, releases, flavour, respin=respin, component=component
            )
    return found


@dataclass(frozen=True)
class ServedArchives:
    """A folder that is served, with archives that one key signs."""

    folder: Path
    url: str
    """Where the folder is served."""
    key: SigningKey

    @property
    def nvidia_base_url(self) -> str:
        """The base of NVIDIA's archives, as `mirrors` and the tables of drivers want it."""
        return f"{self.url}/{NVIDIA}"

    def write_distribution(self, system: str, debs: Sequence[StandInDeb], name: str = "distribution") -> Path:
        """Write a distribution's archive, whole, with the components that its packages say; returns its folder."""
        distribution, _, version = system.partition("-")
        codename, origin = CODENAMES[system], distribution.capitalize()
        layout = apt_archive.SuiteLayout(codename, codename, version, origin, origin, COMPONENTS[distribution])
        place = self.folder / name / system
        apt_archive.write_archive(place, debs, self.key, layout)
        return place

    def distribution_source(self, system: str, components: str = "main", name: str = "distribution") -> str:
        """A .sources file for a distribution's archive."""
        return self._render_source(f"{self.url}/{name}/{system}", f"{CODENAMES[system]}\nComponents: {components}")

    def nvidia_source(self, system: str) -> str:
        """A .sources file for NVIDIA's archive of a system."""
        return self._render_source(f"{self.nvidia_base_url}/{load_driver_tables(ROOT).archive(system).path}", "/")

    def _render_source(self, where: str, suites: str) -> str:
        key = "".join(f" {line or '.'}\n" for line in self.key.public.splitlines())
        return f"Types: deb\nURIs: {where}\nSuites: {suites}\nSigned-By:\n{key}"

    def driver_tables(self) -> str:
        """The shipped tables of drivers with this place and this key, for an operator's own catalogue."""
        text = re.sub(r"(?m)^base = .*$", f'base = "{self.nvidia_base_url}"', SHIPPED.read_text())
        return re.sub(r"(?m)^fingerprint = .*$", f'fingerprint = "{self.key.fingerprint}"', text)
