"""Which power limit and which clocks each declared card is told, decided anew at each boot: on the host, by the program
that sets them (which is why nothing but the standard library and the reader of nvidia-smi is imported here).

A GPU index is a place on the bus: the nth display adapter of NVIDIA's; where the bus lacks one, the card that was
written down for it. A card that is away is a failure, and the others get theirs. Nothing is set where a card
would not take what is declared for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rigwright.nvidia.cards.smi import Gpu


@dataclass(frozen=True)
class Order:
    """One thing that a card is told."""

    what: str
    """In words, with the card."""
    words: tuple[str, ...]
    """For nvidia-smi."""


@dataclass(frozen=True)
class Orders:
    """All that cards are told, and what keeps some from it."""

    given: tuple[Order, ...] = ()
    refused: tuple[str, ...] = ()
    """Why none is given."""
    away: tuple[str, ...] = ()
    """Why some cards get none."""


@dataclass(frozen=True)
class Box:
    """What the cards of a host are, as far as it can be told."""

    declared: int
    """How many there are to be."""
    places: Sequence[str]
    """Addresses of those on the bus, in its order."""
    gpus: Sequence[Gpu]
    """Those that answer."""
    recorded: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    """GPU index -> (address, UUID) when all was well; empty where that is not known of each."""

    def card(self, gpu_index: int) -> Gpu:
        """The card of a GPU index.

        Raises:
            LookupError: it cannot be told anything; a sentence that says why.
        """
        if len(self.places) < self.declared and self.recorded:
            place, uuid = self.recorded[gpu_index]
            for gpu in self.gpus:
                if gpu.uuid == uuid:
                    return gpu
            seen = f"the bus has {len(self.places)} of {self.declared} cards"
            raise LookupError(f"card {gpu_index}, {uuid}, is missing: it was at {place}, and {seen}")
        if gpu_index >= len(self.places):
            raise LookupError(f"card {gpu_index}: no such card on the bus, which has {len(self.places)}")
        for gpu in self.gpus:
            if gpu.address == self.places[gpu_index]:
                return gpu
        raise LookupError(f"card {gpu_index} at {self.places[gpu_index]}: the driver does not report it")


def setting(box: Box, limits: Sequence[int | None], clocks: tuple[int, int] | None) -> Orders:
    """What cards are told to be as they are declared.

    Args:
        box: The host.
        limits: Power limit of each declared card by GPU index, W; None where it is left alone.
        clocks: Lowest and highest clock of all, MHz.
    """
    if len(set(limits)) > 1 and len(box.places) < box.declared and not box.recorded:
        seen = f"the bus has {len(box.places)} of {box.declared} cards"
        return Orders(
            refused=(f"{seen}, their limits differ, and no record shows which one is missing: no limit is set",)
        )
    given, refused, away = [], [], []
    for gpu_index, watts in enumerate(limits):
        try:
            gpu = box.card(gpu_index)
        except LookupError as error:
            away.append(str(error))
            continue
        name = f"card {gpu_index} at {gpu.address}"
        if watts is not None and (why := _beyond(gpu, watts)):
            refused.append(f"{name}: {watts} W is refused: {why}")
        # without it a card forgets what it was told when its last program ends
        if gpu.persistence == "Disabled":
            given.append(Order(f"{name}: persistence mode", ("-i", gpu.uuid, "-pm", "1")))
        if watts is not None:
            given.append(Order(f"{name}: {watts} W", ("-i", gpu.uuid, "-pl", str(watts))))
        if clocks:
            low, high = clocks
            given.append(Order(f"{name}: {low} to {high} MHz", ("-i", gpu.uuid, "-lgc", f"{low},{high}")))
    if refused:
        return Orders(refused=(*refused, "nothing is set"))
    return Orders(tuple(given), away=tuple(away))


def resetting(box: Box) -> Orders:
    """What cards are told to be as they come, whatever was set."""
    given, away = [], []
    for gpu_index in range(box.declared):
        try:
            gpu = box.card(gpu_index)
        except LookupError as error:
            away.append(str(error))
            continue
        name = f"card {gpu_index} at {gpu.address}"
        given.append(Order(f"{name}: clocks reset to default", ("-i", gpu.uuid, "-rgc")))
        if gpu.usual_w is not None:
            usual = int(gpu.usual_w)
            given.append(Order(f"{name}: {usual} W, the default limit", ("-i", gpu.uuid, "-pl", str(usual))))
    return Orders(tuple(given), away=tuple(away))


def placed(record: object, declared: int) -> dict[int, tuple[str, str]]:
    """GPU index -> (address, UUID) of each card written down, from the record's own JSON; empty where one lacks."""
    rows = record.get("cards") if isinstance(record, dict) else None
    found = {}
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict) and isinstance(row.get("slot"), int) and row.get("uuid"):
            found[row["slot"]] = (str(row.get("address", "")), str(row["uuid"]))
    return found if set(found) == set(range(declared)) else {}


def _beyond(gpu: Gpu, watts: int) -> str:
    if gpu.least_w is None or gpu.most_w is None:
        return "the card reports no range"
    if gpu.least_w <= watts <= gpu.most_w:
        return ""
    return f"the card accepts {gpu.least_w:.2f} to {gpu.most_w:.2f} W"
