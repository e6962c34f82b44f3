"""Prediction of the memory of a start, from measured starts and computed sizes. Python's standard library only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Literal

MIB, GIB = 1 << 20, 1 << 30
STEP = 1024  # tokens; answers give contexts in such steps
SAME, NEIGHBOUR, BIAS, FLOOR = "same variant", "neighbour", "learned bias", "floor"
Basis = Literal["same variant", "neighbour", "learned bias", "floor"]
Verdict = Literal["fits", "may not fit", "does not fit"]
# Measured starts of other models, from which a bias is learned; of fewer nothing is known about their spread.
FEWEST = 3
# vLLM's own size is nearly the same for all models; the margin stays that without a record.
FEWEST_VLLM = 2


@dataclass(frozen=True)
class ComputedMemory:
    """Computed sizes of a launch before it starts, on its cards together; without cards, in RAM."""

    engine: str
    """The kind of its engine, and the version."""
    model: str
    """Digest of the weights."""
    options: str
    """Digest of the engine's locked files and of the settings beside context, sequences and type of the KV cache."""
    cards: tuple[str, ...]
    """Names of the cards, in its order; none for a launch in RAM."""
    driver: str
    context: int
    """Tokens over all sequences."""
    parallel: int
    """Sequences."""
    weights: int
    """Bytes."""
    cache: int
    """Bytes of the KV cache; 0 if unknown."""
    work: int = 0
    """Bytes of computation; 0 if unknown."""
    later: int = 0
    """Bytes in RAM that are taken only as contexts fill: a start does not touch them."""
    host: int = 0
    """Bytes in RAM of a launch on cards, such as embeddings."""
    share: float = 0.0
    """The part of each card that the engine takes whatever it needs; 0 for an engine that takes its need."""
    parts: tuple[float, ...] | None = field(default=(), compare=False)
    """Proportion of the model on each card; empty where all have the same, None if unknown."""

    @property
    def floor(self) -> int:
        """Bytes that it takes for certain."""
        return self.weights + self.cache + self.work

    @property
    def is_vllm(self) -> bool:
        """Whether vLLM serves it, from packages or in an image."""
        return self.engine.partition(" ")[0] in ("vllm", "image")

    @property
    def place(self) -> tuple[str, tuple[str, ...]]:
        """The engine and the cards: the memory of programs and libraries is alike in all launches of one."""
        return self.engine, self.cards


@dataclass(frozen=True)
class MeasuredMemory:
    """A start that was measured."""

    computed: ComputedMemory
    moment: str
    cards: tuple[int, ...]
    """Peak bytes on each card."""
    host: int
    """Peak bytes in RAM of its processes."""
    failure: str = ""
    """Why the start failed for lack of memory, which is then no measurement; empty for others."""

    @property
    def peak(self) -> int:
        """Bytes on cards together; without cards, in RAM."""
        return sum(self.cards) if self.computed.cards else self.host

    @property
    def residual(self) -> int:
        """Bytes beyond the computed ones."""
        return self.peak - self.computed.floor


@dataclass(frozen=True)
class MemoryPrediction:
    """The predicted peak of a start, over its cards together; without cards, in RAM."""

    need: int
    """The expected bytes."""
    least: int
    """With fewer it does not start."""
    safe: int
    """With as many it starts."""
    basis: Basis
    moment: str = ""
    """Of the record that it is from; empty for a floor."""
    records: int = 0
    """How many records it is from."""
    shares: tuple[float, ...] = ()
    """The part on each card; empty without cards, and where it is unknown."""
    each: int = 0
    """Of the safe bytes those that every card has whatever its part is."""
    failure: str = ""
    """Why the last start failed for lack of memory, so that nothing certainly fits; empty if it did not."""

    @property
    def margin(self) -> int:
        """Bytes of uncertainty above the expected ones."""
        return self.safe - self.need

    def per_card(self, size: int) -> tuple[int, ...]:
        """The part of so many bytes on each card."""
        return tuple(ceil(size * part) for part in self.shares)

    def safe_per_card(self) -> tuple[int, ...]:
        """The safe bytes of each card."""
        return tuple(size + self.each for size in self.per_card(self.safe - self.each * len(self.shares)))

    def judge(self, room: Sequence[int], swap: int = 0) -> Verdict:
        """The verdict on free bytes.

        Args:
            room: Of each card, or one number for RAM.
            swap: Bytes that may be free in addition, with which nothing is certain: swap, and margins of others.
        """
        alone = len(room) == 1 and len(self.shares) < 2
        split = len(room) > 1 and len(self.shares) == len(room)
        if alone and self.safe <= room[0] and not self.failure:
            return "fits"
        if (
            split
            and not self.failure
            and all(size <= there for size, there in zip(self.safe_per_card(), room, strict=True))
        ):
            return "fits"
        # of cards whose parts are unknown, only too little on all of them together is certain
        least, free = (self.per_card(self.least), tuple(room)) if split else ((self.least,), (sum(room),))
        lacks = any(size > there + swap for size, there in zip(least, free, strict=True))
        return "does not fit" if lacks else "may not fit"


