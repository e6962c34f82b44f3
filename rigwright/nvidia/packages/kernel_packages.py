"""Packages that have to follow a host's kernels: modules that are made for each, and headers to build others with."""

from __future__ import annotations

import re

from rigwright.model.nvidia.driver_tables import DriverTables
from rigwright.nvidia.driver.driver_facts import DriverFacts
from rigwright.types import Archive, Flavour

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
    """What a driver that is there lacks to have its modules built for the next kernel."""
    offers = [one for one in known.offers if facts.system in one.systems and one.source == source]
    layouts = [known.layouts[one.layout] for one in offers]
    named = next((one.prerequisites for one in layouts if one.prerequisites), ("linux-headers-{kernel}",))
    # a kernel that is held has no next one, and headers of that may be what its driver does not build with
    kernels = tuple(one for one in facts.flavours_of_kernels if f"linux-image-{one}" not in facts.held)
    return tuple(name for name in expand_names(named, branch, flavour, kernels) if name not in facts.headers)
