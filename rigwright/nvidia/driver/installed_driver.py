"""The installed driver, and the flavour of its kernel modules: open or proprietary."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from rigwright.host.pci_cards import PciCard
from rigwright.model.catalog_schema import Card
from rigwright.model.inventory_schema import DriverEntry
from rigwright.model.nvidia_tables import CardGeneration, DriverSupply, DriverTables
from rigwright.nvidia.driver.driver_facts import LIBRARY, MODULES, DriverFacts, InstalledPackage
from rigwright.nvidia.packages.locked_driver import find_locked_driver
from rigwright.validated_types import Archive, Flavour

FLAVOURS: tuple[Flavour, ...] = ("open", "proprietary")
# Drivers of a card that end when NVIDIA's is installed; any other, such as vfio-pci, keeps the card.
GIVING_WAY = ("nvidia", "nouveau", "nvidiafb", "simple-framebuffer", "efifb", "vesafb")


@dataclass(frozen=True)
class DriverCard:
    """A card that is declared, on the bus, or both."""

    label: str
    generation: CardGeneration
    fails_open: bool
    """Whether it is declared as a board that is known to fail with open modules."""

    def __str__(self) -> str:
        return f"{self.label} ({self.generation.name})"


def list_driver_cards(cards: tuple[Card, ...], facts: DriverFacts, known: DriverTables) -> tuple[DriverCard, ...]:
    """The host's cards that a driver is chosen for: the declared ones, and what else it would drive on the bus.

    The nth declared card is the nth of those on the bus; where that is another, both count.
    """
    found = []
    for number, card in enumerate(cards):
        label = f"card {number}, {card.name}"
        found.append(DriverCard(label, known.capability_generation(card.capability), card.module == "proprietary"))
    for number, here in enumerate(list_drivable_cards(facts, known)):
        if number >= len(cards) or here.pci_id not in cards[number].pci_ids:
            found.append(DriverCard(f"{here.pci_id} at {here.address}", known.device_generation(here.pci_id), False))
    return tuple(found)


def list_drivable_cards(facts: DriverFacts, known: DriverTables) -> tuple[PciCard, ...]:
    """The cards on the bus that NVIDIA's driver can have: it supports them, and no other driver keeps them."""
    return tuple(
        one for one in facts.cards if known.device_generation(one.pci_id).flavours and one.bound in ("", *GIVING_WAY)
    )


def describe_skipped_cards(facts: DriverFacts, known: DriverTables) -> tuple[str, ...]:
    """The other cards on the bus, each with the reason as a clause."""
    return tuple(
        f"{one.pci_id} at {one.address} is bound to {one.bound}"
        if one.bound not in ("", *GIVING_WAY)
        else f"{one.pci_id} at {one.address} ({known.device_generation(one.pci_id).name}) has no supported driver"
        for one in facts.cards
        if one not in list_drivable_cards(facts, known)
    )


def possible_flavours(cards: tuple[DriverCard, ...]) -> tuple[Flavour, ...]:
    """The flavours that all of the cards work with, by their generations."""
    return tuple(one for one in FLAVOURS if all(one in card.generation.flavours for card in cards))


def format_cards(cards: tuple[DriverCard, ...] | list[DriverCard]) -> str:
    """Cards in a sentence."""
    return "; ".join(str(card) for card in cards)


def choose_flavour(driver_entry: DriverEntry, cards: tuple[DriverCard, ...], refuse: list[str]) -> tuple[Flavour, str]:
    """The flavour that a rig's cards and inventory ask for, and why; objections are added to `refuse`."""
    both = possible_flavours(cards)
    asked = driver_entry.flavour
    delicate = [card for card in cards if card.fails_open]
    if not both:
        least = [card for card in cards if "open" not in card.generation.flavours]
        most = [card for card in cards if "proprietary" not in card.generation.flavours]
        refuse.append(
            f"no kernel module supports all cards: {format_cards(least)} need proprietary modules, "
            f"{format_cards(most)} open "
            "ones: move one of them to another host"
        )
        return asked or "open", ""
    if asked and asked not in both:
        against = [card for card in cards if asked not in card.generation.flavours]
        refuse.append(
            f'driver.flavour is "{asked}", and {format_cards(against)} works only with {both[0]} modules: remove the '
            "key, or the card"
        )
        return asked, ""
    chosen: Flavour = asked or both[0]
    if asked:
        why = "set by driver.flavour"
    elif len(both) == 1:
        bound = [card for card in cards if card.generation.flavours == both]
        why = f"{format_cards(bound)} works with no others, and one module serves all cards"
    elif delicate and not driver_entry.force_open_modules:
        chosen = "proprietary"
        why = f"{format_cards(delicate)} is known to fail with open modules"
    else:
        why = "all cards work with these modules"
    if chosen == "open" and delicate:
        if not driver_entry.force_open_modules:
            way = ' set driver.flavour = "proprietary",' if "proprietary" in both else ""
            refuse.append(
                f"{format_cards(delicate)} is known to fail with open modules, which it would get because "
                f"{why}:{way} move "
                "the card to another host, or try driver.force_open_modules = True"
            )
        why += f"; driver.force_open_modules accepts that {format_cards(delicate)} may be lost"
    return chosen, f"{chosen} modules: {why}"


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
        # apt has read no lists; packages that come without a lock are the distribution's
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
        locked: All that it has, where it is locked: packages of another driver by the same name are moved to it.
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