@dataclass(frozen=True)
class Uncertainty:
    """Spread of a kind of prediction: bytes, or a part of the prediction, whichever is more."""

    size: int
    part: float

    def of(self, need: int) -> int:
        """Bytes for a prediction."""
        return max(self.size, ceil(need * self.part))


# Measured on CPU and cards (docs/reference/evidence.md, "Memory of a start"): above the largest errors.
SPREAD = {
    SAME: Uncertainty(64 * MIB, 0.01),
    NEIGHBOUR: Uncertainty(96 * MIB, 0.03),
    BIAS: Uncertainty(192 * MIB, 0.05),
}
# Without any record: bytes beyond the computed ones and a part of those, expected and at most, in RAM and on each card.
# Three starts of vLLM took 2.0 to 3.4 GiB more: 1.9 GiB and 9 % of the computed bytes.
UNRECORDED_RAM = (132 * MIB, 0.0, 512 * MIB, 0.10)
UNRECORDED_CARD = (818 * MIB, 0.0, 3 * GIB, 0.10)
UNRECORDED_VLLM = (1900 * MIB, 0.09, 3 * GIB, 0.15)
UNRECORDED_HOST = 8 * GIB  # RAM of a launch on cards beyond what is computed


def predict(launch: ComputedMemory, records: Iterable[MeasuredMemory]) -> MemoryPrediction:
    """The peak of a launch, by the nearest records; with safe bytes for what it takes later, too.

    Args:
        launch: Its computed sizes.
        records: Measured starts, the latest last.
    """
    every = list(records)
    made = _predict_start(launch, [one for one in every if not one.failure])
    return replace(made, safe=made.safe + launch.later, failure=_find_failure(launch, every))


def _find_failure(launch: ComputedMemory, records: Sequence[MeasuredMemory]) -> str:
    """The reason of a failed start of the same model, settings and cards that needs as much or less, if no later start
    that needs as much was ready. Records of any driver count, because the room may be too small with each.
    """
    found = ""
    for one in records:
        computed = one.computed
        if (computed.model, computed.options, *computed.place) != (launch.model, launch.options, *launch.place):
            continue
        if one.failure and computed.floor <= launch.floor:
            found = f"{one.failure} on {one.moment[:10]}"
        elif not one.failure and computed.floor >= launch.floor:
            found = ""
    return found


def _predict_start(launch: ComputedMemory, known: Sequence[MeasuredMemory]) -> MemoryPrediction:
    same = [one for one in known if _is_same(one.computed, launch)]
    if same:
        return _from_same(same)
    near = [one for one in known if _is_neighbour(one.computed, launch)]
    if near:
        return _from_neighbour(launch, near)
    others = [one for one in known if one.computed.place == launch.place and one.computed.share == launch.share]
    if len({one.computed.model for one in others}) >= (FEWEST_VLLM if launch.is_vllm else FEWEST):
        return _from_bias(launch, others)
    return _from_floor(launch)


def _is_same(one: ComputedMemory, launch: ComputedMemory) -> bool:
    """Whether a record is of the same variant on the same cards, and of the same driver."""
    return replace(one, later=0) == replace(launch, later=0)


def _is_neighbour(one: ComputedMemory, launch: ComputedMemory) -> bool:
    return (one.model, one.options, *one.place) == (launch.model, launch.options, *launch.place) and bool(
        (one.cache and launch.cache) or (one.context, one.parallel) == (launch.context, launch.parallel)
    )


