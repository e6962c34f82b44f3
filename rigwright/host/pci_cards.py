"""NVIDIA's cards on a host's PCI bus, as the kernel has them: one type for plans, roles and checks.

Two collectors fill it: `templates/probe/cards.sh.j2`, which needs no Python on the host, and
`checks/survey/host/pci_cards.py`. nvidia-smi's answers about the same cards are another source
(`rigwright/nvidia/cards/smi.py`), with which checks compare.
"""

from __future__ import annotations

from dataclasses import dataclass

from rigwright.host.script_output import (
    HostOutput,
    Schema,
    free_text,
    matching,
    number,
    optional,
    pci_address,
    pci_id,
    word,
)

DEVICES = "/sys/bus/pci/devices"
MOST_LANES = 32
"""Lanes of a link, at most (PCI Express Base Specification, "Link Width"); the kernel has 63 or 255 of a link that is
down."""


@dataclass(frozen=True)
class PciCard:
    """A display adapter of NVIDIA's on the PCI bus."""

    address: str
    pci_id: str
    """VENDOR:DEVICE in hexadecimal digits."""
    bound: str = ""
    """The kernel driver that has it; empty for none."""
    minor: int | None = None
    """The number of its device file; None where NVIDIA's driver has it not."""
    numa_node: int | None = None
    """None where the machine has no NUMA nodes, or does not number them."""
    cpus: str = ""
    """Processors that are near, as the kernel lists them: 0-31,64-95."""
    lanes: int | None = None
    """Of its link now; None where the kernel does not know."""
    lanes_max: int | None = None
    """That the card has."""
    speed: str = ""
    """Of its link now, in the kernel's words; an idle card's is low."""
    speed_max: str = ""


def parse_numa_node(value: str) -> int | None:
    """A NUMA node; the kernel says -1 where there is none."""
    return None if value in ("", "-1") else number(value)


def parse_lanes(value: str) -> int | None:
    """Lanes of a link; None where the kernel does not know, and of a link that is down."""
    lanes = number(value) if value else 0
    return lanes if 0 < lanes <= MOST_LANES else None


CARD_SCHEMA: Schema = {
    "card": (
        pci_address,
        pci_id,
        optional(word),
        optional(number, None),
        parse_numa_node,
        optional(matching(r"[0-9][0-9,-]{0,999}", "a list of processors")),
        parse_lanes,
        parse_lanes,
        free_text,
        free_text,
    )
}
"""The output of templates/probe/cards.sh.j2: fields of PciCard in their order."""


def read_pci_cards(told: HostOutput) -> tuple[PciCard, ...]:
    """The cards that a host reports, in the order of the bus."""
    return tuple(sorted((PciCard(*row) for row in told.many("card")), key=lambda one: one.address))
