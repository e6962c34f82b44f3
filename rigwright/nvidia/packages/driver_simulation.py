"""What apt says that it would do for a driver, and what speaks against it: names of packages are no promise."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from rigwright.debs import simulation
from rigwright.model.nvidia.versions import driver_version_of
from rigwright.nvidia.driver.driver_facts import OF_A_DRIVER, InstalledPackage
from rigwright.nvidia.packages.target import PREBUILT, DriverTarget

IMAGE = re.compile(r"linux-image-(?:unsigned-)?([0-9].*)")


@dataclass(frozen=True)
class DriverSimulation(simulation.AptSimulation):
    """A transaction of apt's for a driver."""

    @property
    def drivers(self) -> tuple[InstalledPackage, ...]:
        """The driver's packages that would come; tools too, where they count as it does."""
        named = [
            InstalledPackage(name, new)
            for name, _, new in self.installed
            if any(fnmatchcase(name, one) for one in OF_A_DRIVER)
        ]
        drivers = {package.driver for package in named} - {""}
        return tuple(package for package in named if driver_version_of(package.version) in drivers)

    @property
    def kernels(self) -> tuple[str, ...]:
        """The kernels whose images would come."""
        return tuple(dict.fromkeys(matched[1] for name, *_ in self.installed if (matched := IMAGE.fullmatch(name))))


def read_driver_simulation(output: Iterable[str]) -> tuple[str, DriverSimulation]:
    """As `rigwright.debs.simulation.read_simulation`."""
    return simulation.read_simulation(output, DriverSimulation)


def parse_driver_simulation(lines: Iterable[str], offered: Iterable[tuple[str, str]] = ()) -> DriverSimulation:
    """As `rigwright.debs.simulation.parse_simulation`."""
    return simulation.parse_simulation(lines, DriverSimulation, offered)


def find_driver_transaction_problems(seen: DriverSimulation, one: DriverTarget) -> list[str]:
    """Why a transaction must not happen, each with what to do; nothing where it may."""
    if seen.complaints:
        if gone := _describe_other_drivers(seen, one):
            return [
                f"{one.version} is not available: the archive has {', '.join(gone)}; set one of those in catalog/ "
                "next to the inventory and run `rigwright lock`, or name a mirror that still has it"
            ]
        return [f"apt cannot resolve it: {'; '.join(seen.complaints)}"]
    found = []
    if surplus := [name for name in seen.removed if name not in one.plan.removed]:
        found.append(
            f"apt would remove {', '.join(surplus)}: remove or update them yourself if you do not need them, then "
            "re-run deploy"
        )
    modules = [name for name, *_ in seen.installed if PREBUILT.fullmatch(name)]
    found += [
        f"{one.kernel} would bring kernel {kernel}, for which the archive has no modules yet: try again later"
        for kernel in seen.kernels
        if one.kernel and not any(name.endswith(f"-{kernel}") for name in modules)
    ]
    for package in seen.drivers:
        driver = driver_version_of(package.version)
        branch = driver.partition(".")[0]
        if one.version and driver != one.version:
            found.append(
                f"{package.name} would be installed as {driver} instead of {one.version}: it is a transitional "
                "package, or an archive dropped the locked one; see `apt-cache policy`"
            )
        elif branch != str(one.plan.branch):
            found.append(
                f"{package.name} would be installed as {driver} of branch {branch} instead of {one.plan.branch}: it "
                "is a transitional package; set the branch that you want in driver.branch"
            )
        elif one.hashes and package.name not in one.hashes:
            found.append(f"{package.name} {package.version} is not in the lock: run `rigwright lock --refresh`")
    return found


def _describe_other_drivers(seen: DriverSimulation, one: DriverTarget) -> list[str]:
    """The drivers that archives have whole where they lack the wanted one; nothing where that is not the trouble."""
    asked = {
        name: {driver_version_of(version) for other, version in seen.offered if other == name} for name in one.exact
    }
    whole = set.intersection(*asked.values()) if asked else set()
    return sorted(whole - {""}) if one.version not in whole else []
