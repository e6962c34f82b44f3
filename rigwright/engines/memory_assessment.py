"""The memory of a rig's instances beside what their cards and RAM have: verdict, margin, record, and what would fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from rigwright.engines import kind_of
from rigwright.engines.computed_memory import compute_memory
from rigwright.engines.known_issue_rule import PlacedInstance
from rigwright.engines.memory_fit import MIB, MemoryNeed
from rigwright.engines.memory_prediction import (
    GIB,
    STEP,
    Compute,
    ComputedMemory,
    MeasuredMemory,
    MemoryPrediction,
    Verdict,
    find_largest_context,
    find_most_parallel,
    predict,
)

MOST_SEQUENCES = 256
LARGEST_FACTOR = 64  # times the declared context, up to which a larger one is looked for
MOST_CONTEXT = 1 << 24
# Assumed of each card without a record: an H200 with driver 580 reserves 616 MiB (docs/reference/evidence.md).
DRIVER_RESERVE = 640 * MIB


@dataclass(frozen=True)
class MemoryAssessment:
    """The answer for one instance."""

    prediction: MemoryPrediction
    computed: ComputedMemory
    room: tuple[int, ...]
    """Free bytes of each card, or of RAM; empty if unknown."""
    verdict: Verdict | None
    """None where the room is unknown."""
    largest_context: int | None
    """Tokens over all sequences that certainly fit; None if unknown."""
    most_parallel: int | None
    """Sequences of the declared length that certainly fit; None if unknown."""
    key: str = "context"
    """The key of its variant for the context."""
    is_certain: bool = True
    """Whether the safe bytes have everything that it takes."""

    @property
    def margin(self) -> int | None:
        """Free bytes beyond the safe ones; negative where they lack."""
        return sum(self.room) - self.prediction.safe if self.room else None

    @property
    def source(self) -> str:
        """The record that the answer is from, in words."""
        made = self.prediction
        if made.basis == "floor":
            return "floor of the header"
        date = made.moment[:10]
        return f"{made.basis}, {date}" if made.records == 1 else f"{made.basis}, {made.records} starts to {date}"

    @property
    def description(self) -> str:
        """The answer in one sentence."""
        made = self.prediction
        size = f"{made.need / GIB:.1f} GiB (at most {made.safe / GIB:.1f})"
        if self.room:
            size += f" of {sum(self.room) / GIB:.1f} GiB"
        text = f"takes {size} by {self.source}" + (f": {self.verdict}" if self.verdict else "")
        if made.failure:
            text += f": its last start failed: {made.failure}"
        if self.verdict is None:
            return text
        if self.verdict == "fits" or self.largest_context is None:
            return text
        cure = f"{self.key} = {self.largest_context} fits" if self.largest_context else "no context certainly fits"
        return f"{text}; {cure}"


def assess_memory(
    one: PlacedInstance,
    records: Sequence[MeasuredMemory],
    room: Sequence[int],
    *,
    swap: int = 0,
    context: int | None = None,
    parallel: int | None = None,
    driver: str = "",
    totals: Sequence[int] = (),
) -> MemoryAssessment | None:
    """The answer for an instance; None where its kind cannot say what it computes with.

    Args:
        one: The instance on its cards.
        records: Measured starts.
        room: Free bytes of each of its cards, or of RAM; empty if unknown.
        swap: Bytes that may be free in addition, such as swap for an instance in RAM.
        context: Tokens over all sequences in place of its own.
        parallel: Sequences in place of its own.
        driver: The driver of its box; empty if unknown.
        totals: The largest total that CUDA may have of each of its cards; empty for all of the cards' memory.
    """
    need = kind_of(one.instance).memory(one)
    if need is None:
        return None

    def compute(tokens: int, sequences: int) -> ComputedMemory:
        given = (None, None) if (tokens, sequences) == (need.tokens, need.requests) else (tokens, sequences)
        return compute_memory(one, need, driver=driver, context=given[0], parallel=given[1])

    return assess_computed(compute, need, records, _limit_room(one, need, room, totals), context, parallel, swap)


def _limit_room(
    one: PlacedInstance, need: MemoryNeed, room: Sequence[int], totals: Sequence[int] = ()
) -> tuple[int, ...]:
    """Free bytes that count: an engine that takes a share of a card uses no more, and does not start with less.

    The share is one of CUDA's total, which excludes the driver's reserve. Only bounds of that reserve are known, so a
    start needs the share of the largest total, and uses the share of the smallest.
    """
    if not need.takes_share or not one.cards or len(room) != len(one.cards):
        return tuple(room)
    sizes = [card.vram_mib * MIB for card in one.cards]
    required = [int(size * need.share) for size in totals or sizes]
    usable = [int(max(0, size - DRIVER_RESERVE) * need.share) for size in sizes]
    return tuple(use if least <= free else 0 for use, least, free in zip(usable, required, room, strict=True))


def assess_computed(
    compute: Compute,
    need: MemoryNeed,
    records: Sequence[MeasuredMemory],
    room: tuple[int, ...],
    context: int | None = None,
    parallel: int | None = None,
    swap: int = 0,
) -> MemoryAssessment:
    """The answer for computed sizes.

    Args:
        compute: The sizes with another context and number of sequences.
        need: The estimate of its kind.
        records: Measured starts.
        room: Free bytes of each card, or of RAM; empty if unknown.
        context: Tokens over all sequences in place of the estimate's.
        parallel: Sequences in place of the estimate's.
        swap: Bytes that may be free in addition.
    """
    sequences = parallel or need.requests
    tokens = context if context is not None else need.tokens
    computed = compute(tokens, sequences)
    made = predict(computed, records)
    known = bool(room) and need.is_complete and tokens > 0
    verdict = made.judge(room, swap) if room else None
    # without a start of the same variant, memory of unknown size makes nothing certain
    is_certain = need.is_complete or made.basis == "same variant"
    if made.failure and verdict is None:
        verdict = "may not fit"
    if verdict == "fits" and not is_certain:
        verdict = "may not fit"
    most = min(MOST_CONTEXT, tokens * LARGEST_FACTOR)
    each = max(STEP, tokens // sequences)
    return MemoryAssessment(
        prediction=made,
        computed=computed,
        room=room,
        verdict=verdict,
        largest_context=find_largest_context(compute, sequences, most, records, room) if known else None,
        most_parallel=find_most_parallel(compute, each, MOST_SEQUENCES, records, room) if known else None,
        key=need.key,
        is_certain=is_certain,
    )


def share_cards(totals: Mapping[int, int], needs: Mapping[str, Mapping[int, int]], name: str) -> dict[int, int]:
    """Free bytes of each card for one of several instances: all but what the others take.

    Args:
        totals: Card -> its bytes.
        needs: Instance -> card -> bytes that it takes.
        name: The instance.
    """
    taken = {card: sum(cards.get(card, 0) for one, cards in needs.items() if one != name) for card in totals}
    return {card: max(0, size - taken[card]) for card, size in totals.items()}


def without_room(one: MemoryAssessment) -> MemoryAssessment:
    """It where nothing is known about free memory."""
    return replace(one, room=(), verdict=None, largest_context=None, most_parallel=None)
