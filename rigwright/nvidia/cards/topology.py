"""Topology of a host's cards: PCI bus, links and NUMA nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from rigwright.host.pci_cards import CARD_SCHEMA, DEVICES, read_pci_cards
from rigwright.host.script_output import HostOutput, Schema, number, parse_output
from rigwright.model.catalog_schema import Card
from rigwright.model.fact_types import HostFacts
from rigwright.nvidia.cards.smi import GPUS, TIMEOUT, Gpu, those_that_answer
from rigwright.nvidia.cards.smi_text_reports import BAR1, MEMORY, PEERS, TOPOLOGY, parse_sections, parse_topology_matrix
from rigwright.nvidia.value_parsers import tool_output
from rigwright.render import render

QUESTIONS = (("gpus", GPUS), ("memory", MEMORY), ("topology", TOPOLOGY), ("peers", PEERS))
TOPOLOGY_SCHEMA: Schema = {
    **CARD_SCHEMA,
    **{key: (number, tool_output) for key, _ in QUESTIONS},
}
T = TypeVar("T")


@dataclass(frozen=True)
class CardPlace:
    """A card on the bus. An unknown value is None, or empty."""

    gpu_index: int
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
    """The part of its memory that the bus reaches at once: as much as it has with a resizable BAR, else 256."""


@dataclass(frozen=True)
class CardPair:
    """Two cards, by GPU index, the lower first."""

    cards: tuple[int, int]
    way: str
    """The connection, in nvidia-smi's words: NV2 (that many NVLinks), PIX, PXB, PHB, NODE or SYS."""
    p2p: str
    """Whether one may read the other's memory, in nvidia-smi's words: OK, CNS, GNS, TNS or NS. OK is no proof."""

    @property
    def nvlinks(self) -> int:
        """How many NVLinks they share."""
        return int(self.way.removeprefix("NV")) if re.fullmatch("NV[0-9]+", self.way) else 0


@dataclass(frozen=True)
class Topology:
    """All cards of a host."""

    cards: tuple[CardPlace, ...]
    pairs: tuple[CardPair, ...]
    failed: str = ""
    """Why nvidia-smi says nothing of them; empty where it answers."""

    def record(self) -> dict[str, Any]:
        """For JSON; a reader of earlier records finds a GPU index under the name that it had then."""
        rows = asdict(self)
        cards = [{"slot": card.pop("gpu_index"), **card} for card in rows["cards"]]
        return rows | {"cards": cards}


def topology_values(timeout: int = TIMEOUT, devices: str = DEVICES) -> dict[str, object]:
    """The values of templates/nvidia_driver/cards.sh.j2.

    Args:
        timeout: For one call of nvidia-smi, s.
        devices: The kernel's folder of the bus.
    """
    return {"timeout": timeout, "devices": devices, "questions": QUESTIONS}


def render_topology_query(timeout: int = TIMEOUT, devices: str = DEVICES) -> str:
    """The script that asks a host; its output is for `parse`."""
    return render("nvidia_driver/look_at_cards.sh.j2", **topology_values(timeout, devices))


def parse(output: Iterable[str]) -> Topology:
    """Read what the script has printed.

    Raises:
        ValueError: it is not what a host can tell.
    """
    return build_topology(parse_output(output, TOPOLOGY_SCHEMA))


def parse_answering_cards(told: HostOutput) -> tuple[tuple[Gpu, ...], str]:
    """The cards that nvidia-smi has answered for, and why it has not for others; that is empty where it has for all."""
    try:
        return those_that_answer(*_smi_answer(told, "gpus"))
    except ValueError as error:
        return (), str(error)


def build_topology(told: HostOutput) -> Topology:
    """Where the cards are, from what a host has told; a table that nvidia-smi does not print is left out."""
    gpus, failed = parse_answering_cards(told)
    known = {gpu.address: gpu for gpu in gpus}
    memory = _parse_table(parse_sections, told, "memory")
    cards = tuple(
        CardPlace(
            gpu_index,
            one.address,
            known[one.address].uuid if one.address in known else "",
            one.numa_node,
            one.cpus,
            one.lanes,
            one.lanes_max,
            known[one.address].vbios if one.address in known else "",
            _parse_bar1_mib(memory.get(one.address, {})),
        )
        for gpu_index, one in enumerate(read_pci_cards(told))
    )
    gpu_indexes = {card.address: card.gpu_index for card in cards}
    # nvidia-smi's own numbers are those of the cards that answer
    numbers = {gpu.index: gpu_indexes[gpu.address] for gpu in gpus if gpu.address in gpu_indexes}
    ways, reads = (
        _parse_table(parse_topology_matrix, told, "topology"),
        _parse_table(parse_topology_matrix, told, "peers"),
    )
    pairs = sorted(
        ((min(a, b), max(a, b)), way, reads.get((one, other), ""))
        for (one, other), way in ways.items()
        if one < other and (a := numbers.get(one)) is not None and (b := numbers.get(other)) is not None
    )
    return Topology(cards, tuple(CardPair(*pair) for pair in pairs), failed)


def _smi_answer(told: HostOutput, key: str) -> tuple[int, str]:
    rows = told.many(key)
    if not rows:
        raise ValueError("nvidia-smi was not run")
    status, said = rows[0]
    return status, said


def _parse_table(reader: Callable[[int, str], dict[T, Any]], told: HostOutput, key: str) -> Mapping[T, Any]:
    try:
        return reader(*_smi_answer(told, key))
    except ValueError:
        return {}


def _parse_bar1_mib(said: Mapping[str, str]) -> int | None:
    matched = re.fullmatch(r"([0-9]{1,15}) MiB", said.get(BAR1, ""))
    return int(matched[1]) if matched else None


def cards_on_bus(cards: tuple[Card, ...], facts: HostFacts) -> list[tuple[int, Card, str]]:
    """(number, declared card, address) of each declared card that is on the bus."""
    return [
        (number, card, facts.pci_cards[number].address) for number, card in enumerate(cards[: len(facts.pci_cards)])
    ]


def answering_cards(cards: tuple[Card, ...], facts: HostFacts, gpus: Sequence[Gpu]) -> list[tuple[int, Gpu]]:
    """The declared cards that answer, with their numbers."""
    seen = {gpu.address: gpu for gpu in gpus}
    return [(number, seen[address]) for number, _, address in cards_on_bus(cards, facts) if address in seen]
