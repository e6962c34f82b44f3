"""Hosts that stand in for Ubuntu (tests.stand_ins.stand_in_ubuntu), with the stand-ins for its archive and NVIDIA's."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.throwaway_lab import ThrowawayLab
from rigwright.model.nvidia_tables import load_driver_tables
from rigwright.project_root import ROOT
from tests.hosts import driver_box
from tests.hosts.driver_box import DriverBox
from tests.hosts.host_layers import exclusive_layer
from tests.stand_ins import stand_in_ubuntu
from tests.stand_ins.nvidia import apt_archive, kernel_packages, ubuntu_driver_packages
from tests.stand_ins.nvidia.debian_packages import StandInDeb
from tests.stand_ins.nvidia.served_archives import ServedArchives, nvidia_packages, ubuntu_packages
from tests.stand_ins.nvidia.signing_keys import SigningKey

LTS, PRODUCTION = "580.178.04", "595.71.05"


@dataclass
class UbuntuBox(DriverBox):
    """One such host."""

    ubuntu: str = ""

    @property
    def system(self) -> str:
        return self.ubuntu

    @property
    def archives(self) -> ServedArchives:
        """The lab's archives."""
        return ServedArchives(self.lab.shelf_folder, self.lab.shelf_url, self.key)

    def publish(
        self, *versions: str, key: SigningKey | None = None, also: tuple[StandInDeb, ...] = (), **more: Any
    ) -> None:
        """Have NVIDIA's archive hold these drivers."""
        own = load_driver_tables(ROOT).archive(self.system)
        place = self.lab.shelf_folder / "nvidia" / own.path
        debs = [*nvidia_packages(self.system, *versions, **more), *also]
        apt_archive.write_archive(place, debs, key or self.key, apt_archive.FlatLayout(own.key))

    def distribute(self, version: str = LTS, *newer: str, without: int = 0, respin: int = 1) -> None:
        """Have Ubuntu's archive hold its kernels and, with modules for them, the newest driver of two branches.

        Args:
            version: That of the older branch.
            newer: More kernels.
            without: How many of these have no modules yet.
            respin: Counted up where a kernel gets another driver.
        """
        release = stand_in_ubuntu.RELEASES[self.system]
        releases = (*release.kernels, *newer)
        built = releases[: len(releases) - without]
        debs = ubuntu_packages(self.system, version, PRODUCTION, releases=built, flavour=release.flavour, respin=respin)
        debs += ubuntu_driver_packages.prebuilt_modules(
            version, built, release.flavour, ubuntu_driver_packages.DESKTOP, respin=respin
        )
        self.archives.write_distribution(
            self.system, [*debs, *kernel_packages.kernel_packages(releases, release.flavour)]
        )

    @property
    def installed_driver(self) -> str:
        """The driver whose libraries are there."""
        format_ = "${db:Status-Status} ${Version}\n"
        listed = self.host.run(f"dpkg-query -W -f '{format_}' 'libnvidia-compute*' | grep ^installed", check=False)
        return listed.removeprefix("installed ").partition("-")[0]


def boot_ubuntu_box(
    lab: ThrowawayLab, system: str, folder: Path, key: SigningKey, *layers: str, cards: tuple[str, ...], components: str
) -> DriverBox:
    """A host that stands in for a release of Ubuntu, and knows its archive."""
    made = driver_box.boot_driver_box(lab, stand_in_ubuntu.RELEASES[system].tree, folder, key, *layers, cards=cards)
    box = UbuntuBox(lab, made.host, folder, key, system)
    if not (lab.shelf_folder / "distribution" / system).exists():
        box.distribute()
    stand_in_ubuntu.write_sources(box.host, system, box.archives, components)
    return box


def make_ubuntu_layer(
    lab: ThrowawayLab, system: str, folder: Path, key: SigningKey, undriven: str, layers: Path
) -> str:
    """The parts of such a host next to its tree's layer, with all there but a driver."""
    with exclusive_layer(layers, f"{system}-undriven") as made:
        if not made.exists():
            box = driver_box.boot_driver_box(
                lab, stand_in_ubuntu.RELEASES[system].tree, folder / system, key, undriven, cards=()
            )
            stand_in_ubuntu.convert_host(box.host, system, lab.shelf_folder, lab.shelf_url)
            box.host.reboot()
            box.declare(managed=False)
            box.run_rig("deploy")  # the tools of this system
            box.host.freeze_layer(made)
    return str(made)
