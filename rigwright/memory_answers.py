"""Answers about the memory of a rig's instances, by the records next to its inventory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from rigwright.engines.known_issue_rule import PlacedInstance
from rigwright.engines.known_issues import place_instance
from rigwright.engines.llama_cpp.known_issues import LLAMA_UNSIZED
from rigwright.engines.memory_assessment import (
    DRIVER_RESERVE,
    MemoryAssessment,
    assess_memory,
    share_cards,
    without_room,
)
from rigwright.engines.memory_fit import GIB, MIB
from rigwright.engines.memory_prediction import MeasuredMemory, MemoryPrediction, Verdict, predict_ram
from rigwright.engines.vllm.known_issues import VLLM_UNSIZED
from rigwright.memory_records import AcceptedRecords, StartMemory, as_measurements, load_all_records
from rigwright.model.instance import Instance, patches_by_target
from rigwright.model.rig import Rig
from rigwright.serving.residency import estimate_floor
from rigwright.validated_types import memory_bytes


@dataclass(frozen=True)
class FitRow:
    """The answer for one instance."""

    rig: str
    instance: str
    variant: str
    place: str
    answer: MemoryAssessment | None
    """None where nothing is known of its model's memory."""
    ram: MemoryPrediction | None = None
    """RAM of an instance on cards."""
    free_ram: int = 0
    """Bytes of RAM that its box has for it; 0 if unknown."""
    spare_ram: int = 0
    """Bytes of RAM that may be free in addition."""
    gpus: tuple[int, ...] = ()
    reserves: tuple[int, ...] = ()
    """Bytes of each card that the driver and processes of no instance have; the room excludes them."""
    seen: str = ""
    """The moment at which they were seen; empty where they are assumed."""
    reason: str = "no header in the lock"
    """Of an answer that is missing."""
    first_start: tuple[int, ...] = ()
    """Bytes that count for a first start on demand, and those of the device that lacks them; empty where it fits."""

    @property
    def ram_verdict(self) -> Verdict | None:
        """The verdict on the RAM of an instance on cards; None where that is unknown."""
        return self.ram.judge((self.free_ram,), self.spare_ram) if self.ram and self.free_ram else None

    @property
    def verdict(self) -> str:
        """The verdict on cards and RAM."""
        if self.answer is None:
            return "unknown"
        both = (self.answer.verdict, self.ram_verdict)
        if "does not fit" in both or None in both[:1]:
            return "does not fit" if "does not fit" in both else "room unknown"
        return "may not fit" if "may not fit" in both else "fits"

    @property
    def is_doubtful(self) -> bool:
        """Whether it is not certain to fit."""
        return self.verdict in ("may not fit", "does not fit")

    @property
    def description(self) -> str:
        """The answer in words; empty without one."""
        answer = self.answer.description if self.answer else ""
        return "; ".join(filter(None, (answer, self.ram_description, self.first_start_description)))

    @property
    def first_start_description(self) -> str:
        """The statement about a first start that the residency service refuses; empty where it does not."""
        if not self.first_start or not self.answer:
            return ""
        sizes = " of ".join(f"{size / GIB:.1f} GiB" for size in self.first_start) + " of a card" * (len(self.gpus) > 1)
        return f"its first start counts as {sizes}, so the residency service may refuse it"

    @property
    def ram_description(self) -> str:
        """The statement about its RAM; empty where that is enough."""
        if not self.ram or self.ram_verdict in (None, "fits"):
            return ""
        sizes = f"{self.ram.need / GIB:.1f} GiB (at most {self.ram.safe / GIB:.1f}) of {self.free_ram / GIB:.1f} GiB"
        return f"takes {sizes} of RAM by {self.ram.basis}: {self.ram_verdict}"

    @property
    def reserve_description(self) -> str:
        """The statement about what no instance has of its cards; empty for one in RAM."""
        if not self.reserves:
            return ""
        if not self.seen:
            return f"no record of the box: {max(self.reserves) >> 20} MiB of each card are assumed to be the driver's"
        sizes = ", ".join(f"GPU {gpu}: {size >> 20} MiB" for gpu, size in zip(self.gpus, self.reserves, strict=True))
        return f"without those of the driver and of other processes, as seen on {self.seen[:10]}: {sizes}"

    def _most(self) -> tuple[int | None, int | None]:
        """The largest context and parallelism that certainly fit; None if unknown."""
        if self.answer is None or self.ram_verdict not in (None, "fits"):
            return None, None
        return self.answer.largest_context, self.answer.most_parallel

    def as_cells(self) -> tuple[str, ...]:
        """It for the table."""
        place = f"GPU {','.join(map(str, self.gpus))}" if self.gpus else self.place
        head = (self.rig, self.instance, self.variant, place)
        if (found := self.answer) is None:
            return (*head, "", "unknown", self.reason, "", "")
        made = found.prediction
        room = f" of {sum(found.room) / GIB:.1f}" if found.room else ""
        most = ("" if one is None else str(one) for one in self._most())
        sizes = " to ".join(dict.fromkeys(f"{size / GIB:.1f}" for size in (made.need, made.safe)))
        return (*head, f"{sizes}{room}", self.verdict, made.basis, *most)

    def as_json(self) -> dict[str, Any]:
        """It for programs, bytes."""
        head = {"rig": self.rig, "instance": self.instance, "variant": self.variant, "place": self.place}
        if (found := self.answer) is None:
            return {**head, "verdict": "unknown", "reason": self.reason}
        made = found.prediction
        largest, most = self._most()
        return {
            **head,
            "verdict": self.verdict,
            "need": made.need,
            "safe": made.safe,
            "least": made.least,
            "need_per_card": list(made.per_card(made.need)),
            "room": list(found.room),
            "reserves": list(self.reserves),
            "reserves_seen": self.seen or None,
            "margin": found.margin,
            "basis": made.basis,
            "records": made.records,
            "moment": made.moment,
            "failure": made.failure,
            "weights": found.computed.weights,
            "kv_cache": found.computed.cache,
            "context": found.computed.context,
            "parallel": found.computed.parallel,
            "largest_context": largest,
            "most_parallel": most,
            "ram": self.ram.need if self.ram else None,
            "ram_safe": self.ram.safe if self.ram else None,
            "ram_basis": self.ram.basis if self.ram else None,
            "free_ram": self.free_ram or None,
        }


