"""The numbers of a rig's declared cards, by their order on the PCI bus."""

from __future__ import annotations

from collections.abc import Sequence

from rigwright.model.catalog import Card
from rigwright.model.facts import HostFacts
from rigwright.nvidia.cards.smi import Gpu


def cards_on_bus(cards: tuple[Card, ...], facts: HostFacts) -> list[tuple[int, Card, str]]:
    """(number, declared card, address) of each declared card that is on the bus."""
    return [(number, card, facts.pci_cards[number][0]) for number, card in enumerate(cards[: len(facts.pci_cards)])]


def answering_cards(cards: tuple[Card, ...], facts: HostFacts, gpus: Sequence[Gpu]) -> list[tuple[int, Gpu]]:
    """The declared cards that answer, with their numbers."""
    seen = {gpu.address: gpu for gpu in gpus}
    return [(number, seen[address]) for number, _, address in cards_on_bus(cards, facts) if address in seen]
