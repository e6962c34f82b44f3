"""The NUMA node of some cards."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rigwright.host.script_output import HostOutput, one_of, yes_or_no
from rigwright.model.fact_types import HostFacts
from rigwright.model.inventory_feature import FactSource
from rigwright.nvidia.cards.card_setting_files import POWER, SYSCTL
from rigwright.nvidia.value_parsers import numa_node_list


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
    nodes = {facts.pci_cards[index].numa_node if index < len(facts.pci_cards) else None for index in cards}
    node = nodes.pop() if len(nodes) == 1 else None
    return node if node in facts.numa_nodes else None


# Lists of the kernel's (Documentation/ABI/stable/sysfs-devices-node): a process bound to a node without one gets none.
NODES_WITH = ("has_cpu", "has_memory")


def _read_card_facts(output: HostOutput) -> Mapping[str, object]:
    return {
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
        "nodes_with": (one_of(*NODES_WITH), numa_node_list),
        "settings_ours": (yes_or_no,),
    },
    _read_card_facts,
)
