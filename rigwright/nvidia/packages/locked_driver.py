"""Locked packages of the driver: versions, apt pins and packages of kernels."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rigwright.model.network import DownloadNetwork
from rigwright.model.nvidia_tables import DriverSupply, DriverTables, locked_driver_version
from rigwright.nvidia.driver.driver_facts import DriverFacts, InstalledPackage
from rigwright.supply.lock import Artefact
from rigwright.validated_types import Archive, Flavour


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
        """The archive that it is from."""
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


# Below the 1000 that would let apt downgrade, above what any other archive's packages have (apt_preferences(5))
PRIORITY = 990
# Of NVIDIA's archive beside the distribution's: its toolkits can be installed, and it replaces nothing (ibid.)
SECONDARY_PRIORITY = 100


def render_pins(driver_supply: DriverSupply, facts: DriverFacts, source: Archive, branch: int) -> str:
    """Text for apt's preferences; of several records for a package the first that fits counts."""
    exact = find_locked_driver(driver_supply, facts.system)
    # a driver stays until an upgrade: while another branch is locked, apt must not offer what does not fit beside it
    if exact and (exact.branch, exact.source) != (branch, source):
        exact = None
    of = " ".join(one.format(branch=branch) for one in driver_supply.tables.pins[source])
    records = [(of, f"version {exact.version}*" if exact else f"version {branch}.*", PRIORITY)]
    if source == "distribution":
        records = [
            (of, "release o=NVIDIA", SECONDARY_PRIORITY),
            *records,
            ("*", "release o=NVIDIA", SECONDARY_PRIORITY),
        ]
    return "\n".join(f"Package: {name}\nPin: {which}\nPin-Priority: {rank}\n" for name, which, rank in records)


# linux-modules-nvidia-580-server-open-generic, and what is behind the last dash may be a kernel's release
PREBUILT = re.compile(r"(linux-modules-nvidia-([0-9]{3})(?:-server)?(?:-open)?)-(?!server|open).+")
BUILT_HERE = re.compile(r"nvidia-dkms.*|nvidia-kernel(?:-open)?-dkms|nvidia-open-kernel-dkms")


def expand_names(
    templates: tuple[str, ...], branch: int, flavour: Flavour, kernels: tuple[str, ...]
) -> tuple[str, ...]:
    """Names of packages of a layout, some of them one for each kernel."""
    values = {"branch": branch, "open": "-open" if flavour == "open" else ""}
    return tuple(dict.fromkeys(text.format(**values, kernel=kernel) for text in templates for kernel in kernels))


def held_kernel_images(facts: DriverFacts) -> tuple[str, ...]:
    """The kernels' metapackages that are held with modules which are made for each kernel."""
    return tuple(f"linux-image-{one}" for one in facts.flavours_of_kernels)


def prebuilt_modules(facts: DriverFacts, branch: int) -> tuple[str, ...] | None:
    """The metapackages of such modules that a host needs whose driver comes with them; None where it builds them."""
    own = [one.name for one in facts.own_packages]
    found = [(one.name not in own, matched) for one in facts.packages if (matched := PREBUILT.fullmatch(one.name))]
    stems = [(alone, matched[1]) for alone, matched in found if int(matched[2]) == branch]
    if not stems or (all(alone for alone, _ in stems) and any(BUILT_HERE.fullmatch(name) for name in own)):
        return None
    alone, stem = min(stems)
    brought, modules = dict(facts.kernel_packages), dict(facts.kernel_modules)
    # modules may follow a kernel by another name: those of linux-image-virtual are generic's
    led = [one for one in facts.flavours_of_kernels if not alone and modules.get(brought[f"linux-image-{one}"])]
    return tuple(f"{stem}-{kernel}" for kernel in facts.flavours_of_kernels if kernel not in led)


def missing_headers(
    known: DriverTables, facts: DriverFacts, source: Archive, branch: int, flavour: Flavour
) -> tuple[str, ...]:
    """The packages that an installed driver lacks to have its modules built for the next kernel."""
    offers = [one for one in known.offers if facts.system in one.systems and one.source == source]
    layouts = [known.layouts[one.layout] for one in offers]
    named = next((one.prerequisites for one in layouts if one.prerequisites), ("linux-headers-{kernel}",))
    # a kernel that is held has no next one, and headers of that may be what its driver does not build with
    kernels = tuple(one for one in facts.flavours_of_kernels if f"linux-image-{one}" not in facts.held)
    return tuple(name for name in expand_names(named, branch, flavour, kernels) if name not in facts.headers)
