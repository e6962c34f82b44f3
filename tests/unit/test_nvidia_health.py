"""Links of the declared width, and what the kernel says of the bus that cards are on."""

import re
from dataclasses import replace

import pytest

from checks.nvidia.card_health import find_kernel_complaints, find_pcie_differences
from checks.survey.cards import COMPLAINTS
from rigwright.model.inventory_schema import DriverEntry
from rigwright.nvidia.cards.smi import gpus
from tests.unit.nvidia_host import CAPTURED_OUTPUT, FACTS, RIG, difference_pairs
from tests.unit.samples import sample_card, sample_facts, sample_instance, sample_rig

ONE, TWO = gpus(0, CAPTURED_OUTPUT["busy"], "")
CARD = "0000:01:00.0"
BOX = sample_rig(sample_instance(cards=(0,)), cards=(sample_card("8.6"),))
THERE = sample_facts(pci_cards=((CARD, "10de:2204"),))
WAY = {CARD: f"/sys/devices/pci0000:00/0000:00:01.1/{CARD}"}


@pytest.mark.parametrize(
    ("declared", "width", "most", "expected"),
    [
        ((16, 8), 8, 16, None),
        ((16, 16), 8, 16, "a PCIe link width of x16"),
        ((16, 8), 4, 16, "a PCIe link width of x8"),
        # a card that was moved to a better slot
        ((16, 4), 8, 16, "a PCIe link width of x4"),
        ((16, 16), 8, 8, "a PCIe link width of x16"),
        ((16, 8), None, 16, None),
        ((), 8, 16, "a PCIe link width of x16"),
    ],
)
def test_a_link_is_held_to_the_declared_lanes(
    declared: tuple[int, ...], width: int | None, most: int, expected: str | None
) -> None:
    made = replace(
        RIG, driver=DriverEntry.model_construct(**DriverEntry().model_dump() | {"pcie_link_width": declared})
    )
    cards = (ONE, replace(TWO, width=width, width_max=most))
    assert difference_pairs(find_pcie_differences(made.cards, made.driver, FACTS, cards)) == (
        [(f"{expected} to card 1 at 0000:00:07.0", str(width))] if expected else []
    )


@pytest.mark.parametrize(
    "line",
    [
        "pcieport 0000:00:01.1: AER: Corrected error message received from 0000:01:00.0",
        "nvidia 0000:01:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        "pcieport 0000:00:01.1: AER: Multiple Corrected error received: 0000:00:01.1",
        "DMAR: [DMA Read NO_PASID] Request device [01:00.0] fault addr 0xfe000000 [fault reason 0x06] PTE Read access",
        "nvidia 0000:01:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x000f address=0xf0000000 flags=0x0000]",
        "AMD-Vi: Event logged [IO_PAGE_FAULT device=01:00.0 domain=0x000f address=0xf0000000 flags=0x0000]",
        "AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:01:00.0 domain=0x000f address=0xf0000000 flags=0x0000]",
        "NVRM: GPU 0000:01:00.0: RmInitAdapter failed! (0x62:0x40:2019)",
    ],
)
def test_a_complaint_about_a_card_or_a_port_comes_first(line: str) -> None:
    assert re.search(COMPLAINTS, line)
    expected = f"no kernel error messages about card 0 at {CARD} since boot"
    assert difference_pairs(find_kernel_complaints(BOX.cards, THERE, WAY, [line, line])) == [
        (expected, f"2, the latest: {line}")
    ]


@pytest.mark.parametrize(
    "line",
    [
        # at each boot
        "pcieport 0000:00:01.1: AER: enabled with IRQ 122",
        # of a disk
        "pcieport 0000:00:1d.0: AER: Corrected error message received from 0000:03:00.0",
        "DMAR: [DMA Write] Request device [03:00.0] fault addr 0x0 [fault reason 0x05] PTE Write access is not set",
        # of a card in another domain
        "pcieport 0001:00:01.1: AER: Corrected error message received from 0001:01:00.0",
        "NVRM: GPU 0000:41:00.0: RmInitAdapter failed! (0x62:0x40:2019)",
    ],
)
def test_the_kernels_messages_about_others_are_no_complaint(line: str) -> None:
    assert find_kernel_complaints(BOX.cards, THERE, WAY, [line]) == []
