"""Whether a rig's cards are sound: checks N05 to N07 and N26."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from checks import DEPLOY, Drift
from checks.nvidia.driver_status import KERNEL_LOG, LOG, REBOOT
from checks.remedy import instruction
from checks.survey.cards import COMPLAINTS
from rigwright.model.catalog_schema import Card
from rigwright.model.fact_types import HostFacts
from rigwright.model.inventory_schema import DriverEntry
from rigwright.nvidia.cards.smi import Gpu, bus_address
from rigwright.nvidia.cards.topology import answering_cards, cards_on_bus
from rigwright.nvidia.cards.xids import FATAL_XIDS, RECOVERED, XID

COMPLAINT = re.compile(COMPLAINTS)
# at each boot, of each port
ENABLED = "AER: enabled with IRQ"
PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def find_persistence_differences(
    cards: tuple[Card, ...], reserved_gpus: tuple[int, ...], facts: HostFacts, gpus: Sequence[Gpu]
) -> list[Drift]:
    """N05: the driver keeps each idle card ready; reserved cards are exempt."""
    return [
        Drift(
            f"persistence mode Enabled on card {number} at {gpu.address}",
            gpu.persistence,
            DEPLOY,
        )
        for number, gpu in answering_cards(cards, facts, gpus)
        if gpu.persistence != "Enabled" and number not in reserved_gpus
    ]


def find_card_faults(
    cards: tuple[Card, ...],
    facts: HostFacts,
    gpus: Sequence[Gpu],
    recovery: Mapping[str, str],
    log: Iterable[str],
    warning: str = "",
) -> list[Drift]:
    """N06: nothing says that a card is broken.

    Args:
        cards: The declared cards by GPU index.
        facts: Its host.
        gpus: The cards.
        recovery: Each card's recovery action; one that is not there has none.
        log: The driver's messages in the kernel's log since boot, as far as that can be read.
        warning: The line that nvidia-smi printed beside the cards' rows; empty if there was none.
    """
    found = [Drift("no warning of nvidia-smi", warning, LOG + REBOOT)] if warning else []
    for number, gpu in answering_cards(cards, facts, gpus):
        if gpu.uncorrected:
            found.append(
                Drift(
                    f"no uncorrected memory error on card {number} at {gpu.address}",
                    str(gpu.uncorrected),
                    LOG + REBOOT + instruction("if the errors return, replace the card"),
                )
            )
        action = recovery.get(gpu.address, "None")
        if action != "None":
            found.append(
                Drift(
                    f"recovery action None of card {number} at {gpu.address}",
                    action,
                    LOG + instruction("follow the recovery action"),
                )
            )
    numbers = {address.rpartition(".")[0]: number for number, _, address in cards_on_bus(cards, facts)}
    xids = Counter[tuple[int, int]]()
    for line in log:
        matched = XID.match(line)
        if not matched:
            continue
        place, code = bus_address(matched[1]), int(matched[2])
        if place in numbers and code in FATAL_XIDS and not (code == 154 and RECOVERED.search(matched[3])):
            xids[numbers[place], code] += 1
    found += [
        Drift(
            f"no Xid {code} of card {number} since boot",
            f"{count}: {FATAL_XIDS[code]}",
            LOG + instruction("look up the code in NVIDIA's Xid catalogue"),
        )
        for (number, code), count in sorted(xids.items())
    ]
    return found


def find_pcie_differences(
    cards: tuple[Card, ...], driver_entry: DriverEntry, facts: HostFacts, gpus: Sequence[Gpu]
) -> list[Drift]:
    """N07: each PCI link is as wide as declared, or else as card and slot together allow.

    A slot with fewer lanes than the card has is no difference: the maximum is the one of both
    (https://docs.nvidia.com/deploy/nvml-api, nvmlDeviceGetMaxPcieLinkWidth).
    """
    found = []
    for number, gpu in answering_cards(cards, facts, gpus):
        wanted = driver_entry.pcie_link_width[number] if driver_entry.pcie_link_width else gpu.width_max
        if gpu.width is None or wanted is None or gpu.width == wanted:
            continue
        found.append(
            Drift(
                f"a PCIe link width of x{wanted} to card {number} at {gpu.address}",
                str(gpu.width),
                instruction("reseat the card and its riser; check the firmware for a bifurcation or link width setting")
                if gpu.width < wanted
                else instruction("declare the actual width in driver.pcie_link_width"),
            )
        )
    return found


def find_kernel_complaints(
    cards: tuple[Card, ...], facts: HostFacts, paths: Mapping[str, str], log: Iterable[str]
) -> list[Drift]:
    """N26: the kernel complains about no card's bus, memory or start.

    Args:
        cards: The declared cards by GPU index.
        facts: Its host.
        paths: sysfs's path of each card, by address: the ports that lead to it are in it.
        log: Lines of the kernel's log since boot that have COMPLAINTS in them.
    """
    found = []
    lines = [line for line in log if ENABLED not in line and COMPLAINT.search(line)]
    for number, _, address in cards_on_bus(cards, facts):
        way = {address, *PCI.findall(paths.get(address, ""))}
        # the IOMMU writes [01:00.0] or device=01:00.0, and no domain
        short = [one.removeprefix("0000:") for one in way]
        names = (*way, *(f"[{one}]" for one in short), *(f"={one} " for one in short))
        said = [line for line in lines if any(name in f"{line} ".lower() for name in names)]
        if said:
            found.append(
                Drift(
                    f"no kernel error messages about card {number} at {address} since boot",
                    f"{len(said)}, the latest: {said[-1].strip()}",
                    KERNEL_LOG + instruction("reseat card and riser, or set the slot to a lower PCIe generation"),
                )
            )
    return found
