"""The reports of a host's cards, and of its kernel about them."""

from __future__ import annotations

from dataclasses import dataclass

from checks.survey.section import Section
from rigwright.nvidia.cards.smi import APPS, GPUS, RECOVERY, TIMEOUT
from rigwright.nvidia.cards.smi_text_reports import MEMORY, NVLINKS, TEMPERATURE, TOPOLOGY

# The kernel's messages about errors on the PCI bus (Documentation/PCI/pcieaer-howto.rst), about memory that the IOMMU
# does not let a card have, and the driver's about a card that does not start
COMPLAINTS = r"AER:|PCIe Bus Error|DMAR:.*fault|IO_PAGE_FAULT|RmInitAdapter failed"
WORDS = {
    "gpus": GPUS,
    "apps": APPS,
    "recovery": RECOVERY,
    "memory": MEMORY,
    "temperature": TEMPERATURE,
    "nvlinks": NVLINKS,
    "topology": TOPOLOGY,
}


@dataclass(frozen=True)
class SmiResult:
    """The end and the output of nvidia-smi."""

    status: int
    out: str
    err: str


@dataclass(frozen=True)
class ComputeProcess:
    """A process that computes on a card."""

    pid: int
    name: str
    cgroup: str


@dataclass(frozen=True)
class KernelLog:
    """The messages of the kernel's log since boot that may be about cards."""

    blind: str
    """Why it cannot be seen; empty where it can."""
    messages: list[str]


@dataclass(frozen=True)
class CardsNow:
    """All of it."""

    answers: dict[str, SmiResult]
    """By what was asked: WORDS."""
    processes: list[ComputeProcess]
    log: KernelLog


CARDS: Section[CardsNow] = Section(
    "cards",
    CardsNow,
    lambda scene: (
        {
            "words": {name: list(words) for name, words in WORDS.items()},
            "limit": TIMEOUT,
            "pattern": f"NVRM: Xid |{COMPLAINTS}",
        }
        if scene.rig.cards
        else None
    ),
    limit=2.0 * TIMEOUT + 5,
    blind="faults that a card does not report, and anything older than the kernel's log",
    start_order=1,
)
