"""The archives that a test serves: which packages they have, where they lie, and what tells rigwright of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.nvidia import archive, from_nvidia, from_ubuntu
from lab.nvidia.deb import Deb
from lab.nvidia.keys import Key
from rigwright.host.systems import CODENAMES
from rigwright.model.nvidia.tables import SHIPPED, tables
from rigwright.paths import ROOT

NVIDIA = "cuda"
"""Folder below which NVIDIA's archives lie as they do at its place."""
COMPONENTS = {"debian": ("main", "contrib"), "ubuntu": ("main", "restricted", "universe", "multiverse")}
"""What a distribution's archive has even where it is empty."""


def nvidia_packages(system: str, *versions: str, refuses: tuple[str, ...] = ()) -> list[Deb]:
    """What NVIDIA's archive of a system has of some drivers, and what pins each.

    Of a branch's versions, apt sees the pinning package of the last one given.
    """
    make = from_nvidia.debian if system.startswith("debian") else from_nvidia.ubuntu
    found = [deb for version in versions for deb in make(version, refuses=refuses)]
    pins = [deb for version in versions for deb in from_nvidia.pinning(version)]
    return [*found, *pins]


def ubuntu_packages(
    system: str, *versions: str, releases: Sequence[str], flavour: str = "generic", respin: int = 1
) -> list[Deb]:
    """What Ubuntu's archive has of some drivers: both stacks, and the server's modules for some kernels.

    Args:
        system: Such as ubuntu-24.04.
        versions: Drivers, each in the component that the tables say. Of a branch only the last one has modules.
        releases: Kernels for which there are modules, the oldest first.
        flavour: Of the kernels' metapackages.
        respin: Counted up where a kernel that was there gets another driver.
    """
    last = {from_nvidia.branch_of(version): version for version in versions}
    found = from_ubuntu.signatures(releases, respin=respin)
    parts = {b: o.component for o in tables(ROOT).offers if system in o.systems and o.component for b in o.branches}
    for version in versions:
        component = parts.get(from_nvidia.branch_of(version), "restricted")
        release = system.partition("-")[2]
        for kind in (from_ubuntu.SERVER, from_ubuntu.DESKTOP):
            found += from_ubuntu.stack(version, release, kind, component=component)
        if version == last[from_nvidia.branch_of(version)]:
            found += from_ubuntu.prebuilt(version, releases, flavour, respin=respin, component=component)
    return found


@dataclass(frozen=True)
class Archives:
    """A folder that is served, with archives that one key signs."""

    folder: Path
    url: str
    """Where the folder is served."""
    key: Key

    @property
    def base(self) -> str:
        """What NVIDIA's archives are below, as `mirrors` and the tables of drivers want it."""
        return f"{self.url}/{NVIDIA}"

    def write_nvidia(self, system: str, debs: Sequence[Deb]) -> Path:
        """Write NVIDIA's archive of a system, whole; returns its folder."""
        known = tables(ROOT).archive(system)
        place = self.folder / NVIDIA / known.path
        archive.write(place, debs, self.key, archive.Flat(known.key))
        return place

    def write_distribution(self, system: str, debs: Sequence[Deb], name: str = "distribution") -> Path:
        """Write a distribution's archive, whole, with the components that its packages say; returns its folder."""
        distribution, _, version = system.partition("-")
        codename, origin = CODENAMES[system], distribution.capitalize()
        layout = archive.Suite(codename, codename, version, origin, origin, COMPONENTS[distribution])
        place = self.folder / name / system
        archive.write(place, debs, self.key, layout)
        return place

    def source(self, system: str, components: str = "main", name: str = "distribution") -> str:
        """A .sources file for a distribution's archive."""
        return self._source(f"{self.url}/{name}/{system}", f"{CODENAMES[system]}\nComponents: {components}")

    def nvidia_source(self, system: str) -> str:
        """A .sources file for NVIDIA's archive of a system."""
        return self._source(f"{self.base}/{tables(ROOT).archive(system).path}", "/")

    def _source(self, where: str, suites: str) -> str:
        key = "".join(f" {line or '.'}\n" for line in self.key.public.splitlines())
        return f"Types: deb\nURIs: {where}\nSuites: {suites}\nSigned-By:\n{key}"

    def driver_tables(self) -> str:
        """The shipped tables of drivers with this place and this key, for an operator's own catalogue."""
        text = re.sub(r"(?m)^base = .*$", f'base = "{self.base}"', SHIPPED.read_text())
        return re.sub(r"(?m)^fingerprint = .*$", f'fingerprint = "{self.key.fingerprint}"', text)
