"""Hosts whose driver is ours, and rigs that have it locked: the starting point of tests of its installation."""

from dataclasses import replace
from typing import Any

from rigwright.model.rig import Rig
from rigwright.nvidia.driver.driver_facts import DriverFacts, InstalledPackage
from rigwright.nvidia.driver.driver_plan import DriverPlan, plan_driver
from rigwright.nvidia.packages.driver_target import DriverTarget, plan_driver_target
from rigwright.nvidia.packages.locked_driver import find_locked_driver
from tests.unit.driver_samples import (
    C3090,
    SERVER,
    UBUNTU,
    debian_packages,
    driver_deb,
    driver_rig,
    driverless_host,
    installed_facts,
)
from tests.unit.samples import changed_rig

OLD, NEW, OTHER = "595.58.03", "595.71.05", "610.43.02"
NAMES = ("firmware-nvidia-gsp", "libcuda1", *debian_packages())
KERNEL, NEXT = "6.12.94+deb13-amd64", "6.12.107+deb13-amd64"


def managed_rig(version: str = NEW, *names: str, **keys: Any) -> Rig:
    """One whose driver is managed; all of it is locked for Debian 13."""
    rows = tuple(
        driver_deb(name, f"{version}-1") for name in names or (*NAMES, "nvidia-kernel-dkms", "nvidia-modprobe")
    )
    return changed_rig(driver_rig(C3090, managed=True, **keys), driver_packages={"debian-13": rows})


def managed_host(version: str = OLD, *names: str, recorded: str = "", **changes: Any) -> DriverFacts:
    """A host whose driver is whole, loaded and ours."""
    packages = tuple(InstalledPackage(name, f"{version}-1", "NVIDIA") for name in sorted(names or NAMES))
    values = {
        "packages": packages,
        "held": frozenset(one.name for one in packages),
        "kernel_modules": ((KERNEL, version), (NEXT, version)),
        "recorded": tuple((one.name, f"{recorded or version}-1") for one in packages),
        "module": version,
        "module_open": True,
        "devices": True,
    }
    return driverless_host("debian-13", "10de:2204", **values | changes)


def driver_target(one: Rig, facts: DriverFacts, upgrading: bool = False) -> DriverTarget:
    plan = plan_driver(one.cards, one.driver, one.driver_supply, one.toolkit, facts, upgrading=upgrading)
    assert isinstance(plan, DriverPlan), plan
    return plan_driver_target(plan, facts, find_locked_driver(one.driver_supply, facts.system), upgrading=upgrading)


def with_versions(facts: DriverFacts, **versions: str) -> DriverFacts:
    """The host with some packages at another version; names with underscores, an empty version for none."""
    moved = {name.replace("_", "-"): version for name, version in versions.items()}
    kept = [one for one in facts.packages if one.name not in moved]
    came = [InstalledPackage(name, f"{version}-1", "NVIDIA") for name, version in moved.items() if version]
    return replace(facts, packages=tuple(sorted([*kept, *came], key=lambda one: one.name)))


UBUNTU_HOST = driverless_host(
    **installed_facts("Ubuntu", UBUNTU, *SERVER[:1], *SERVER[2:]),
    kernel_modules=(("6.8.0-40-generic", "580.159.03"),),
    module="580.159.03",
    module_open=True,
    devices=True,
)
# modules that are made for each kernel count as kernels do
UBUNTU_HOST = replace(
    UBUNTU_HOST,
    packages=(
        InstalledPackage("linux-modules-nvidia-580-server-open-generic", "6.8.0-40.40+1", "Ubuntu"),
        *UBUNTU_HOST.packages,
    ),
)
UBUNTU_HOST = replace(
    UBUNTU_HOST,
    held=frozenset({*(one.name for one in UBUNTU_HOST.packages), "linux-image-generic"}),
    recorded=tuple((one.name, one.version) for one in UBUNTU_HOST.packages),
)


CONVERGED_HOST = managed_host(NEW)
LOCKED = driver_target(managed_rig(), managed_host(), upgrading=True)