@dataclass(frozen=True)
class _Taken:
    """Bytes that an instance takes at most while it runs all the time."""

    cards: Mapping[int, int] | None
    """GPU index -> bytes; None if unknown."""
    ram: int | None
    """None if unknown."""
    cards_spare: int = 0
    """Of them those that it may leave free, on cards together."""
    ram_spare: int = 0


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
    reserves, seen = _find_reserves(totals, book)
    rooms = {index: max(0, size - reserves[index]) for index, size in totals.items()}
    # a record does not tell the driver's memory from that of other processes; without one, the reserve is the driver's
    cuda = totals if seen else rooms
    driver, last = _find_driver(rig, book), _last_record(book)
    total = last.machine.MemTotal >> 10 if last else 0
    taken = {one.name: _measure_taken(one, placed[one.name], measured, totals, driver) for one in rig.instances}
    rows = []
    for instance in chosen:
        others = {name: one for name, one in taken.items() if name != instance.name}
        free_ram, spare_ram = _ram_room(book, list(others.values()))
        ledger = _limit_ledger(rig, instance, others, total)
        if instance.cards:
            room, spare = _card_room(rig, instance, others, rooms)
        else:
            room, spare = _limit_ram(instance, ledger, total, free_ram, spare_ram)
        answer = assess_memory(
            placed[instance.name],
            measured,
            room,
            swap=spare,
            context=context,
            parallel=parallel,
            driver=driver,
            totals=[cuda[index] for index in instance.cards],
        )
        first_start = _find_lack(rig, instance, answer, (ledger,) * bool(ledger) or room[: len(instance.cards)])
        if answer and first_start and answer.verdict == "fits":
            answer = replace(answer, verdict="may not fit", largest_context=None, most_parallel=None)
        if answer and answer.verdict == "fits" and not (instance.cards or free_ram):
            answer = without_room(answer)  # by its limits alone: the RAM of its box is unknown
        ram = predict_ram(answer.computed, measured) if answer and instance.cards else None
        place = ", ".join(f"{index}: {rig.cards[index].name}" for index in instance.cards) or "RAM"
        reason = "" if answer else _explain_unknown(instance)
        row = FitRow(host, instance.name, instance.variant_name, place, answer, ram, free_ram, spare_ram)
        kept = tuple(reserves[index] for index in instance.cards)
        row = replace(row, gpus=instance.cards, reason=reason, reserves=kept, seen=seen, first_start=first_start)
        rows.append(row)
    return rows


