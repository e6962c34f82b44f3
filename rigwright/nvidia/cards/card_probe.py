"""The probe's facts of cards: their NUMA nodes, and settings of ours."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rigwright.host.channel import HostOutput, one_of, pci_address, yes_or_no
from rigwright.model.fact_source import FactSource
from rigwright.nvidia.cards.card_setting_files import POWER, SYSCTL
from rigwright.nvidia.values import numa_node_list, numa_node_number

# Lists of the kernel's (Documentation/ABI/stable/sysfs-devices-node): a process bound to a node without one gets none.
NODES_WITH = ("has_cpu", "has_memory")


def _read(output: HostOutput) -> Mapping[str, object]:
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
    _read,
)
