"""What cards are set to, beside what is declared: checks N21 to N23."""

from __future__ import annotations

from collections.abc import Mapping

from checks import Drift
from rigwright.model.catalog import Card
from rigwright.model.entry import DriverEntry
from rigwright.model.facts import HostFacts
from rigwright.nvidia.cards.card_facts import has_limit
from rigwright.nvidia.cards.declared_cards_on_bus import cards_on_bus
from rigwright.nvidia.cards.smi import Gpu, number
from rigwright.nvidia.cards.smi_text_reports import BAR1

# MHz between two clocks that a card can have; a limit goes to the nearest (nvidia-smi -q, supported clocks of an H200)
CLOCK_STEP = 15
# MiB of the window into a card's memory without resizable BAR, which cards up to Turing do not have
SMALL_BAR = 256
RESIZABLE_FROM = (8, 0)


def find_power_differences(
    cards: tuple[Card, ...], driver_entry: DriverEntry, facts: HostFacts, gpus: Mapping[str, Gpu]
) -> list[Drift]:
    """N21: each card's power limit is the declared one.

    Args:
        cards: The declared cards by GPU index.
        driver_entry: The declared driver.
        facts: Its host.
        gpus: The cards that answer, by address.
    """
    found = []
    for (index, _, address), wanted in zip(
        cards_on_bus(cards, facts), driver_entry.power_limits(len(cards)), strict=False
    ):
        if wanted is None or address not in gpus or has_limit(gpus[address], wanted):
            continue
        there = gpus[address].limit_w
        found.append(
            Drift(
                f"a power limit of {wanted} W on card {index} at {address}",
                "none" if there is None else f"{there:g} W",
                "`systemctl restart rigwright-power`: a reset or another program changed it; if that does not help, "
                "see `journalctl -u rigwright-power`",
            )
        )
    return found


def find_clock_differences(
    cards: tuple[Card, ...], driver_entry: DriverEntry, facts: HostFacts, gpus: Mapping[str, Gpu]
) -> list[Drift]:
    """N22: no card is clocked higher than declared.

    Which clocks a card is held to cannot be asked, and the lower one is no promise
    (https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1314): a limit that is lost shows once a card is at work.
    """
    if driver_entry.clocks_mhz is None:
        return []
    highest = driver_entry.clocks_mhz[1]
    return [
        Drift(
            f"at most {highest} MHz on card {index} at {address}",
            f"{gpus[address].clock_mhz:g} MHz",
            "`systemctl restart rigwright-power`: a reset or another program changed it",
        )
        for index, _, address in cards_on_bus(cards, facts)
        if address in gpus and (gpus[address].clock_mhz or 0) > highest + CLOCK_STEP
    ]


def find_bar_differences(
    cards: tuple[Card, ...], facts: HostFacts, memory: Mapping[str, Mapping[str, str]]
) -> list[Drift]:
    """N23: Resizable BAR is enabled on each card that supports it."""
    found = []
    for index, card, address in cards_on_bus(cards, facts):
        said = memory.get(address, {}).get(BAR1, "")
        there = number(said.removesuffix(" MiB"))
        resizable = tuple(int(part) for part in card.capability.split(".")) >= RESIZABLE_FROM
        wanted, what = (card.vram_mib, "Resizable BAR enabled, with BAR1") if resizable else (SMALL_BAR, "BAR1")
        if there is not None and there < wanted:
            found.append(
                Drift(
                    f"{what} of at least {wanted} MiB on card {index} at {address}",
                    said,
                    "enable Above 4G Decoding and Resizable BAR in the firmware, whose updates disable them; an RTX "
                    "3090 may also need a newer VBIOS",
                )
            )
    return found
