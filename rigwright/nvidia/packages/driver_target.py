"""Target packages of the driver, and apt's simulation of their installation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from types import MappingProxyType

from rigwright import apt_transactions
from rigwright.model.nvidia_tables import DriverSupply, bundled_debs, driver_version_of
from rigwright.nvidia.driver.driver_facts import (
    OF_A_DRIVER,
    DriverFacts,
    InstalledPackage,
    describe_pending_reboot,
    flavour_of,
    release_key,
)
from rigwright.nvidia.driver.driver_plan import DriverPlan, DriverRefusal
from rigwright.nvidia.packages.locked_driver import LockedDriver

# Modules that are made for each kernel have the kernel's version before the driver's.
PREBUILT = re.compile(r"linux-modules-nvidia-.*")
HEADERS = "linux-headers-"
FOR_A_KERNEL = re.compile(r"linux-modules-nvidia-.*-([0-9]+\.[0-9]+\.[0-9]+-.*)")


@dataclass(frozen=True)
class DriverTarget:
    """The driver of a host after a run."""

    plan: DriverPlan
    version: str
    """The driver's exact one, such as 580.178.04; empty where any of the branch that hangs together will do."""
    packages: tuple[str, ...]
    """Names of all that have to be there."""
    exact: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Package -> its version, of those that are asked for by one."""
    hashes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Package -> SHA-256 of its file, of those that the lock has; empty where the archive's signature stands alone."""

    newest: bool = False
    """Whether apt may know a newer one of the branch that is to come."""

    @property
    def kernel(self) -> str:
        """The metapackage of the kernel that is held with the modules; empty where the host builds them."""
        return next((name for name in self.plan.holds if name.startswith("linux-image-")), "")

    @property
    def targets(self) -> tuple[str, ...]:
        """Words for apt-get install."""
        gone = tuple(f"{name}-" for name in self.plan.removed)
        return tuple(f"{one}={self.exact[one]}" if one in self.exact else one for one in self.packages) + gone


def plan_driver_target(
    plan: DriverPlan, facts: DriverFacts, locked: LockedDriver | None, *, upgrading: bool = False
) -> DriverTarget:
    """The driver that a deploy brings.

    A driver that hangs together stays: only an upgrade moves it to another version. One that was moved away from what
    the lock and our own record agree on is brought back.

    Args:
        plan: The host's.
        facts: The host.
        locked: The driver that is locked for its system.
        upgrading: Whether the run is to move it to the locked version, or to the newest one of the branch.
    """
    recorded = dict(facts.recorded)
    before = _main_version(recorded)
    names = list(plan.packages)
    moved = plan.action != "adopt" or upgrading
    # a driver that an operator has moved to another suitable branch does not need the packages of the one before
    if plan.action == "adopt" and before.startswith(f"{plan.branch}."):
        names += [name for name in recorded if name not in names]
    drifted = before and (
        any(name not in {one.name for one in facts.packages} for name in recorded)
        or any(one.driver != before for one in _versioned_packages(facts))
    )
    if locked and (moved or (drifted and locked.version == before)):
        # with all that is there, or one would stay behind at the old version
        there = [one.name for one in facts.own_packages]
        named = [name for name in (*names, *there) if name not in plan.removed]
        exact = {name: locked.packages[name].version for name in named if name in locked.packages}
        hashes = {name: row.sha256 for name, row in locked.packages.items()}
        plan = _remove_surplus(plan, facts, exact)
        left = [name for name in dict.fromkeys((*names, *exact)) if name not in plan.removed]
        return DriverTarget(plan, locked.version, tuple(left), exact, hashes)
    if not moved and drifted and not _is_consistent(facts):
        return DriverTarget(plan, before, tuple(names), {name: recorded[name] for name in names if name in recorded})
    return DriverTarget(plan, "", tuple(names), newest=upgrading)


def find_previous_driver(facts: DriverFacts) -> str:
    """The driver that a rollback goes to, of those whose files are kept; empty where there is none.

    That is the last used one which is not there now. Where an upgrade or a rollback has ended in the middle, or waits
    for its reboot, two are there: the older one it is then, so that the next rollback goes on and does not turn round.
    """
    there = {one.driver for one in _versioned_packages(facts)} | ({facts.module} if facts.module else set())
    if len(there) > 1 and (oldest := min(there, key=release_key)) in facts.kept:
        return oldest
    library = facts.library.driver if facts.library else ""
    return next((one for one in facts.kept if one != library), "")