def _find_reserves(totals: Mapping[int, int], book: AcceptedRecords | None) -> tuple[dict[int, int], str]:
    """Bytes of each card that are no instance's, and when they were seen: by the latest record that has all cards.

    Args:
        totals: Card -> its declared bytes.
        book: The box's records.
    """
    every = [one for records in book.instances.values() for one in records] if book else []
    for record in sorted(every, key=lambda one: one.moment, reverse=True):
        known = {card.index: card for card in record.box_cards.values()}
        if record.outcome == "ready" and totals.keys() <= known.keys():
            left = {index: min(size, known[index].total) - known[index].foreign for index, size in totals.items()}
            return {index: size - max(0, left[index]) for index, size in totals.items()}, record.moment
    return dict.fromkeys(totals, DRIVER_RESERVE), ""


def _explain_unknown(instance: Instance) -> str:
    """Why nothing is known of an instance's memory."""
    unsized = LLAMA_UNSIZED | VLLM_UNSIZED
    has_header = any(file.header for file in instance.weights)
    option = next((name for name in getattr(instance.variant, "flags", {}) if name in unsized), "")
    return f"flags.{option}" if has_header and option else "no header in the lock"


def _find_driver(rig: Rig, book: AcceptedRecords | None) -> str:
    """The driver of a box by its latest record; empty if unknown, and where the locked driver is another one."""
    last = _last_record(book, ready=False)
    locked = [row.version for rows in rig.driver_supply.packages.values() for row in rows if row.kind == "deb"]
    known = last.driver if last else ""
    return known if not locked or any(known in version for version in locked) else ""


def _measure_taken(
    instance: Instance,
    placed: PlacedInstance,
    measured: Sequence[MeasuredMemory],
    totals: Mapping[int, int],
    driver: str,
) -> _Taken:
    if instance.is_on_demand and not instance.keep_warm:
        return _Taken({}, 0)
    found = assess_memory(placed, measured, (), driver=driver)
    if found is None:
        return _Taken(None if instance.cards else {}, None)
    made, is_known = found.prediction, found.is_certain
    if not instance.cards:
        return _Taken({}, made.safe if is_known else None, ram_spare=made.safe - made.least)
    parts, ram = made.safe_per_card(), predict_ram(found.computed, measured)
    share = found.computed.share
    cards = {index: max(part, int(totals[index] * share)) for index, part in zip(instance.cards, parts, strict=False)}
    is_known = is_known and len(parts) == len(instance.cards)
    return _Taken(cards if is_known else None, ram.safe, made.safe - made.least, ram.safe - ram.least)


def _card_room(
    rig: Rig, instance: Instance, others: Mapping[str, _Taken], totals: Mapping[int, int]
) -> tuple[tuple[int, ...], int]:
    """Free bytes of an instance's cards beside others, and those that may be free in addition; empty if unknown."""
    beside = {one.name: others[one.name] for one in rig.instances if one.name in others}
    used = {one.name for one in rig.instances if set(one.cards) & set(instance.cards)} & beside.keys()
    needs = {name: beside[name].cards for name in used}
    known = {name: cards for name, cards in needs.items() if cards is not None}
    if len(known) < len(needs):
        return (), 0
    left = share_cards(totals, known, instance.name)
    return tuple(left[index] for index in instance.cards), sum(beside[name].cards_spare for name in used)


def _place(rig: Rig, instance: Instance) -> PlacedInstance:
    patches = patches_by_target(rig.instances, rig.envs, rig.toolkit.patches)
    return place_instance(
        instance, (rig.cards[index] for index in instance.cards), patches.get(instance.installed_as, ())
    )


def _last_record(book: AcceptedRecords | None, *, ready: bool = True) -> StartMemory | None:
    """A box's latest record, of starts that were ready or of all."""
    found = [one for records in book.instances.values() for one in records] if book else []
    every = [one for one in found if one.outcome == "ready" or not ready]
    return max(every, key=lambda one: one.moment, default=None)


