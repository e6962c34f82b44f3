"""The NUMA node of some cards, by their places on the bus."""

from __future__ import annotations

from collections.abc import Collection

from rigwright.model.facts import HostFacts


def nearest_node(facts: HostFacts, cards: Collection[int]) -> int | None:
    """The NUMA node that all of some cards are at.

    Args:
        facts: The host.
        cards: Their GPU indexes.

    Returns:
        None where they share none or the host does not say so of each, where the node lacks processors or memory, and
        where the host has no other.
    """
    if len(facts.numa_nodes) < 2:
        return None
    places = [facts.pci_cards[gpu_index][0] if gpu_index < len(facts.pci_cards) else "" for gpu_index in cards]
    nodes = {facts.card_nodes.get(place) for place in places}
    node = nodes.pop() if len(nodes) == 1 else None
    return node if node in facts.numa_nodes else None