def _median(values: Iterable[int]) -> float:
    """The middle one, or the mean of the two in the middle; `statistics` would import a dozen modules."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _record_shares(record: MeasuredMemory) -> tuple[float, ...]:
    total = sum(record.cards)
    return tuple(size / total for size in record.cards) if total and record.computed.cards else ()


def _declared_shares(launch: ComputedMemory) -> tuple[float, ...]:
    """Without a record: those that it declares."""
    if launch.parts is None:
        return ()
    parts = launch.parts or (1.0,) * len(launch.cards)
    return tuple(part / sum(parts) for part in parts)


def _from_same(records: Sequence[MeasuredMemory]) -> MemoryPrediction:
    # a start that ended at once took less than one that has computed for a minute
    largest = max(reversed(records), key=lambda one: one.peak)
    need, fewest, spread = largest.peak, min(one.peak for one in records), SPREAD[SAME]
    return MemoryPrediction(
        need=need,
        least=max(0, fewest - spread.of(fewest)),
        safe=need + spread.of(need),
        basis="same variant",
        moment=largest.moment,
        records=len(records),
        shares=_record_shares(largest),
    )


def _from_neighbour(launch: ComputedMemory, near: Sequence[MeasuredMemory]) -> MemoryPrediction:
    def distance(one: MeasuredMemory) -> int:
        return abs(one.computed.floor - launch.floor)

    nearest = min(reversed(near), key=lambda one: (distance(one), -one.peak))
    need = nearest.peak - nearest.computed.floor + launch.floor
    # the computed change by another context is uncertain, too: a tenth of it counts
    spread = SPREAD[NEIGHBOUR].of(need) + distance(nearest) // 10
    return MemoryPrediction(
        need=need,
        least=max(launch.weights + launch.cache, need - spread),
        safe=need + spread,
        basis="neighbour",
        moment=nearest.moment,
        records=len(near),
        shares=_record_shares(nearest),
    )


def _from_bias(launch: ComputedMemory, others: Sequence[MeasuredMemory]) -> MemoryPrediction:
    residuals = sorted(one.residual for one in others)
    need = launch.floor + round(_median(residuals))
    # few records do not show a quantile's tail: the largest residual, and half of the spread more
    beyond = max(0, (residuals[-1] - residuals[0]) // 2)
    spread = SPREAD[BIAS].of(need)
    safe, number = launch.floor + residuals[-1] + beyond + spread, len(launch.cards)
    # records of other models do not show how layers divide, and few models of vLLM were measured: the margin without
    # a record, on each card
    if number > 1 or launch.is_vllm:
        safe = max(safe, _from_floor(launch).safe)
    return MemoryPrediction(
        need=need,
        least=max(launch.weights + launch.cache, launch.floor + residuals[0] - beyond - spread),
        safe=safe,
        basis="learned bias",
        moment=max(one.moment for one in others),
        records=len(others),
        shares=_declared_shares(launch),
        each=(safe - launch.floor) // number if number > 1 else 0,
    )


def _from_floor(launch: ComputedMemory) -> MemoryPrediction:
    on_cards = UNRECORDED_VLLM if launch.is_vllm else UNRECORDED_CARD
    size, part, most, most_part = on_cards if launch.cards else UNRECORDED_RAM
    number, floor = max(1, len(launch.cards)), launch.floor
    return MemoryPrediction(
        need=floor + number * size + ceil(floor * part),
        least=launch.weights + launch.cache,
        safe=floor + number * most + ceil(floor * most_part),
        basis="floor",
        shares=_declared_shares(launch),
        each=most if launch.cards else 0,
    )


def predict_ram(launch: ComputedMemory, records: Iterable[MeasuredMemory]) -> MemoryPrediction:
    """RAM that a launch on cards keeps, without pages of files, by records of the same settings."""
    ready = [one for one in records if not one.failure]
    known = [one for one in ready if (one.computed.options, *one.computed.place) == (launch.options, *launch.place)]
    same = [one.host for one in known if _is_same(one.computed, launch)]
    if same:
        need, spread = max(same), SPREAD[SAME].of(max(same))
        return MemoryPrediction(need, max(0, min(same) - spread), need + spread, "same variant", records=len(same))
    if known:
        need = launch.host + max(0, *(one.host - one.computed.host for one in known))
        return MemoryPrediction(need, launch.host, need + SPREAD[BIAS].of(need), "neighbour", records=len(known))
    return MemoryPrediction(launch.host, launch.host, launch.host + UNRECORDED_HOST, "floor")


Compute = Callable[[int, int], ComputedMemory]
"""The computed sizes of the launch with another context (of all sequences) and number of sequences."""


def find_largest_context(
    compute: Compute, parallel: int, most: int, records: Sequence[MeasuredMemory], room: Sequence[int]
) -> int:
    """The largest context over all sequences that certainly fits, in whole steps; 0 where none does.

    Args:
        compute: The launch with another context.
        parallel: Its sequences.
        most: The largest context that is of use.
        records: Measured starts.
        room: Free bytes of each card, or of RAM.
    """

    def has_room(steps: int) -> bool:
        return predict(compute(steps * STEP, parallel), records).judge(room) == "fits"

    low, high = 0, max(0, most // STEP)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if has_room(middle) else (low, middle - 1)
    return low * STEP


def find_most_parallel(
    compute: Compute, each: int, most: int, records: Sequence[MeasuredMemory], room: Sequence[int]
) -> int:
    """The most sequences with so many tokens each that certainly fit; 0 where none does.

    Args:
        compute: The launch with other sequences.
        each: Tokens of one sequence.
        most: The most sequences that are of use.
        records: Measured starts.
        room: Free bytes of each card, or of RAM.
    """
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        fits = predict(compute(each * middle, middle), records).judge(room) == "fits"
        low, high = (middle, high) if fits else (low, middle - 1)
    return low