def _ram_room(book: AcceptedRecords | None, others: Sequence[_Taken]) -> tuple[int, int]:
    """RAM of the box beside its other instances, and bytes that may be free in addition, such as swap; 0 if unknown.

    Args:
        book: The box's records.
        others: Its other instances.
    """
    last, sizes = _last_record(book), [one.ram for one in others]
    known = [size for size in sizes if size is not None]
    if last is None or not last.free_ram or len(known) < len(sizes) or (others and last.machine.others is None):
        return 0, 0
    left = last.free_ram - sum(known)
    return max(1, left), last.machine.SwapFree + sum(one.ram_spare for one in others) + min(0, left)


def _limit_ledger(rig: Rig, instance: Instance, others: Mapping[str, _Taken], total: int) -> int:
    """Bytes of `host_memory` for an instance on demand without cards, beside those that stay loaded; 0 if unknown.

    Args:
        rig: Its rig.
        instance: The instance.
        others: Its other instances.
        total: RAM of its box in KiB; 0 if unknown.
    """
    declared = rig.on_demand.host_memory if instance.is_on_demand and not instance.cards else None
    if not declared or (declared.endswith("%") and not total):
        return 0
    warm = {one.name for one in rig.instances if one.is_on_demand and one.keep_warm and not one.cards}
    return max(1, memory_bytes(declared, total) - sum(others[name].ram or 0 for name in warm & others.keys()))


def _limit_ram(instance: Instance, ledger: int, total: int, free: int, spare: int) -> tuple[tuple[int, ...], int]:
    """RAM for an instance without cards within its limits, and bytes that may be free in addition; empty if unknown.

    Args:
        instance: The instance, with `memory_max`: beyond it, the kernel first drops pages of files.
        ledger: Bytes that `host_memory` leaves it; 0 for no limit.
        total: RAM of its box in KiB; 0 if unknown.
        free: RAM of the box beside others; 0 if unknown.
        spare: Bytes that may be free in addition, such as swap.
    """
    own = memory_bytes(instance.memory_max, total) if total or not instance.memory_max.endswith("%") else 0
    most = min(filter(None, (free, ledger)), default=0)
    room = min(filter(None, (most, own)), default=0)
    return (room,) if room else (), (spare if most == free else 0) + (most or 1 << 60) - room


def _find_lack(rig: Rig, instance: Instance, answer: MemoryAssessment | None, room: Sequence[int]) -> tuple[int, ...]:
    """Bytes that count for an instance on demand without a record, and those of the device that lacks most of them.

    Args:
        rig: Its rig.
        instance: The instance.
        answer: The answer about it.
        room: Bytes of each card, or of the host, that the residency service has for it.
    """
    if not instance.is_on_demand or answer is None or answer.prediction.basis == "same variant":
        return ()
    pairs = zip(estimate_floor(rig, instance).values(), room, strict=False)
    return max((one for one in pairs if one[0] > one[1]), key=lambda one: one[0] - one[1], default=())


def describe_measured(rig: Rig) -> dict[str, str]:
    """Instance -> the measured statement about it, empty where it fits; of instances that a record answers for, and of
    those on demand whose first start their box refuses.

    Raises:
        UnreadableRecords: a file of records is invalid.
    """
    try:
        changed = rig.memory_records.stat().st_mtime_ns
    except OSError:
        changed = 0
    if not changed and not any(one.is_on_demand for one in rig.instances):
        return {}
    books, measured = _load_measurements(rig.inventory, changed)
    rows = assess_rig(rig.name, rig, rig.instances, measured, books.get(rig.name))
    return {
        row.instance: row.description if row.is_doubtful else ""
        for row in rows
        if (made := row.answer.prediction if row.answer else None)
        and (made.failure or row.first_start or (made.basis != "floor" and row.verdict != "room unknown"))
    }


@lru_cache(maxsize=1)
def _load_measurements(inventory: str, _changed: int) -> tuple[Mapping[str, AcceptedRecords], Sequence[MeasuredMemory]]:
    """The records next to an inventory: read once for all of its rigs, and anew once its folder has changed."""
    books = load_all_records(inventory)
    return books, as_measurements(books)
