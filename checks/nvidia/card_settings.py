"""Cards as declared: limits (checks N21 to N23) and links (N24, N25)."""

from __future__ import annotations

from collections.abc import Mapping

from checks import DEPLOY, Drift
from checks.remedy import host_command, instruction, restart_units, show_log
from rigwright.model.catalog_schema import Card
from rigwright.model.fact_types import HostFacts
from rigwright.model.instance import POWER_UNIT, Instance
from rigwright.model.inventory_schema import DriverEntry
from rigwright.nvidia.cards.card_facts import has_limit
from rigwright.nvidia.cards.smi import Gpu, number
from rigwright.nvidia.cards.smi_text_reports import BAR1
from rigwright.nvidia.cards.topology import cards_on_bus
from rigwright.nvidia.driver.kernel_facts import KernelFacts

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
                restart_units(POWER_UNIT) + DEPLOY + show_log(POWER_UNIT),
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
            restart_units(POWER_UNIT),
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
                    instruction(
                        "enable Above 4G Decoding and Resizable BAR in the firmware, whose updates disable them; an "
                        "RTX 3090 may also need a newer VBIOS"
                    ),
                )
            )
    return found


def find_bridge_differences(
    driver_entry: DriverEntry,
    numbers: Mapping[int, int],
    up: Mapping[int, tuple[int, int]],
    joined: Mapping[tuple[int, int], str],
) -> list[Drift]:
    """N24: each declared NVLink bridge joins its two cards, with all of their links.

    Args:
        driver_entry: The declared driver.
        numbers: nvidia-smi's number of each declared card that answers, by its own.
        up: (links that are up, links) of each card, by nvidia-smi's number.
        joined: How two cards are joined, by nvidia-smi's numbers.
    """
    found = []
    step = host_command("nvidia-smi nvlink --status") + instruction("reseat the bridge")
    for pair in driver_entry.nvlinks:
        one, other = (numbers.get(card) for card in pair)
        if one is None or other is None:
            continue  # N01 says that it does not answer
        names = f"cards {pair[0]} and {pair[1]}"
        how = joined.get((one, other), "nothing")
        if not how.startswith("NV"):
            found.append(Drift(f"NVLink between {names}", how, step))
            continue
        counts = [up.get(number, (0, 0)) for number in (one, other)]
        if any(there < links or not links for there, links in counts):
            said = " and ".join(f"{there} of {links}" for there, links in counts)
            found.append(Drift(f"every link of {names} to be up", said, step))
    return found


def find_peer_differences(
    instances: tuple[Instance, ...], driver_entry: DriverEntry, state: KernelFacts
) -> list[Drift]:
    """N25: no server copies from card to card by itself, except over a declared bridge.

    llama.cpp looks whether GGML_CUDA_P2P is there, so that =0 switches it on; without a bridge copies can be lost
    without an error (github.com/unslothai/unsloth, studio/NVLINK_P2P.md).
    """
    bridged = {frozenset(pair) for pair in driver_entry.nvlinks}
    cards = {instance.name: instance.cards for instance in instances}
    found = []
    for name, pid in state.p2p:
        own = cards.get(name, ())
        if all(frozenset((one, other)) in bridged for one in own for other in own if one < other) and len(own) > 1:
            continue
        found.append(
            Drift(
                f"no GGML_CUDA_P2P in the environment of instance {name}",
                f"set in pid {pid}",
                instruction(
                    "remove it from the unit or from systemd's environment: its presence counts, not its value"
                ),
            )
        )
    return found
