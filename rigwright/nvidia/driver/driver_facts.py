"""Facts of the driver on a host: packages, modules, options of modules, and what a deploy left."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypedDict

from rigwright.host.package_states import KERNEL_PATTERNS, PACKAGE_SCHEMA, PackageStates, read_package_states
from rigwright.host.pci_cards import CARD_SCHEMA, PciCard, read_pci_cards
from rigwright.host.script_output import (
    Schema,
    apt_failure,
    file_name,
    free_text,
    optional,
    parse_output,
    path,
    word,
    yes_or_no,
)
from rigwright.model.fact_types import NOWHERE
from rigwright.model.inventory_feature import FactSource
from rigwright.model.nvidia_tables import ToolkitSpec, driver_version_of
from rigwright.model.roots import Roots
from rigwright.nvidia.value_parsers import (
    mask_state,
    maybe,
    package,
    secure_boot_state,
    tool_output,
    version,
)
from rigwright.render import render
from rigwright.validated_types import Flavour

# Where the module shows an option under another name than it is set by (NVIDIA, nv-reg.h: entries with a custom name)
SHOWN_AS = {"RestrictProfilingToAdminUsers": "RmProfilingAdminOnly"}
# The module's value of an option that was left at "as the driver sees fit": -1 without its sign
UNSET = str(2**32 - 1)


@dataclass(frozen=True)
class ModuleOptionDrift:
    """A declared one that is not in force."""

    name: str
    value: int
    """That is declared."""
    loaded: str | None
    """The module's, as /proc/driver/nvidia/params has it; None where that does not know the option."""

    @property
    def loaded_text(self) -> str:
        """That in words."""
        if self.loaded is None:
            return "no such option"
        return "the driver's default" if self.loaded == UNSET else self.loaded


def parse_parameters(text: str) -> tuple[tuple[str, str], ...]:
    """(name, value) of each line of /proc/driver/nvidia/params, which is the loaded module's own text."""
    rows = (line.partition(":") for line in text.splitlines() if line.strip())
    return tuple((name, value.strip()) for name, _, value in rows)


def find_differing_options(
    options: Iterable[tuple[str, int]], params: Iterable[tuple[str, str]]
) -> list[ModuleOptionDrift]:
    """The declared options that the loaded module does not have.

    Args:
        options: (name, value) as declared.
        params: (name, value) as the module shows them; empty without one.
    """
    there, found = dict(params), []
    for name, value in sorted(options):
        short = name.removeprefix("NVreg_")
        loaded = there.get(SHOWN_AS.get(short, short))
        if loaded != str(value):
            found.append(ModuleOptionDrift(name, value, loaded))
    return found


def describe_pending_reboot(options: Iterable[tuple[str, int]], params: Iterable[tuple[str, str]]) -> str:
    """Why a reboot is needed for options, which count from when the module is loaded; empty where none is.

    One that the module does not know it would not know after a reboot.
    """
    return "; ".join(
        f"the module is loaded with {one.name}={one.loaded_text}, {one.value} is declared"
        if one.loaded_text == one.loaded
        else f"the module is loaded without {one.name}, {one.value} is declared"
        for one in find_differing_options(options, params)
        if one.loaded is not None
    )


# The libraries that every program on a card loads; their version is the driver's.
LIBRARY = re.compile(r"libnvidia-compute(?:-[0-9]+(?:-server)?)?|libcuda1")
MODULES = re.compile(r"linux-modules-nvidia-.*|nvidia-dkms.*|nvidia-kernel(?:-open)?-dkms|nvidia-open-kernel-dkms")
OF_A_KERNEL = re.compile(r"linux-(?:modules|objects|signatures)-nvidia-.*-[0-9]+\.[0-9]+\.[0-9]+.*")
# Keeps cards set while no process uses them; of the driver's own packages.
PERSISTENCE_UNIT = "nvidia-persistenced.service"
# Settings of the kernel modules, ours.
MODPROBE = "/etc/modprobe.d/rigwright-nvidia.conf"
# NVIDIA's archive, as we name it to apt.
SOURCE = "/etc/apt/sources.list.d/rigwright-nvidia.sources"
# The query of dpkg: names of packages of a driver, as a shell's patterns
OF_A_DRIVER = ("*nvidia*", "libcuda*1", "libnvcuvid1", "libnvoptix1", "cuda-drivers*")
# Debian's own packages call the module after their alternatives
MODULE_NAMES = ("nvidia", "nvidia-current-open", "nvidia-current")
OWN_VERSIONS = re.compile(r"nvidia-settings|nvidia-modprobe|nvidia-xconfig|nvidia-driver-pinning-.*")


@dataclass(frozen=True)
class InstalledPackage:
    """An installed package of the driver's or around it."""

    name: str
    version: str
    origin: str = ""
    """The name that its archive gives itself; empty where no archive has the package."""

    @property
    def driver(self) -> str:
        """The driver's version that it is of; empty for packages with versions of their own."""
        return "" if OWN_VERSIONS.fullmatch(self.name) else driver_version_of(self.version)


