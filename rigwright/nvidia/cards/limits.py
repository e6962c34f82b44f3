"""What cards are set to and how they are joined: nvidia-smi's words as typed values, and the decisions of checks N21
to N25."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rigwright.declaration.rig import Rig
from rigwright.host.facts import HostFacts
from rigwright.nvidia.cards.presence import Difference, numbered
from rigwright.nvidia.cards.smi import FORMAT, SMI, UNSAID, answer, bus_address, fields
from rigwright.nvidia.driver.state import State

SET = f"{SMI} --query-gpu=pci.bus_id,power.limit,clocks.current.graphics,vbios_version {FORMAT}"
MEMORY = f"{SMI} -q -d MEMORY"
TEMPERATURE = f"{SMI} -q -d TEMPERATURE"
NVLINKS = f"{SMI} nvlink --status"
TOPOLOGY = f"{SMI} topo -m"

POWER_TOLERANCE = 1.0  # W
# MHz between two clocks that a card can have; a limit goes to the nearest (nvidia-smi -q, supported clocks of an H200)
CLOCK_STEP = 15
# MiB of the window into a card's memory without resizable BAR, which cards up to Turing do not have
SMALL_BAR = 256
RESIZABLE_FROM = (8, 0)
CARD = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])")
ROW = re.compile(r"( +)([^:]+?) *: (.*)")
LINKED = re.compile(r"GPU ([0-9]+): ")
LINK = re.compile(r"Link [0-9]+: (.*)")
UP = re.compile(r"[0-9.]+ GB/s")
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Setting:
    """What a card is set to; None where it does not say."""

    limit_w: float | None
    clock_mhz: float | None
    """The graphics clock now."""
    vbios: str


def cards_settings(status: int, stdout: str, stderr: str) -> dict[str, Setting]:
    """Each card's settings by address, from SET.

    Raises:
        ValueError: nvidia-smi fails; a sentence that says how.
    """
    found = {}
    for line in answer(status, stdout, stderr):
        bus, limit, clock, vbios = fields(line, 4)
        found[bus_address(bus)] = Setting(number(limit), number(clock), vbios)
    return found


def sections(status: int, stdout: str, stderr: str) -> dict[str, dict[str, str]]:
    """`SECTION/KEY` -> value of each card, by address, from MEMORY or TEMPERATURE.

    Raises:
        ValueError: nvidia-smi fails, or names no card; a sentence that says how.
    """
    answer(status, stdout, stderr)
    found: dict[str, dict[str, str]] = {}
    card: dict[str, str] | None = None
    section = ""
    for line in stdout.splitlines():
        if matched := CARD.fullmatch(line.strip()):
            card = found.setdefault(bus_address(matched[1]), {})
        elif card is not None and (row := ROW.fullmatch(line)):
            card[f"{section}/{row[2]}"] = row[3].strip()
        elif line.strip():
            section = line.strip()
    if not found:
        raise ValueError("nvidia-smi names no card")
    return found


def power(rig: Rig, facts: HostFacts, settings: Mapping[str, Setting]) -> list[Difference]:
    """N21: each card's power limit is the declared one."""
    declared = rig.driver.power_w
    found = []
    for number, _, address in numbered(rig, facts):
        if declared is None or address not in settings:
            continue
        wanted = declared[number] if isinstance(declared, tuple) else declared
        there = settings[address].limit_w
        if there is None or abs(there - wanted) > POWER_TOLERANCE:
            found.append(
                Difference(
                    f"a power limit of {wanted} W on card {number} at {address}",
                    "none" if there is None else f"{there:g} W",
                    "`systemctl restart rigwright-power`: a reset or another program has changed it; `journalctl -u "
                    "rigwright-power` says why if it stays",
                )
            )
    return found


def clocks(rig: Rig, facts: HostFacts, settings: Mapping[str, Setting]) -> list[Difference]:
    """N22: no card is clocked higher than declared.

    Which clocks a card is held to cannot be asked, and the lower one is no promise
    (https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1314): a limit that is lost shows once a card is at work.
    """
    if rig.driver.clocks_mhz is None:
        return []
    highest = rig.driver.clocks_mhz[1]
    return [
        Difference(
            f"at most {highest} MHz on card {number} at {address}",
            f"{settings[address].clock_mhz:g} MHz",
            "`systemctl restart rigwright-power`: a reset or another program has changed it",
        )
        for number, _, address in numbered(rig, facts)
        if address in settings and (settings[address].clock_mhz or 0) > highest + CLOCK_STEP
    ]


