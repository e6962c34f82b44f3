"""Which kernel modules a host's cards work with: one module drives them all."""

from __future__ import annotations

from dataclasses import dataclass

from rigwright.model.nvidia.tables import Generation, Tables
from rigwright.model.rig import Rig
from rigwright.nvidia.driver.found import BusCard, DriverFacts
from rigwright.types import Flavour

FLAVOURS: tuple[Flavour, ...] = ("open", "proprietary")
# Drivers of a card that end when NVIDIA's is installed; any other, such as vfio-pci, keeps the card.
GIVING_WAY = ("nvidia", "nouveau", "nvidiafb", "simple-framebuffer", "efifb", "vesafb")


@dataclass(frozen=True)
class Seen:
    """A card that is declared, on the bus, or both."""

    label: str
    generation: Generation
    fails_open: bool
    """Whether it is declared as a board that is known to fail with open modules."""

    def __str__(self) -> str:
        return f"{self.label} ({self.generation.name})"


def seen(rig: Rig, facts: DriverFacts, known: Tables) -> tuple[Seen, ...]:
    """The host's cards that a driver is chosen for: the declared ones, and what else it would drive on the bus.

    The nth declared card is the nth of those on the bus; where that is another, both count.
    """
    found = []
    for number, card in enumerate(rig.cards):
        label = f"card {number}, {card.name}"
        found.append(Seen(label, known.of_capability(card.capability), card.module == "proprietary"))
    for number, here in enumerate(drivable(facts, known)):
        if number >= len(rig.cards) or here.pci_id not in rig.cards[number].pci_ids:
            found.append(Seen(f"{here.pci_id} at {here.address}", known.of_device(here.pci_id), False))
    return tuple(found)


def drivable(facts: DriverFacts, known: Tables) -> tuple[BusCard, ...]:
    """The cards on the bus that NVIDIA's driver can have: it supports them, and no other driver keeps them."""
    return tuple(one for one in facts.cards if known.of_device(one.pci_id).flavours and one.bound in ("", *GIVING_WAY))


def left_out(facts: DriverFacts, known: Tables) -> tuple[str, ...]:
    """The other cards on the bus, each with the reason as a clause."""
    return tuple(
        f"{one.pci_id} at {one.address} is bound to {one.bound}"
        if one.bound not in ("", *GIVING_WAY)
        else f"{one.pci_id} at {one.address} ({known.of_device(one.pci_id).name}) has no supported driver"
        for one in facts.cards
        if one not in drivable(facts, known)
    )


def possible(cards: tuple[Seen, ...]) -> tuple[Flavour, ...]:
    """The flavours that all of the cards work with, by their generations."""
    return tuple(one for one in FLAVOURS if all(one in card.generation.flavours for card in cards))


def names(cards: tuple[Seen, ...] | list[Seen]) -> str:
    """Cards in a sentence."""
    return "; ".join(str(card) for card in cards)


def flavour_of(rig: Rig, cards: tuple[Seen, ...], refuse: list[str]) -> tuple[Flavour, str]:
    """The flavour that a rig's cards and inventory ask for, and why; what stands against it is added to `refuse`."""
    both = possible(cards)
    asked = rig.driver.flavour
    delicate = [card for card in cards if card.fails_open]
    if not both:
        least = [card for card in cards if "open" not in card.generation.flavours]
        most = [card for card in cards if "proprietary" not in card.generation.flavours]
        refuse.append(
            f"no kernel module supports all cards: {names(least)} need proprietary modules, {names(most)} open "
            "ones: move one of them to another host"
        )
        return asked or "open", ""
    if asked and asked not in both:
        against = [card for card in cards if asked not in card.generation.flavours]
        refuse.append(
            f'driver.flavour is "{asked}", and {names(against)} works only with {both[0]} modules: remove the '
            "key, or the card"
        )
        return asked, ""
    chosen: Flavour = asked or both[0]
    if asked:
        why = "set by driver.flavour"
    elif len(both) == 1:
        bound = [card for card in cards if card.generation.flavours == both]
        why = f"{names(bound)} works with no others, and one module serves all cards"
    elif delicate and not rig.driver.open_despite_cards:
        chosen = "proprietary"
        why = f"{names(delicate)} is known to fail with open modules"
    else:
        why = "all cards work with these modules"
    if chosen == "open" and delicate:
        if not rig.driver.open_despite_cards:
            way = ' set driver.flavour = "proprietary",' if "proprietary" in both else ""
            refuse.append(
                f"{names(delicate)} is known to fail with open modules, which it would get because {why}:{way} move "
                "the card to another host, or try driver.open_despite_cards = True"
            )
        why += f"; driver.open_despite_cards accepts that {names(delicate)} may be lost"
    return chosen, f"{chosen} modules: {why}"
