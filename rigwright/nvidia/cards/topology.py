"""Where a host's cards are, and what lies between them: for the record, and for what binds to processors or pairs."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

from rigwright.nvidia.cards.smi import bus_address
from rigwright.nvidia.driver.files import DEVICES, TIMEOUT
from rigwright.render import render

GPU = re.compile(r"GPU([0-9]+)")


@dataclass(frozen=True)
class Placed:
    """A card on the bus. What nobody says is None, or empty."""

    slot: int
    """Its place among the cards in the order of the bus: the inventory's number."""
    address: str
    uuid: str
    """Empty where the driver does not answer for it."""
    numa_node: int | None
    """None on a box with one node that does not number it."""
    cpus: str
    """Processors that are near, as the kernel lists them: 0-31,64-95."""
    lanes: int | None
    """Of its PCI link now."""
    lanes_max: int | None
    """That the card has."""
    vbios: str
    bar1_mib: int | None
    """What of its memory the bus reaches at once: as much as it has with a resizable BAR, else 256."""


@dataclass(frozen=True)
class Pair:
    """Two cards, by slot, the lower first."""

    cards: tuple[int, int]
    way: str
    """What lies between, in nvidia-smi's words: NV2 (that many NVLinks), PIX, PXB, PHB, NODE or SYS."""
    p2p: str
    """Whether one may read the other's memory, in nvidia-smi's words: OK, CNS, GNS, TNS or NS. OK is no proof."""

    @property
    def nvlinks(self) -> int:
        """How many NVLinks they share."""
        return int(self.way.removeprefix("NV")) if re.fullmatch("NV[0-9]+", self.way) else 0


@dataclass(frozen=True)
class Topology:
    """All cards of a host."""

    cards: tuple[Placed, ...]
    pairs: tuple[Pair, ...]
    failed: str = ""
    """Why nvidia-smi says nothing of them; empty where it answers."""

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def script(timeout: int = TIMEOUT, devices: str = DEVICES) -> str:
    """The script that asks a host; its lines are for `parse`.

    Args:
        timeout: For one call of nvidia-smi, s.
        devices: The kernel's folder of the bus.
    """
    return render("nvidia_driver/cards.sh.j2", timeout=timeout, devices=devices)


def parse(lines: list[str]) -> Topology:
    """Read the script's lines.

    Raises:
        ValueError: a line is none that it prints.
    """
    said: dict[str, list[str]] = {key: [] for key in ("card", "smi", "bar1", "topo", "p2p", "failed")}
    for line in lines:
        key, _, rest = line.partition(" ")
        if key not in said:
            raise ValueError(f"the look at the cards printed {line!r}")
        said[key].append(rest)
    answers = [_cut(row, ",", 4) for row in said["smi"]]
    known = {bus_address(bus): (uuid, vbios) for _, bus, uuid, vbios in answers}
    bars = {bus_address(bus): _count(mib) for bus, mib in (_cut(row, " ", 2) for row in said["bar1"])}
    rows = sorted((_cut(row, " ", 5) for row in said["card"]), key=lambda row: row[4])
    cards = tuple(
        Placed(
            slot,
            address,
            known.get(address, ("", ""))[0],
            None if node in ("-", "-1") else int(node),
            "" if cpus == "-" else cpus,
            _count(lanes),
            _count(most),
            known.get(address, ("", ""))[1],
            bars.get(address),
        )
        for slot, (node, cpus, lanes, most, address) in enumerate(rows)
    )
    slots = {card.address: card.slot for card in cards}
    # nvidia-smi's own numbers are those of the cards that answer
    numbers = {int(index): slots[place] for index, bus, _, _ in answers if (place := bus_address(bus)) in slots}
    ways, reads = _matrix(said["topo"]), _matrix(said["p2p"])
    pairs = sorted(
        ((min(a, b), max(a, b)), way, reads.get((one, other), ""))
        for (one, other), way in ways.items()
        if one < other and (a := numbers.get(one)) is not None and (b := numbers.get(other)) is not None
    )
    failed = said["failed"][0].strip() or "nvidia-smi does not answer" if said["failed"] else ""
    return Topology(cards, tuple(Pair(*pair) for pair in pairs), failed)


def _matrix(lines: list[str]) -> dict[tuple[int, int], str]:
    """(row, column) -> what stands there, of a table that nvidia-smi prints about its cards."""
    columns: list[int] = []
    found: dict[tuple[int, int], str] = {}
    for line in lines:
        words = line.split()
        # the heading is underlined, so an escape's remains stand before its first word
        if not columns:
            columns = [int(number) for number in GPU.findall(line)]
        elif words and (row := GPU.fullmatch(words[0])):
            found |= {(int(row[1]), column): cell for column, cell in zip(columns, words[1:], strict=False)}
    return found


def _cut(row: str, mark: str, count: int) -> list[str]:
    fields = [field.strip() for field in row.split(mark, count - 1)]
    if len(fields) != count or not all(fields):
        raise ValueError(f"the look at the cards printed a line that is cut short: {row!r}")
    return fields


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and int(text) else None
