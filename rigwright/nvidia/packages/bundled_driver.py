"""A managed driver from a rig's bundle: the packages that a host is sent, and those that the bundle lacks."""

from __future__ import annotations

from dataclasses import replace

from rigwright.model.deb_package_groups import parse_relations, render_apt_list
from rigwright.model.inventory_schema import DriverEntry
from rigwright.model.nvidia_tables import DRIVER, DriverSupply, bundled_debs
from rigwright.nvidia.driver.driver_facts import DriverFacts
from rigwright.nvidia.driver.driver_plan import DriverPlan, DriverRefusal
from rigwright.nvidia.driver.installed_driver import FLAVOURS
from rigwright.nvidia.packages.driver_target import (
    HEADERS,
    find_missing_driver_parts,
    headers_with_driver,
    plan_driver_target,
)
from rigwright.nvidia.packages.locked_driver import expand_names, find_locked_driver
from rigwright.supply.bundle import AGAIN, Bundle, BundledPackages

KERNELS = {"debian": "amd64", "ubuntu": "generic"}
"""The flavour of a distribution's usual kernel, behind the last dash of its metapackages' names."""


def list_bundle_transactions(
    driver_entry: DriverEntry, driver_supply: DriverSupply, system: str
) -> list[tuple[str, ...]]:
    """Words for apt-get install, for each flavour of modules that a host of a system may get from a bundle."""
    locked = find_locked_driver(driver_supply, system)
    if not driver_entry.managed or locked is None or not locked.key:
        return []
    offer = next(
        (
            one
            for one in driver_supply.tables.offers
            if system in one.systems and one.source == "nvidia" and locked.branch in one.branches
        ),
        None,
    )
    if offer is None:
        return []
    layout, kernels = driver_supply.tables.layouts[offer.layout], (KERNELS[system.partition("-")[0]],)
    found = []
    for flavour in FLAVOURS:
        names = expand_names(layout.packages, locked.branch, flavour, kernels)
        if driver_entry.flavour in (None, flavour) and all(name in locked.packages for name in names):
            before = expand_names(layout.prerequisites, locked.branch, flavour, kernels)
            found.append((*before, *(f"{name}={locked.packages[name].version}" for name in names)))
    return list(dict.fromkeys(found))


def bundled_driver_packages(bundle: Bundle, driver_supply: DriverSupply, system: str) -> BundledPackages:
    """A system's packages in a bundle, with those of its locked driver.

    Raises:
        ValueError: the bundle lacks one of them, or their list.
    """
    rows, packages = bundled_debs(driver_supply, system), bundle.packages(system)
    if not rows:
        return packages
    files = bundle.files(rows)
    if len(files) < len(rows) or not packages.suites:
        raise ValueError(f"{bundle.folder} has no {DRIVER}{system}: {AGAIN}, with --system {system}")
    try:
        text = bundle.read_relations(f"{DRIVER}{system}")
    except ValueError as error:
        raise ValueError(f"{error}: {AGAIN}") from None
    try:
        listed = render_apt_list(rows, parse_relations(text))
    except ValueError as error:
        raise ValueError(f"the list of {DRIVER}{system} in {bundle.folder} {error}: {AGAIN}") from None
    return packages.with_locked(files, listed)


def is_driver_sent(
    driver_supply: DriverSupply, facts: DriverFacts, plan: DriverPlan, *, upgrading: bool = False
) -> bool:
    """Whether a deploy brings packages of the driver to a host; `upgrading` as of `plan_driver`."""
    one = plan_driver_target(plan, facts, find_locked_driver(driver_supply, facts.system), upgrading=upgrading)
    return bool(find_missing_driver_parts(one, facts)) or one.newest


def require_bundled_driver(
    bundle: Bundle | None,
    driver_supply: DriverSupply,
    facts: DriverFacts,
    plan: DriverPlan | DriverRefusal,
    *,
    upgrading: bool = False,
) -> DriverPlan | DriverRefusal:
    """A host's plan; a refusal where its bundle lacks packages that the plan brings.

    Args:
        bundle: The rig's, if it has one.
        driver_supply: The drivers that there are, and the locked one.
        facts: The host.
        plan: The plan.
        upgrading: As of `plan_driver`.
    """
    if bundle is None or isinstance(plan, DriverRefusal):
        return plan
    locked = find_locked_driver(driver_supply, facts.system)
    one = plan_driver_target(plan, facts, locked, upgrading=upgrading)
    if not is_driver_sent(driver_supply, facts, plan, upgrading=upgrading):
        return plan
    if plan.source != "nvidia":
        return DriverRefusal(
            (
                f"a bundle has no driver of {facts.system}'s own archive, because its modules come with one kernel: "
                f'lock a driver of NVIDIA\'s ([inputs."{DRIVER}{facts.system}"]), or set driver.managed = False and '
                "install the driver yourself",
            )
        )
    try:
        there = bundled_driver_packages(bundle, driver_supply, facts.system).versions
    except ValueError as error:
        return DriverRefusal((str(error),))
    if missing := [name.removeprefix(HEADERS) for name in headers_with_driver(one, facts) if name not in there]:
        named = " ".join(f"--kernel {kernel}" for kernel in missing)
        boot = f", or boot {facts.newest_kernel}" if facts.newest_kernel not in (facts.kernel, *missing) else ""
        return DriverRefusal(
            (
                f"{bundle.folder} has no kernel headers of {', '.join(missing)}, which the driver's modules are built "
                f"with: {AGAIN} and {named}{boot}",
            )
        )
    # the bundle has that component's packages
    return replace(plan, component="")
