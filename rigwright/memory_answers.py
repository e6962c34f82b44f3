"""Answers about the memory of a rig's instances, by the records next to its inventory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rigwright.engines.known_issue_rule import PlacedInstance
from rigwright.engines.known_issues import place_instance
from rigwright.engines.memory_assessment import MemoryAssessment, assess_memory, share_cards
from rigwright.engines.memory_fit import GIB, MIB
from rigwright.engines.memory_prediction import MeasuredMemory, predict_ram
from rigwright.memory_records import AcceptedRecords, as_measurements, load_all_records
from rigwright.model.instance import Instance, patches_by_target
from rigwright.model.rig import Rig


@dataclass(frozen=True)
class FitRow:
    """The answer for one instance."""

    rig: str
    instance: str
    variant: str
    place: str
    answer: MemoryAssessment | None
    """None where nothing is known of its model's memory."""
    ram: int | None = None
    """Bytes of RAM of an instance on cards; None if unknown."""
    free_ram: int = 0
    """Bytes of RAM that its box had; 0 if unknown."""

    @property
    def is_doubtful(self) -> bool:
        """Whether it is not certain to fit."""
        lacks_ram = bool(self.ram and self.free_ram and self.ram > self.free_ram)
        return lacks_ram or bool(self.answer and self.answer.verdict not in (None, "fits"))

    def as_cells(self) -> tuple[str, ...]:
        """It for the table."""
        head = (self.rig, self.instance, self.variant, self.place)
        if (found := self.answer) is None:
            return (*head, "", "", "", "unknown", "no header in the lock", "", "")
        made = found.prediction
        room = f"{sum(found.room) / GIB:.1f} GiB" if found.room else ""
        context = "" if found.largest_context is None else str(found.largest_context)
        parallel = "" if found.most_parallel is None else str(found.most_parallel)
        sizes = (f"{made.need / GIB:.1f} GiB", f"{made.safe / GIB:.1f} GiB", room)
        return (*head, *sizes, found.verdict or "room unknown", found.source, context, parallel)

    def as_json(self) -> dict[str, Any]:
        """It for programs, bytes."""
        head = {"rig": self.rig, "instance": self.instance, "variant": self.variant, "place": self.place}
        if (found := self.answer) is None:
            return {**head, "verdict": "unknown"}
        made = found.prediction
        return {
            **head,
            "verdict": found.verdict or "room unknown",
            "need": made.need,
            "safe": made.safe,
            "least": made.least,
            "need_per_card": list(made.per_card(made.need)),
            "room": list(found.room),
            "margin": found.margin,
            "basis": made.basis,
            "records": made.records,
            "moment": made.moment,
            "weights": found.computed.weights,
            "kv_cache": found.computed.cache,
            "context": found.computed.context,
            "parallel": found.computed.parallel,
            "largest_context": found.largest_context,
            "most_parallel": found.most_parallel,
            "ram": self.ram,
            "free_ram": self.free_ram or None,
        }


def assess_rig(
    host: str,
    rig: Rig,
    chosen: Sequence[Instance],
    measured: Sequence[MeasuredMemory],
    book: AcceptedRecords | None,
    context: int | None = None,
    parallel: int | None = None,
) -> list[FitRow]:
    """The answers for instances of a rig, beside its other instances."""
    placed = {one.name: _place(rig, one) for one in rig.instances}
    totals = {index: card.vram_mib * MIB for index, card in enumerate(rig.cards)}
    needs = {one.name: _card_needs(one, placed[one.name], measured, totals) for one in rig.instances}
    free_ram, swap = _free_ram(book)
    rows = []
    for instance in chosen:
        left = share_cards(totals, needs, instance.name)
        ram_room = (free_ram,) if free_ram else ()
        room = tuple(left[index] for index in instance.cards) if instance.cards else ram_room
        spare = 0 if instance.cards else swap
        answer = assess_memory(placed[instance.name], measured, room, swap=spare, context=context, parallel=parallel)
        ram = predict_ram(answer.computed, measured) if answer and instance.cards else None
        place = ", ".join(f"{index}: {rig.cards[index].name}" for index in instance.cards) or "RAM"
        rows.append(FitRow(host, instance.name, instance.variant_name, place, answer, ram, free_ram))
    return rows


def _card_needs(
    instance: Instance, placed: PlacedInstance, measured: Sequence[MeasuredMemory], totals: Mapping[int, int]
) -> dict[int, int]:
    """Bytes that an instance takes of each of its cards while it runs all the time."""
    found = assess_memory(placed, measured, ())
    if found is None or instance.is_on_demand:
        return {}
    parts = found.prediction.per_card(found.prediction.need)
    share = found.computed.share
    return {index: max(part, int(totals[index] * share)) for index, part in zip(instance.cards, parts, strict=False)}


def _place(rig: Rig, instance: Instance) -> PlacedInstance:
    patches = patches_by_target(rig.instances, rig.envs, rig.toolkit.patches)
    return place_instance(
        instance, (rig.cards[index] for index in instance.cards), patches.get(instance.installed_as, ())
    )


def _free_ram(book: AcceptedRecords | None) -> tuple[int, int]:
    """RAM and swap that the box had in its latest record; 0 if unknown."""
    every = [one for records in book.instances.values() for one in records] if book else []
    if not every:
        return 0, 0
    last = max(every, key=lambda one: one.moment)
    return last.free_ram, last.machine.SwapFree


def describe_measured(rig: Rig) -> dict[str, str]:
    """Instance -> the measured statement about it, empty where it fits; of instances that a record answers for.

    Raises:
        UnreadableRecords: a file of records is invalid.
    """
    try:
        changed = rig.memory_records.stat().st_mtime_ns
    except OSError:
        return {}
    books, measured = _load_measurements(rig.inventory, changed)
    rows = assess_rig(rig.name, rig, rig.instances, measured, books.get(rig.name))
    return {
        row.instance: row.answer.description if row.is_doubtful else ""
        for row in rows
        if row.answer and row.answer.prediction.basis != "floor"
    }


@lru_cache(maxsize=1)
def _load_measurements(inventory: str, _changed: int) -> tuple[Mapping[str, AcceptedRecords], Sequence[MeasuredMemory]]:
    """The records next to an inventory: read once for all of its rigs, and anew once its folder has changed."""
    books = load_all_records(inventory)
    return books, as_measurements(books)