def windows(rig: Rig, facts: HostFacts, memory: Mapping[str, Mapping[str, str]]) -> list[Difference]:
    """N23: the processor sees a card's whole memory, where the card can do that."""
    found = []
    for index, card, address in numbered(rig, facts):
        said = memory.get(address, {}).get("BAR1 Memory Usage/Total", "")
        there = number(said.removesuffix(" MiB"))
        resizable = tuple(int(part) for part in card.capability.split(".")) >= RESIZABLE_FROM
        wanted = card.vram_mib if resizable else SMALL_BAR
        if there is not None and there < wanted:
            found.append(
                Difference(
                    f"a window of at least {wanted} MiB into the memory of card {index} at {address}",
                    said,
                    "switch on Above 4G Decoding and Resizable BAR in the firmware, which an update of it switches "
                    "off; an RTX 3090 may need a newer VBIOS too",
                )
            )
    return found


def links_up(status: int, stdout: str, stderr: str) -> dict[int, tuple[int, int]]:
    """(links that are up, links) of each card by nvidia-smi's number, from NVLINKS; what has none is left out.

    Raises:
        ValueError: nvidia-smi fails; a sentence that says how.
    """
    found: dict[int, tuple[int, int]] = {}
    card = -1
    for line in answer(status, stdout, stderr):
        if matched := LINKED.match(line):
            card = int(matched[1])
        elif (matched := LINK.match(line)) and card >= 0:
            up, links = found.get(card, (0, 0))
            found[card] = (up + bool(UP.fullmatch(matched[1].strip())), links + 1)
    return found


def topology(status: int, stdout: str, stderr: str) -> dict[tuple[int, int], str]:
    """How two cards are joined, by nvidia-smi's numbers, from TOPOLOGY: "NV4", "PHB", "SYS" and so on.

    Raises:
        ValueError: nvidia-smi fails, or prints no table; a sentence that says how.
    """
    answer(status, stdout, stderr)
    found = {}
    columns: list[str] = []
    for line in ESCAPES.sub("", stdout).splitlines():
        cells = [cell.strip() for cell in line.split("\t")]
        if "GPU0" in cells[1:]:
            columns = cells
        elif columns and (row := re.fullmatch(r"GPU([0-9]+)", cells[0])):
            for column, cell in zip(columns, cells, strict=False):
                if matched := re.fullmatch(r"GPU([0-9]+)", column):
                    found[int(row[1]), int(matched[1])] = cell
    if not columns:
        raise ValueError("nvidia-smi prints no table of how cards are joined")
    return found


def bridges(
    rig: Rig, numbers: Mapping[int, int], up: Mapping[int, tuple[int, int]], joined: Mapping[tuple[int, int], str]
) -> list[Difference]:
    """N24: each declared NVLink bridge joins its two cards, with all of their links.

    Args:
        rig: The rig.
        numbers: nvidia-smi's number of each declared card that answers, by its own.
        up: (links that are up, links) of each card, by nvidia-smi's number.
        joined: How two cards are joined, by nvidia-smi's numbers.
    """
    found = []
    step = "seat the bridge anew; `nvidia-smi nvlink --status` says which links are away"
    for pair in rig.driver.nvlinks:
        one, other = (numbers.get(card) for card in pair)
        if one is None or other is None:
            continue  # N01 says that it does not answer
        names = f"cards {pair[0]} and {pair[1]}"
        how = joined.get((one, other), "nothing")
        if not how.startswith("NV"):
            found.append(Difference(f"NVLink between {names}", how, step))
            continue
        counts = [up.get(number, (0, 0)) for number in (one, other)]
        if any(there < links or not links for there, links in counts):
            said = " and ".join(f"{there} of {links}" for there, links in counts)
            found.append(Difference(f"every link of {names} to be up", said, step))
    return found


def peers(rig: Rig, state: State) -> list[Difference]:
    """N25: no server copies from card to card by itself, except over a declared bridge.

    llama.cpp looks whether GGML_CUDA_P2P is there, so that =0 switches it on; without a bridge copies can be lost
    without an error (github.com/unslothai/unsloth, studio/NVLINK_P2P.md).
    """
    bridged = {frozenset(pair) for pair in rig.driver.nvlinks}
    cards = {instance.name: instance.cards for instance in rig.instances}
    found = []
    for name, pid in state.p2p:
        own = cards.get(name, ())
        if all(frozenset((one, other)) in bridged for one in own for other in own if one < other) and len(own) > 1:
            continue
        found.append(
            Difference(
                f"no GGML_CUDA_P2P in the environment of instance {name}",
                f"it is there in pid {pid}",
                "take it out of the unit, or of systemd's own environment; its presence counts, not its value",
            )
        )
    return found


def number(text: str) -> float | None:
    """A number as nvidia-smi prints it; None where it says none."""
    if not text or text in UNSAID:
        return None
    matched = re.fullmatch(r"-?[0-9]+(?:\.[0-9]+)?", text)
    return float(matched[0]) if matched else None
