"""The NUMA node of some cards, by their places on the bus."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from rigwright.host.script_output import HostOutput, one_of, pci_address, yes_or_no
from rigwright.model.fact_types import HostFacts
from rigwright.model.inventory_feature import FactSource
from rigwright.nvidia.cards.card_setting_files import POWER, SYSCTL
from rigwright.nvidia.value_parsers import numa_node_list, numa_node_number


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


# Lists of the kernel's (Documentation/ABI/stable/sysfs-devices-node): a process bound to a node without one gets none.
NODES_WITH = ("has_cpu", "has_memory")


def _read_card_facts(output: HostOutput) -> Mapping[str, object]:
    return {
        "card_nodes": MappingProxyType(dict(output.many("card_node"))),
        "numa_nodes": _numa_nodes(output),
        "settings_ours": output.one("settings_ours"),
    }


def _numa_nodes(output: HostOutput) -> frozenset[int]:
    """Those that have all of NODES_WITH."""
    having: dict[str, frozenset[int]] = dict(output.many("nodes_with"))
    return frozenset.intersection(*(having.get(what, frozenset()) for what in NODES_WITH))


CARD_FACTS = FactSource(
    "cards",
    "nvidia_cards/probe.sh.j2",
    lambda rig: {"settings": [POWER, SYSCTL]},
    {
        "card_node": (pci_address, numa_node_number),
        "nodes_with": (one_of(*NODES_WITH), numa_node_list),
        "settings_ours": (yes_or_no,),
    },
    _read_card_facts,
)
