"""What to do with a driver that is there already: keep it, or replace it by a step that is listed."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from rigwright.model.entry import DriverEntry
from rigwright.model.nvidia.driver_supply import DriverSupply
from rigwright.model.nvidia.driver_tables import DriverTables
from rigwright.nvidia.driver.driver_facts import LIBRARY, MODULES, DriverFacts, InstalledPackage
from rigwright.nvidia.modules.flavour import DriverCard, format_cards, possible_flavours
from rigwright.nvidia.packages.locked_driver import find_locked_driver
from rigwright.types import Archive, Flavour

# Packages that are for one flavour beside the modules themselves
FLAVOURED = re.compile(r"nvidia-(?:driver|headless(?:-no-dkms)?|kernel-source)-[0-9]+.*|nvidia-open.*|cuda-drivers.*")


@dataclass(frozen=True)
class InstalledDriver:
    """The driver whose packages are installed."""

    version: str
    branch: int
    flavour: Flavour | None
    """None where no modules are installed or loaded."""
    source: Archive | None
    """None where no accepted archive has it."""
    origin: str
    """As its archive calls itself."""

    def __str__(self) -> str:
        modules = f"{self.flavour} modules" if self.flavour else "no modules"
        return f"{self.version} with {modules} from {self.origin or 'no archive known to apt'}"


def find_installed_driver(driver_supply: DriverSupply, facts: DriverFacts) -> InstalledDriver | None:
    """The driver that is there, by its libraries.

    One that the lock has, or that we have installed, is from where that says: apt may have no archive of it any more.
    """
    library = facts.library or _find_lost_library(facts)
    if library is None:
        return None
    branch = int(library.driver.partition(".")[0])
    source, exact = driver_supply.tables.origins.get(library.origin), find_locked_driver(driver_supply, facts.system)
    ours = (library.name, library.version) in facts.recorded
    if source is None and exact and (ours or exact.has_package(library)):
        source = exact.source
    elif source is None and ours and not library.origin:
        # apt has read no lists; what we bring without a lock is the distribution's
        source = "distribution"
    return InstalledDriver(library.driver, branch, facts.flavour, source, library.origin)


def _find_lost_library(facts: DriverFacts) -> InstalledPackage | None:
    """The library that we have installed and that is gone, where another package of its driver is still there."""
    for name, version in facts.recorded:
        lost = InstalledPackage(name, version)
        left = [one for one in facts.own_packages if one.driver == lost.driver]
        if LIBRARY.fullmatch(name) and lost.driver and left:
            return replace(lost, origin=next((one.origin for one in left if one.origin), ""))
    return None


def find_replacement_reasons(
    there: InstalledDriver,
    driver_entry: DriverEntry,
    driver_supply: DriverSupply,
    cards: tuple[DriverCard, ...],
    wanted: Flavour,
    last: int | None,
) -> list[str]:
    """Why it cannot stay as it is; nothing where it can."""
    found = []
    keys, known = driver_entry, driver_supply.tables
    if there.branch < known.minimum:
        found.append(f"branch {there.branch} is older than {known.minimum}")
    if last is not None and there.branch > last:
        found.append(f"branch {there.branch} does not support the cards whose last branch is {last}")
    if keys.branch is not None and there.branch != keys.branch:
        found.append(f"driver.branch is {keys.branch}")
    if there.source is None:
        found.append("it does not come from an accepted archive")
    elif keys.source is not None and there.source != keys.source:
        found.append(f'driver.source is "{keys.source}"')
    # where the cards leave the choice, the flavour that is there will do
    delicate = any(card.fails_open for card in cards) and not keys.force_open_modules
    free = keys.flavour is None and not delicate
    if there.flavour is None:
        found.append("it has no kernel modules")
    elif there.flavour != wanted and not (free and there.flavour in possible_flavours(cards)):
        bound = format_cards(
            [card for card in cards if there.flavour not in card.generation.flavours or card.fails_open]
        )
        found.append(f"{bound or 'the inventory'} requires {wanted} modules")
    return found


def packages_to_remove(
    facts: DriverFacts,
    known: DriverTables,
    source: Archive,
    branch: int,
    flavour: Flavour,
    packages: Sequence[str],
    locked: Collection[str] = (),
) -> tuple[str, ...]:
    """The installed packages that cannot stay beside the new driver's.

    Args:
        facts: The host.
        known: The tables.
        source: Of the new driver.
        branch: Its own.
        flavour: Its modules'.
        packages: Those that are asked for.
        locked: All that it has, where it is locked: what is there of another driver by the same name is moved to it.
    """
    server = any("-server" in name for name in packages)
    gone = []
    for one in facts.driver_packages:
        if one.name in packages:
            continue
        other = one.driver and (
            ("-server" in one.name) != server
            or (
                one.name not in locked
                and (not one.driver.startswith(f"{branch}.") or known.origins.get(one.origin) != source)
            )
        )
        flavoured = FLAVOURED.fullmatch(one.name) and ("-open" in one.name) != (flavour == "open")
        if other or flavoured or MODULES.fullmatch(one.name):
            gone.append(one.name)
    return tuple(gone)
