"""Kernels of a host with the driver's modules, running and at the next boot."""

from __future__ import annotations

from dataclasses import dataclass, field

from checks.survey.section import Section
from rigwright.host.pci_cards import PciCard
from rigwright.nvidia.driver.driver_facts import MODULE_NAMES


@dataclass(frozen=True)
class Module:
    """A module of the driver's, as kmod finds it for a kernel."""

    filename: str
    version: str
    license: str
    signer: str
    """Empty where it has no signature."""
    vermagic: str
    srcversion: str


@dataclass(frozen=True)
class KernelThere:
    """A kernel, and what lies there for it."""

    release: str
    bootable: bool
    """Whether its image is in /boot."""
    days: int | None
    """Since it was built; None without an image."""
    modules: list[Module]
    """Those that it would load: the driver's first."""
    lying: list[str]
    """All files of modules that are called as the driver's or nouveau's are."""
    owned: list[str]
    """Those of them that a package has brought."""
    loose: list[str]
    """Those of them, and their folders, that others than root can write."""
    headers: bool


@dataclass(frozen=True)
class DkmsBuild:
    """The driver in DKMS."""

    name: str
    version: str
    source: str
    kernel: str
    """Empty where it has built it for none."""
    state: str
    """"added", "built", "installed" or "broken"."""
    differs: list[str]
    """Files that are not what DKMS has built."""
    missing: list[str]


@dataclass(frozen=True)
class Device:
    """An object in /dev under a name of the driver's."""

    path: str
    kind: str
    """"device", "link" or "file"."""
    mode: int
    uid: int
    gid: int
    major: int
    minor: int


@dataclass(frozen=True)
class BusDisplay(PciCard):
    """A card, and where else the kernel has it."""

    path: str = ""
    """Of sysfs: the ports that lead to the card are in it."""
    rendering: list[str] = field(default_factory=list)
    """Its device files of the kernel's own graphics, below /dev/dri."""


@dataclass(frozen=True)
class PeerCopyProcess:
    """A process of ours that copies from card to card."""

    instance: str
    pid: int


@dataclass(frozen=True)
class Kernels:
    """All of it."""

    running: str
    kernels: list[KernelThere]
    """The running one, then all that could boot."""
    loaded: dict[str, list[str]]
    """Module -> (version, version of its source), of the driver's and of nouveau."""
    version: str
    """The driver module's own version."""
    params: str
    dkms: list[DkmsBuild]
    devices: list[Device]
    cards: list[BusDisplay]
    libraries: list[list[str]]
    """(name, path, the file behind it, its package) of the driver's libraries, in the loader's order."""
    secure_boot: str
    key_enrolled: bool
    sysctl: dict[str, str]
    peers: list[PeerCopyProcess]


KERNEL: Section[Kernels] = Section(
    "kernel",
    Kernels,
    lambda scene: {"modules": list(MODULE_NAMES), "sysctl": sorted(scene.rig.driver.sysctl)},
    blind="a kernel or module that reports false values",
    start_order=10,
)


@dataclass(frozen=True)
class Initrd:
    """A kernel's initial file system."""

    release: str
    there: bool
    problem: str
    """Why it cannot be read to its end; empty where it can."""
    files: int
    lacking: list[str]
    """Files of modprobe's on the disk that it does not have."""
    differs: list[list[str]]
    """(file, how) of modules, scripts and files of modprobe's that are not the disk's."""


@dataclass(frozen=True)
class Grub:
    """GRUB's next entry."""

    chosen: str
    once: bool
    """Whether only at the next boot."""
    kernel: str
    words: list[str]
    waits: bool
    """Whether it waits for a person to choose."""


@dataclass(frozen=True)
class NextBoot:
    """All of it."""

    initrds: list[Initrd]
    dracut: bool
    makes: bool
    """Whether update-initramfs is there."""
    grub: Grub | None
    words: list[list[str]]
    """(file, word) of what the boot loader's next configuration has on the kernel's command line."""
    away: list[str]
    """Rows of fstab whose device is not there."""
    shutdown: str
    """The scheduled shutdown, in systemd's words."""


BOOT: Section[NextBoot] = Section(
    "boot",
    NextBoot,
    lambda scene: {},
    blind="the firmware, and other systems that it starts; options typed at the boot loader's prompt",
    start_order=17,
)
