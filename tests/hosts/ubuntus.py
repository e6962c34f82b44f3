"""Hosts that stand in for Ubuntu (lab.ubuntu), with the stand-ins for its archive and NVIDIA's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import ubuntu
from lab.labs import Lab
from lab.nvidia import archive, from_ubuntu, kernels
from lab.nvidia.deb import Deb
from lab.nvidia.keys import Key
from lab.nvidia.offered import Archives, nvidia_packages, ubuntu_packages
from rigwright.model.nvidia.tables import tables
from rigwright.paths import ROOT
from tests.hosts import drivers
from tests.hosts.drivers import Box
from tests.hosts.layers import alone

LTS, PRODUCTION = "580.178.04", "595.71.05"


@dataclass
class UbuntuBox(Box):
    """One such host."""

    ubuntu: str = ""

    @property
    def system(self) -> str:
        return self.ubuntu

    @property
    def archives(self) -> Archives:
        """What the lab serves."""
        return Archives(self.lab.shelf, self.lab.shelf_url, self.key)

    def publish(self, *versions: str, key: Key | None = None, also: tuple[Deb, ...] = (), **more: Any) -> None:
        """Have NVIDIA's archive hold these drivers."""
        own = tables(ROOT).archive(self.system)
        place = self.lab.shelf / "nvidia" / own.path
        debs = [*nvidia_packages(self.system, *versions, **more), *also]
        archive.write(place, debs, key or self.key, archive.Flat(own.key))

    def distribute(self, version: str = LTS, *newer: str, without: int = 0, respin: int = 1) -> None:
        """Have Ubuntu's archive hold its kernels and, with modules for them, the newest driver of two branches.

        Args:
            version: That of the older branch.
            newer: More kernels.
            without: How many of these have no modules yet.
            respin: Counted up where a kernel gets another driver.
        """
        release = ubuntu.RELEASES[self.system]
        releases = (*release.kernels, *newer)
        built = releases[: len(releases) - without]
        debs = ubuntu_packages(self.system, version, PRODUCTION, releases=built, flavour=release.flavour, respin=respin)
        debs += from_ubuntu.prebuilt(version, built, release.flavour, from_ubuntu.DESKTOP, respin=respin)
        self.archives.write_distribution(self.system, [*debs, *kernels.kernels(releases, release.flavour)])

    @property
    def installed(self) -> str:
        """The driver whose libraries are there."""
        format_ = "${db:Status-Status} ${Version}\n"
        listed = self.host.run(f"dpkg-query -W -f '{format_}' 'libnvidia-compute*' | grep ^installed", check=False)
        return listed.removeprefix("installed ").partition("-")[0]


def boot(lab: Lab, system: str, folder: Path, key: Key, *layers: str, cards: tuple[str, ...], components: str) -> Box:
    """A host that stands in for a release of Ubuntu, and knows its archive."""
    made = drivers.boot(lab, ubuntu.RELEASES[system].tree, folder, key, *layers, cards=cards)
    box = UbuntuBox(lab, made.host, folder, key, system)
    if not (lab.shelf / "distribution" / system).exists():
        box.distribute()
    ubuntu.sources(box.host, system, box.archives, components)
    return box


def layer(lab: Lab, system: str, folder: Path, key: Key, undriven: str, layers: Path) -> str:
    """What such a host has beside its tree's layer, with all there but a driver."""
    with alone(layers, f"{system}-undriven") as made:
        if not made.exists():
            box = drivers.boot(lab, ubuntu.RELEASES[system].tree, folder / system, key, undriven, cards=())
            ubuntu.recast(box.host, system, lab.shelf, lab.shelf_url)
            box.host.reboot()
            box.declare(managed=False)
            box.rig("deploy")  # the tools of this system
            box.host.freeze(made)
    return str(made)
