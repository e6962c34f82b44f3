"""NVIDIA's driver and CUDA toolkit as declared: the catalogue's tables, versions and the locked toolkit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from rigwright import toml
from rigwright.address_types import HttpUrl
from rigwright.patches.patch import Patch, collect_digests
from rigwright.problems import FrozenModel
from rigwright.supply.lock import Artefact
from rigwright.validated_types import (
    Archive,
    Capability,
    FileName,
    Fingerprint,
    Flavour,
    Name,
    Positive,
    RelativePath,
    System,
    Text,
)

# An epoch, a branch, and more: 1:580.95.05-1. Tools that count for themselves are left out by their names.
VERSION = re.compile(r"(?:[0-9]+:)?(([0-9]{3})\.[0-9.]+[0-9])(?:-.*|[~+].*)?")
# These hold apt to a branch, 595, or to one driver, 595.91.07; their own versions are NVIDIA's affair.
PINNING = re.compile(r"nvidia-driver-pinning-([0-9.]+)")


def driver_version_of(version: str) -> str:
    """The driver that a package with this version is of; empty for one that is of none."""
    matched = VERSION.fullmatch(version)
    return matched[1] if matched else ""


def is_pinning(name: str, driver: str) -> bool:
    """Whether a package holds apt to a driver, or to its branch."""
    matched = PINNING.fullmatch(name)
    return matched is not None and f"{driver}.".startswith(f"{matched[1]}.")


def locked_driver_version(rows: Iterable[Artefact]) -> str:
    """The one driver that the rows of a lock are of; empty where they are of none, or of several."""
    found = {driver_version_of(row.version) for row in rows if row.kind == "deb" and not PINNING.fullmatch(row.name)}
    return found.pop() if len(found) == 1 else ""


@dataclass(frozen=True)
class Toolkit:
    """A toolkit on one host."""

    root: str
    """CUDAToolkit_ROOT: has bin/nvcc, include and lib64."""
    version: str
    """Such as "13.0"; empty where the operator's is not there."""
    folder: str = ""
    """Where ours is installed; empty for the operator's own."""
    requirements: str = ""
    """Of ours: the text of its hashed requirements."""
    nvcc: str = ""
    """Its compiler's own version, such as "13.0.88"; empty where the operator's does not say."""
    patches: tuple[Patch, ...] = ()
    """Of ours: the patches of its wheels' files."""

    @property
    def site(self) -> str:
        """The folder of the wheels of ours: paths in patches start there."""
        return f"{self.folder}/site"

    @property
    def patched_files(self) -> dict[str, str]:
        """The absolute path of every file that patches change, and its SHA-256."""
        return {f"{self.site}/{path}": digest for path, digest in collect_digests(self.patches).items()}

    @property
    def marker(self) -> str:
        """Written last: ours is whole. Has the SHA-256 of each file, by its path in the root."""
        return f"{self.folder}/files.sha256"

    @property
    def identity(self) -> str:
        """The part of it that counts for binaries that are compiled with it."""
        return self.folder.rpartition("/")[2] or self.version


PLACE = Path("catalog/driver/driver.toml")
# The name of a driver's input, and of its group in the lock, begins with this; the system follows.
DRIVER = "driver-"
SHIPPED = Path(__file__).resolve().parents[2] / PLACE
DeviceNumber = Annotated[str, Field(pattern=r"^[0-9a-f]{4}$")]
# apt's names, with the places that are filled in
Template = Annotated[str, Field(pattern=r"^(?:[a-z0-9.+*:-]|\{branch\}|\{open\}|\{kernel\})+$")]


class PackageLayout(FrozenModel):
    """How an archive names a driver's packages."""

    RENAMED: ClassVar[dict[str, str]] = {"before": "prerequisites"}

    prebuilt: bool = Field(description="Whether the modules come built and signed; else DKMS builds them.")
    prerequisites: tuple[Template, ...] = Field(
        default=(), description="Packages that must be installed before the others."
    )
    packages: tuple[Template, ...] = Field(min_length=1, description="The driver's, for computing alone.")


class ArchiveBranches(FrozenModel):
    """Branches that an archive has for some systems."""

    systems: tuple[System, ...] = Field(min_length=1)
    source: Archive
    branches: tuple[Positive, ...] = Field(min_length=1)
    layout: Name
    component: Literal["", "restricted", "multiverse", "contrib"] = ""


class NvidiaArchive(FrozenModel):
    """One of NVIDIA's apt archives, which are flat: one folder a release of a distribution."""

    systems: tuple[System, ...] = Field(min_length=1)
    path: RelativePath = Field(description="Its folder, below the base URL.")
    key: FileName = Field(description="The file in it with its signing key.")
    fingerprint: Fingerprint = Field(description="Fingerprint of that key.")