def find_rollback_refusals(plan: DriverPlan | DriverRefusal, facts: DriverFacts, version: str) -> tuple[str, ...]:
    """Why a host cannot go back to a driver; empty if it can.

    Args:
        plan: The host's.
        facts: The host.
        version: The driver's; empty if there is none to go back to.
    """
    if any(PREBUILT.fullmatch(one.name) for one in facts.packages):
        return (
            "the previous driver has modules only for the previous kernel, and a rollback would remove the running "
            "one: lock a driver from NVIDIA's archive to be able to roll back",
        )
    if isinstance(plan, DriverRefusal):
        return plan.reasons
    if not version:
        return ("no files of an earlier driver are stored",)
    return () if version in facts.kept else (f"no files of driver {version} are stored",)


def plan_driver_rollback(plan: DriverPlan, facts: DriverFacts, version: str, sums: Iterable[str]) -> DriverTarget:
    """The driver that a rollback brings: one whose package files are kept.

    Args:
        plan: The host's.
        facts: The host.
        version: The driver's.
        sums: Lines of SHA256SUMS of the folder with its files, which are named as apt names them.
    """
    exact, hashes = {}, {}
    for line in sums:
        sha256, _, file = line.partition("  ")
        name, text, _ = file.split("_", 2)
        exact[name], hashes[name] = text.replace("%3a", ":"), sha256
    # packages that would have replaced the driver of now are no matter here, and the one before may be another kind of
    # driver
    flavour = flavour_of(exact) or plan.flavour
    back = replace(plan, branch=int(version.partition(".")[0]), flavour=flavour, removed=())
    return DriverTarget(_remove_surplus(back, facts, exact), version, tuple(exact), exact, hashes)


def _remove_surplus(plan: DriverPlan, facts: DriverFacts, exact: Mapping[str, str]) -> DriverPlan:
    """A plan by which packages go that the driver to come does not have."""
    surplus = [one.name for one in _versioned_packages(facts) if one.name not in exact and one.name not in plan.removed]
    return replace(plan, removed=(*plan.removed, *surplus))


def find_missing_driver_parts(one: DriverTarget, facts: DriverFacts) -> list[str]:
    """The parts of its driver that a host lacks on disk, in words; empty where it has all of it."""
    there = {package.name: package for package in facts.packages}
    found = [f"{name} is not installed" for name in one.packages if name not in there]
    found += [
        f"{name} is not installed, so no module is built for the next kernel"
        for name in packages_before_driver(one, facts)
    ]
    found += [f"{name} is still installed" for name in one.plan.removed if name in there]
    found += [f"the installation of {name} was not completed" for name in facts.half]
    target = one.version or (facts.library.driver if facts.library else "")
    found += [
        f"{package.name} is for {package.driver}, not {target}"
        for package in _versioned_packages(facts)
        if target and package.driver != target
    ]
    found += [
        f"{name} is {there[name].version}, not {version}"
        for name, version in one.exact.items()
        if name in there and there[name].driver == target and there[name].version != version
    ]
    # the one that runs matters only while it runs: see describe_unloaded()
    module = dict(facts.kernel_modules).get(facts.newest_kernel, "")
    if target and module != target:
        found.append(f"kernel {facts.newest_kernel} has {_module_package(module)}, {target} is required")
    return found + [
        f"the initramfs of kernel {kernel} lacks the declared module options" for kernel in facts.old_initrds
    ]


def find_unheld_driver_packages(one: DriverTarget, facts: DriverFacts) -> list[str]:
    """The parts of it that apt does not hold, in words; empty where all is held."""
    return [f"{name} is not held" for name in required_holds(one, facts) if name not in facts.held]


def required_holds(one: DriverTarget, facts: DriverFacts) -> list[str]:
    """The packages that apt is to hold: the driver's installed ones, and the kernel where the plan has it."""
    kernels = {name for name, _ in facts.kernel_packages} & set(one.plan.holds)
    return sorted({package.name for package in facts.own_packages} | kernels)


def needs_transaction(one: DriverTarget, facts: DriverFacts) -> bool:
    """Whether packages have to come or go; else there are only modules, holds and the like to see to."""
    return is_driver_changing(one, facts) or bool(packages_before_driver(one, facts))


def is_driver_changing(one: DriverTarget, facts: DriverFacts) -> bool:
    """The same of the driver's own: one that lacks headers alone stays as it is, and apt is not asked for it."""
    there = {package.name: package.version for package in facts.packages}
    moved = any(there.get(name) != version for name, version in one.exact.items())
    away = any(name not in there for name in one.packages) or any(name in there for name in one.plan.removed)
    return moved or away or bool(facts.half) or one.newest