@dataclass(frozen=True)
class DriverFacts:
    """One host, as found."""

    os_id: str
    os_version: str
    architecture: str
    kernel: str
    """The one that runs."""
    kernel_packages: tuple[tuple[str, str], ...] = ()
    """(metapackage, the kernel that it brings) of each that is installed."""
    secure_boot: Literal["on", "off", "unknown"] = "off"
    key_enrolled: bool = False
    """Whether the firmware trusts the key that DKMS signs with here."""
    cards: tuple[PciCard, ...] = ()
    module: str = ""
    """Version of the module that is loaded; empty without one."""
    module_open: bool = False
    nouveau: bool = False
    """Whether that is loaded."""
    params: tuple[tuple[str, str], ...] = ()
    """(name, value) of the loaded module's options, as it shows them."""
    packages: tuple[InstalledPackage, ...] = ()
    run_files: tuple[str, ...] = ()
    """The files that an installation from a .run file has left."""
    nvidia_sources: tuple[tuple[str, str], ...] = ()
    """(release, file) of each apt source of NVIDIA's: the release as NVIDIA writes it, ubuntu2404."""
    half: tuple[str, ...] = ()
    """Packages of the driver's whose installation was begun and not ended."""
    headers: frozenset[str] = frozenset()
    """Packages of kernels' headers that are installed, the metapackages among them."""
    held: frozenset[str] = frozenset()
    """Packages that apt keeps as they are."""
    kernel_modules: tuple[tuple[str, str], ...] = ()
    """(kernel, version of the module `nvidia` that lies there for it, or nothing): of each kernel that can be booted,
    and of the one that runs."""
    old_initrds: tuple[str, ...] = ()
    """Kernels whose initial file system has not our file in modprobe.d as it is now."""
    devices: bool = False
    """Whether the device files are there that are not a card's."""
    persistence: Literal["", "masked", "masked-runtime"] = ""
    """How its daemon is masked, in systemd's word; empty where it is not."""
    recorded: tuple[tuple[str, str], ...] = ()
    """(name, version) of each package that we have installed last."""
    kept: tuple[str, ...] = ()
    """Drivers whose package files we keep."""
    apt_failure: str = ""
    """Why apt-cache names no origin of a package; empty where it does."""
    toolkit: str = ""
    """nvcc's own version at the rig's cuda_root, such as 13.2.78; empty where the rig names none."""

    @property
    def system(self) -> str:
        """Distribution and release, such as debian-12."""
        return f"{self.os_id}-{self.os_version}"

    @property
    def metapackage(self) -> tuple[str, str]:
        """(flavour, the kernel it brings) of the metapackage that the running kernel came from; empty texts if none.

        The flavour is what stands behind linux-image- in its name: generic, generic-hwe-24.04, amd64. Where several
        fit, the one of the running kernel's own release counts, then the newest kernel's.
        """
        fitting = [
            (name.removeprefix("linux-image-"), brought)
            for name, brought in self.kernel_packages
            if _kernel_kind(brought) and _kernel_kind(brought) == _kernel_kind(self.kernel)
        ]
        release = self.kernel.split("-")[0]
        return max(
            fitting,
            key=lambda one: (one[1] == self.kernel, one[1].split("-")[0] == release, _version_numbers(one[1])),
            default=("", ""),
        )

    @property
    def flavours_of_kernels(self) -> tuple[str, ...]:
        """Of the metapackages that modules have to follow: the next kernel's, then that of the one that runs.

        They differ where the next kernel is of another series, generic-hwe-24.04 beside generic.
        """
        here, brought = self.metapackage
        ahead = [name for name, kernel in self.kernel_packages if kernel == self.newest_kernel != brought]
        return tuple(one for one in (*(name.removeprefix("linux-image-") for name in ahead[:1]), here) if one)

    @property
    def newest_kernel(self) -> str:
        """The one that boots next, as boot loaders choose."""
        return max((kernel for kernel, _ in self.kernel_modules), key=release_key, default=self.kernel)

    @property
    def driver_packages(self) -> tuple[InstalledPackage, ...]:
        """The installed packages of a driver and its modules; tools too, where they count as it does."""
        library = self.library.driver if self.library else None
        return tuple(
            one
            for one in self.packages
            if one.driver or MODULES.fullmatch(one.name) or driver_version_of(one.version) == library
        )

    @property
    def own_packages(self) -> tuple[InstalledPackage, ...]:
        """The same without those of one kernel alone: they come and go with it, by a metapackage."""
        return tuple(one for one in self.driver_packages if not OF_A_KERNEL.fullmatch(one.name))

    @property
    def library(self) -> InstalledPackage | None:
        """The package of the driver's libraries."""
        found = [one for one in self.packages if LIBRARY.fullmatch(one.name) and one.driver]
        return max(found, key=lambda one: _version_numbers(one.driver), default=None)

    @property
    def flavour(self) -> Flavour | None:
        """Of the modules that are installed, or else loaded; None without any."""
        if found := flavour_of(one.name for one in self.packages):
            return found
        if self.module:
            return "open" if self.module_open else "proprietary"
        return None