class CardGeneration(FrozenModel):
    """Cards of one architecture."""

    name: Text
    capabilities: tuple[Capability, ...] = Field(min_length=1)
    devices: tuple[tuple[DeviceNumber, DeviceNumber], ...] = Field(min_length=1)
    flavours: tuple[Flavour, ...] = Field(
        description="Module flavours that drive them; none for cards without a supported driver."
    )
    last_branch: Positive | None = None


# A capability above all of the table's belongs to a newer card, and newer cards run with open modules alone. Of a
# device number that no table has, neither its age nor its modules are known.
NEWER = CardGeneration(
    name="a newer generation", capabilities=("99.0",), devices=(("ffff", "ffff"),), flavours=("open",)
)
UNKNOWN = CardGeneration(name="an unknown generation", capabilities=("0.0",), devices=(("ffff", "ffff"),), flavours=())


class DriverTables(FrozenModel):
    """All of them."""

    minimum: Positive = Field(description="The oldest branch that will do.")
    preferred: tuple[Positive, ...] = Field(min_length=1)
    last_proprietary: Positive
    layouts: dict[Name, PackageLayout]
    offers: tuple[ArchiveBranches, ...]
    base: HttpUrl = Field(description="Where NVIDIA's archives are, for rigs that name no mirror `nvidia`.")
    archives: tuple[NvidiaArchive, ...]
    pins: dict[Archive, tuple[Template, ...]]
    origins: dict[str, Literal["distribution", "nvidia"]]
    generations: tuple[CardGeneration, ...]

    @model_validator(mode="after")
    def _check_complete(self) -> DriverTables:
        if away := sorted({offer.layout for offer in self.offers} - set(self.layouts)):
            raise ValueError(f"offers of layouts that are there: no {', '.join(away)}")
        if set(self.pins) != {"distribution", "nvidia"}:
            raise ValueError("pins for distribution and nvidia")
        known = {system for archive in self.archives for system in archive.systems}
        if without := {one for offer in self.offers if offer.source == "nvidia" for one in offer.systems} - known:
            raise ValueError(f"archives for the offers' systems: none for {', '.join(sorted(without))}")
        ranges = sorted((first, last) for one in self.generations for first, last in one.devices)
        if any(first > last for first, last in ranges):
            raise ValueError("ranges of devices from the lower to the higher number")
        if any(after[0] <= before[1] for before, after in pairwise(ranges)):
            raise ValueError("generations whose devices do not overlap")
        return self

    @property
    def known_branches(self) -> tuple[int, ...]:
        """Branches that an archive has, or that the tables name as preferred."""
        return tuple(sorted({*self.preferred, *(one for offer in self.offers for one in offer.branches)}))

    def archive(self, system: str) -> NvidiaArchive:
        """NVIDIA's archive for a system.

        Raises:
            KeyError: there is none.
        """
        for one in self.archives:
            if system in one.systems:
                return one
        raise KeyError(system)

    def device_generation(self, pci_id: str) -> CardGeneration:
        """The generation of a card on the bus."""
        device = pci_id.rpartition(":")[2]
        return next(
            (one for one in self.generations if any(first <= device <= last for first, last in one.devices)), UNKNOWN
        )

    def capability_generation(self, capability: str) -> CardGeneration:
        """The generation of a declared card."""
        newest = max(_release(text) for one in self.generations for text in one.capabilities)
        other = NEWER if _release(capability) > newest else UNKNOWN
        return next((one for one in self.generations if capability in one.capabilities), other)


def _release(capability: str) -> tuple[int, ...]:
    return tuple(map(int, capability.split(".")))


@cache
def load_driver_tables(folder: Path) -> DriverTables:
    """The ones in a folder's catalogue, or else those that are shipped.

    Raises:
        Invalid: a mistake in the file.
    """
    own = folder / PLACE
    return toml.load_toml(own if own.exists() else SHIPPED, DriverTables)


@dataclass(frozen=True)
class DriverSupply:
    """The drivers that a rig can get."""

    tables: DriverTables
    """All known drivers."""
    packages: Mapping[str, tuple[Artefact, ...]] = field(default_factory=dict)
    """System -> the driver that is locked for it: its packages and its archive's key; only of a managed one."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """System -> that archive's key, armoured, where the driver is NVIDIA's own."""
    bundled: bool = False
    """Whether hosts get it from a bundle, and ask no archive for it."""


def bundled_debs(driver_supply: DriverSupply, system: str) -> tuple[Artefact, ...]:
    """The driver's packages that a bundle has for a system: those of NVIDIA's archive."""
    rows = driver_supply.packages.get(system, ()) if system in driver_supply.keys else ()
    return tuple(row for row in rows if row.kind == "deb")


@dataclass(frozen=True)
class ToolkitSpec:
    """The CUDA toolkit that engines are compiled with: the operator's own, or the locked one."""

    own_root: str | None = None
    """The operator's own toolkit on the host; None for the locked one."""
    wheels: tuple[Artefact, ...] = ()
    """The wheels of the locked one; empty where no instance needs it."""
    patches: tuple[Patch, ...] = ()
    """Patches of the locked one."""