def packages_before_driver(one: DriverTarget, facts: DriverFacts) -> list[str]:
    """The missing packages that have to be there before the driver."""
    return [name for name in one.plan.before if name not in facts.headers]


def headers_with_driver(one: DriverTarget, facts: DriverFacts) -> tuple[str, ...]:
    """The missing kernel headers that its modules are built with, for the kernels that run now and next."""
    target = one.version or (facts.library.driver if facts.library else "")
    modules = dict(facts.kernel_modules)
    kernels = (facts.kernel, facts.newest_kernel) if one.plan.dkms else ()
    names = (*packages_before_driver(one, facts), *(f"{HEADERS}{one}" for one in kernels if modules.get(one) != target))
    return tuple(name for name in dict.fromkeys(names) if name not in facts.headers)


def is_complete_transaction(one: DriverTarget, facts: DriverFacts, coming: Iterable[str]) -> bool:
    """Whether the packages that come are all that the driver then has: the files of a part are no way back to it."""
    return {package.name for package in _versioned_packages(facts)} <= {*coming, *one.plan.removed}


def is_kernel_behind(one: DriverTarget, facts: DriverFacts) -> bool:
    """Whether the kernel's metapackage brings an older kernel than modules are there for.

    The modules bring that kernel's image by themselves, and nothing else of it.
    """
    brought = dict(facts.kernel_packages).get(one.kernel)
    made = [matched[1] for package in facts.packages if (matched := FOR_A_KERNEL.fullmatch(package.name))]
    return brought is not None and any(release_key(kernel) > release_key(brought) for kernel in made)


def describe_unloaded(one: DriverTarget, facts: DriverFacts) -> str:
    """Why the driver on disk is not the one that runs; empty where it is."""
    target = one.version or (facts.library.driver if facts.library else "")
    if facts.nouveau or any(card.bound == "nouveau" for card in facts.cards):
        return "nouveau is bound to the cards"
    if facts.module and facts.module != target:
        return f"the module {facts.module} is loaded, {target or 'another one'} is installed"
    if facts.module and facts.module_open != (one.plan.flavour == "open"):
        return f"the {'open' if facts.module_open else 'proprietary'} module is loaded"
    if not facts.module and dict(facts.kernel_modules).get(facts.kernel, "") != target:
        return f"the running kernel {facts.kernel} has no module {target}"
    return describe_pending_reboot(one.plan.options, facts.params)


def _main_version(packages: Mapping[str, str]) -> str:
    """The driver's version that most packages are of."""
    versions = [driver for name, version in packages.items() if (driver := InstalledPackage(name, version).driver)]
    return max(sorted(set(versions)), key=versions.count, default="")


def _versioned_packages(facts: DriverFacts) -> list[InstalledPackage]:
    """The installed packages of which there is one at a time, and that have the driver's version."""
    return [
        one
        for one in facts.packages
        # nvidia-firmware-580-server-580.159.03 and its like stand beside those of another version
        if one.driver and not PREBUILT.fullmatch(one.name) and not one.name.endswith(f"-{one.driver}")
    ]


def _is_consistent(facts: DriverFacts) -> bool:
    return len({one.driver for one in _versioned_packages(facts)}) == 1


def _module_package(version: str) -> str:
    return f"the module {version}" if version else "no module"


IMAGE = re.compile(r"linux-image-(?:unsigned-)?([0-9].*)")


@dataclass(frozen=True)
class DriverSimulation(apt_transactions.AptSimulation):
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
    """As `rigwright.apt_transactions.read_simulation`."""
    return apt_transactions.read_simulation(output, DriverSimulation)


def parse_driver_simulation(lines: Iterable[str], offered: Iterable[tuple[str, str]] = ()) -> DriverSimulation:
    """As `rigwright.apt_transactions.parse_simulation`."""
    return apt_transactions.parse_simulation(lines, DriverSimulation, offered)


def bundled_hashes(driver_supply: DriverSupply, system: str, seen: DriverSimulation) -> list[tuple[str, str]]:
    """(package, SHA-256) of each locked package that a transaction brings: no archive has signed its file."""
    rows = {(row.name, row.version): row.sha256 for row in bundled_debs(driver_supply, system)}
    return [(name, rows[name, version]) for name, _, version in seen.installed if (name, version) in rows]


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