def flavour_of(names: Iterable[str]) -> Flavour | None:
    """Of the modules among some packages; None where there are none."""
    modules = [name for name in names if MODULES.fullmatch(name)]
    if not modules:
        return None
    return "open" if any("-open" in name for name in modules) else "proprietary"


def _kernel_kind(kernel: str) -> str:
    """The flavour of a kernel: generic of 6.8.0-40-generic, rt-amd64 of 6.12.94+deb13-rt-amd64."""
    matched = re.search(r"-([a-z][a-z0-9-]*)\Z", kernel)
    return matched[1] if matched else ""


def _version_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"[0-9]+", version))


def release_key(release: str) -> list[tuple[int, int, str]]:
    """Orders kernels as a boot loader does (`sort -V`): numbers by value, and 6.12~rc5 before 6.12."""
    return [
        (1, int(part), "") if part.isdecimal() else (0 if part.startswith("~") else 2, 0, part)
        for part in re.findall(r"[0-9]+|[^0-9]+", f"{release}-")
    ]


class PackageFields(TypedDict):
    """The fields of DriverFacts that dpkg and apt decide."""

    kernel_packages: tuple[tuple[str, str], ...]
    packages: tuple[InstalledPackage, ...]
    half: tuple[str, ...]
    headers: frozenset[str]
    held: frozenset[str]


def package_fields(states: PackageStates, origins: Mapping[str, str]) -> PackageFields:
    """The fields of DriverFacts that follow from packages.

    Args:
        states: Packages of the driver's and of kernels, and those on hold.
        origins: Package -> the word of its archive for itself.
    """
    drivers = states.matching(OF_A_DRIVER)
    return {
        "kernel_packages": states.kernel_metapackages,
        "packages": tuple(
            InstalledPackage(name, there, origins.get(name, "")) for name, there in sorted(drivers.versions.items())
        ),
        "half": drivers.half,
        "headers": states.headers,
        "held": frozenset(states.held),
    }


DRIVER_SCHEMA: Schema = {
    **PACKAGE_SCHEMA,
    **CARD_SCHEMA,
    "os_id": (word,),
    "os_version": (maybe,),
    "architecture": (word,),
    "kernel": (file_name,),
    "secure_boot": (secure_boot_state,),
    "key_enrolled": (yes_or_no,),
    "module": (optional(version),),
    "module_open": (yes_or_no,),
    "params": (tool_output,),
    "nouveau": (yes_or_no,),
    "run_file": (path,),
    "apt_failure": (tool_output, tool_output),
    "origin": (package, free_text),
    "nvidia_source": (word, path),
    "kernel_module": (file_name, optional(version)),
    "initrd_old": (file_name,),
    "devices": (yes_or_no,),
    "persistence": (mask_state,),
    "recorded": (package, version),
    "kept": (file_name,),
    "toolkit": (maybe,),
}

HOLDS_SCHEMA: Schema = {"held": (package,)}
"""The output of templates/nvidia_driver/held.sh.j2."""


def render_probe(roots: Roots, toolkit_spec: ToolkitSpec) -> str:
    """The probe of a rig's host; its output is for `parse`."""
    return render(
        "probe/driver.sh.j2",
        cuda_root=toolkit_spec.own_root or NOWHERE,
        state=roots.state,
        modprobe=MODPROBE,
        persistence_unit=PERSISTENCE_UNIT,
        packages=(*OF_A_DRIVER, *KERNEL_PATTERNS),
        modules=MODULE_NAMES,
    )


def parse(output: Iterable[str]) -> DriverFacts:
    """Read what the probe has printed.

    Raises:
        ValueError: it is not what a host can tell, or something is missing.
    """
    told = parse_output(output, DRIVER_SCHEMA)
    return DriverFacts(
        os_id=told.one("os_id"),
        os_version=told.one("os_version"),
        architecture=told.one("architecture"),
        kernel=told.one("kernel"),
        secure_boot=told.one("secure_boot"),
        key_enrolled=told.one("key_enrolled"),
        cards=read_pci_cards(told),
        module=told.one("module"),
        module_open=told.one("module_open"),
        nouveau=told.one("nouveau"),
        params=parse_parameters(told.one("params")),
        **package_fields(read_package_states(told), dict(told.many("origin"))),
        run_files=tuple(told.all("run_file")),
        nvidia_sources=tuple(sorted(told.many("nvidia_source"))),
        apt_failure=apt_failure(told),
        # the running kernel is listed with all that can be booted
        kernel_modules=tuple(sorted(set(told.many("kernel_module")))),
        old_initrds=tuple(sorted(set(told.all("initrd_old")))),
        devices=told.one("devices"),
        persistence=told.one("persistence"),
        recorded=tuple(told.many("recorded")),
        kept=tuple(told.all("kept")),
        toolkit=told.one("toolkit"),
    )


DRIVER_FACTS = FactSource(
    "nvidia_driver",
    "nvidia_driver/probe.sh.j2",
    schema={"driver_ours": (yes_or_no,)},
    read=lambda output: {"driver_ours": output.one("driver_ours")},
)
