"""How cards reach each other, beside what is declared: checks N24 and N25."""

from __future__ import annotations

from collections.abc import Mapping

from checks import Drift
from rigwright.model.entry import DriverEntry
from rigwright.model.instance import Instance
from rigwright.nvidia.driver.kernel_facts import KernelFacts


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
    step = "reseat the bridge; `nvidia-smi nvlink --status` lists inactive links"
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
                "remove it from the unit or from systemd's environment: its presence counts, not its value",
            )
        )
    return found
