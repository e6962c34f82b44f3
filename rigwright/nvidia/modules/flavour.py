"""Which kernel modules a host's cards work with: one module drives them all."""

from __future__ import annotations

from dataclasses import dataclass

from rigwright.model.catalog import Card
from rigwright.model.entry import DriverEntry
from rigwright.model.nvidia.driver_tables import CardGeneration, DriverTables
from rigwright.nvidia.driver.driver_facts import BusCard, DriverFacts
from rigwright.types import Flavour

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


def list_drivable_cards(facts: DriverFacts, known: DriverTables) -> tuple[BusCard, ...]:
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
    """The flavour that a rig's cards and inventory ask for, and why; what stands against it is added to `refuse`."""
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
