"""Predictions of memory by records, and verdicts on free memory."""

from dataclasses import replace

import pytest

from benchmarks.memory_fit.trial import TrialRow, percentile
from rigwright.engines.llama_buffers import WorkShape, llama_windowed_cells
from rigwright.engines.memory_prediction import (
    GIB,
    MIB,
    ComputedMemory,
    MeasuredMemory,
    MemoryPrediction,
    find_largest_context,
    find_most_parallel,
    predict,
    predict_ram,
)

CARD = ("NVIDIA GeForce RTX 3090",)
TOKEN = 128 * 1024  # bytes of a token's KV cache


def computed(model: str = "a", context: int = 8192, **changes: object) -> ComputedMemory:
    made = ComputedMemory("llama.cpp 1", model, "o", CARD, "", context, 1, 8 * GIB, context * TOKEN, 64 * MIB)
    return replace(made, **changes)


def measured(launch: ComputedMemory, beyond: int, moment: str = "2026-01-01T00:00:00Z") -> MeasuredMemory:
    return MeasuredMemory(launch, moment, (launch.floor + beyond,), 2 * GIB)


def test_the_same_variant_is_its_own_record() -> None:
    made = predict(computed(), [measured(computed(), 500 * MIB), measured(computed("b"), 900 * MIB)])
    assert (made.basis, made.need, made.records) == ("same variant", computed().floor + 500 * MIB, 1)
    assert made.least < made.need < made.safe


def test_another_driver_is_no_equal_record() -> None:
    record = measured(replace(computed(), driver="595.91"), 500 * MIB)
    assert predict(replace(computed(), driver="595.91"), [record]).basis == "same variant"
    assert predict(replace(computed(), driver="600.1"), [record]).basis == "neighbour"
    assert predict(computed(), [record]).basis == "neighbour"


def test_another_context_moves_by_the_computed_cache() -> None:
    made = predict(computed(context=32768), [measured(computed(), 500 * MIB)])
    assert made.basis == "neighbour"
    assert made.need == computed().floor + 500 * MIB + (32768 - 8192) * TOKEN


@pytest.mark.parametrize(
    "change", [{"model": "b"}, {"options": "p"}, {"cards": (*CARD, *CARD)}, {"engine": "llama.cpp 2"}, {"cache": 0}]
)
def test_other_launches_are_no_neighbours(change: dict[str, object]) -> None:
    launch = replace(computed(context=32768), **change)
    assert predict(launch, [measured(computed(), 500 * MIB)]).basis == "floor"


def test_a_bias_takes_three_models_and_covers_the_largest_residual() -> None:
    records = [measured(computed(name), size * MIB) for name, size in (("b", 400), ("c", 500), ("d", 900))]
    assert predict(computed(), records[:2]).basis == "floor"
    made = predict(computed(), records)
    assert (made.basis, made.need) == ("learned bias", computed().floor + 500 * MIB)
    assert made.safe > computed().floor + 900 * MIB


@pytest.mark.parametrize(
    ("room", "verdict"),
    [((13 * GIB,), "fits"), ((12 * GIB - 1,), "may not fit"), ((10 * GIB - 1,), "does not fit")],
)
def test_a_verdict_is_certain_or_none(room: tuple[int, ...], verdict: str) -> None:
    made = MemoryPrediction(11 * GIB, 10 * GIB, 12 * GIB, "floor", shares=(1.0,))
    assert made.judge(room) == verdict


def test_swap_makes_nothing_certain() -> None:
    made = MemoryPrediction(11 * GIB, 10 * GIB, 12 * GIB, "same variant")
    assert made.judge((9 * GIB,), 2 * GIB) == "may not fit"
    assert made.judge((9 * GIB,), GIB - 1) == "does not fit"


def test_each_card_needs_its_own_part() -> None:
    made = MemoryPrediction(10 * GIB, 10 * GIB, 10 * GIB, "same variant", shares=(0.75, 0.25))
    assert made.judge((8 * GIB, 3 * GIB)) == "fits"
    assert made.judge((7 * GIB, 5 * GIB)) == "does not fit"


@pytest.mark.parametrize("shares", [(), (1.0,), (0.5, 0.25, 0.25)])
def test_room_of_other_cards_never_fits(shares: tuple[float, ...]) -> None:
    made = MemoryPrediction(10 * GIB, 10 * GIB, 10 * GIB, "same variant", shares=shares)
    assert made.judge((30 * GIB, 30 * GIB)) == "may not fit"
    assert made.judge((4 * GIB, 5 * GIB)) == "does not fit"


def test_without_a_record_the_declared_parts_count() -> None:
    pair = computed(cards=(*CARD, *CARD))
    declared = predict(replace(pair, parts=(3.0, 1.0)), [])
    assert declared.shares == (0.75, 0.25)
    assert declared.judge((8 * GIB, 24 * GIB)) == "may not fit"
    assert declared.judge((24 * GIB, 8 * GIB)) == "fits"
    # each card has the engine's own memory whatever its part of the model is
    assert declared.judge((24 * GIB, 4 * GIB)) == "may not fit"
    first = predict(replace(pair, parts=(1.0, 0.0)), [])
    assert first.judge((8 * GIB, 24 * GIB)) == "does not fit"
    unknown = predict(replace(pair, parts=None), [])
    assert unknown.judge((24 * GIB, 24 * GIB)) == "may not fit"
    assert predict(pair, []).shares == (0.5, 0.5)


def test_a_bias_of_several_cards_has_the_margin_of_each() -> None:
    pair = (*CARD, *CARD)
    records = [measured(computed(name, cards=pair), 500 * MIB) for name in "bcd"]
    made = predict(computed(cards=pair), records)
    assert (made.basis, made.safe) == ("learned bias", predict(computed(cards=pair), []).safe)


# Measured starts without a record, MiB: weights, KV cache, peak (vLLM 0.21.0, one H200).
@pytest.mark.parametrize(("weights", "cache", "peak"), [(797, 896, 3774), (2938, 1792, 7060), (14749, 2304, 20512)])
def test_the_margin_without_a_record_covers_vllm(weights: int, cache: int, peak: int) -> None:
    launch = computed(engine="vllm 0.21.0", weights=weights * MIB, cache=cache * MIB, work=0)
    made = predict(launch, [])
    assert made.basis == "floor"
    assert made.need == pytest.approx(peak * MIB, rel=0.05)
    assert made.safe - peak * MIB > GIB


def test_what_a_start_does_not_touch_counts_for_certainty_alone() -> None:
    launch = computed(cards=())
    record = MeasuredMemory(launch, "2026-01-01T00:00:00Z", (), launch.floor)
    plain = predict(launch, [record])
    later = predict(replace(launch, later=GIB), [record])
    assert (later.need, later.safe) == (plain.need, plain.safe + GIB)


def test_the_largest_context_and_parallelism_are_certain() -> None:
    records = [measured(computed(), 500 * MIB)]

    def compute(tokens: int, sequences: int) -> ComputedMemory:
        return computed(context=tokens, parallel=sequences)

    largest = find_largest_context(compute, 1, 1 << 20, records, (24 * GIB,))
    assert predict(compute(largest, 1), records).judge((24 * GIB,)) == "fits"
    assert predict(compute(largest + 1024, 1), records).judge((24 * GIB,)) != "fits"
    most = find_most_parallel(compute, 8192, 256, records, (24 * GIB,))
    assert most == largest // 8192
    assert find_largest_context(compute, 1, 1 << 20, records, (GIB,)) == 0


def test_ram_of_a_launch_on_cards_is_certain_by_records_of_its_settings_alone() -> None:
    same = predict_ram(computed(), [measured(computed(), 0)])
    assert (same.need, same.basis) == (2 * GIB, "same variant")
    other = predict_ram(computed("b", host=GIB), [measured(computed(), 0)])
    assert (other.need, other.least, other.basis) == (3 * GIB, GIB, "neighbour")
    record = measured(computed(options="no-mmap off"), 0)
    floor = predict_ram(computed(host=GIB), [record])
    assert (floor.need, floor.least, floor.basis) == (GIB, GIB, "floor")
    assert floor.judge((4 * GIB,)) == "may not fit"
    assert floor.judge((GIB - 1,)) == "does not fit"


# Sizes as llama.cpp 0c1e570 reports them, MiB: width, feed-forward, heads, cells, sequences, flash, windowed, buffer.
@pytest.mark.parametrize(
    ("shape", "cells", "sequences", "reported"),
    [
        (WorkShape(1024, 4096, 16), 1024, 4, 33.01),
        (WorkShape(1024, 4096, 16), 16384, 1, 48.01),
        (WorkShape(1024, 4096, 16, batch=1024), 16384, 1, 96.02),
        (WorkShape(1024, 4096, 16, flash=False), 8192, 1, 283.01),
        (WorkShape(512, 1024, 8), 16384, 1, 25.01),
        (WorkShape(768, 2048, 12, windowed=True), 4096, 1, 20.02),
    ],
)
def test_the_compute_buffer_of_llama_cpp(shape: WorkShape, cells: int, sequences: int, reported: float) -> None:
    made = (shape.step_bytes(cells, sequences) + shape.context_bytes(cells, sequences)) / MIB
    assert made == pytest.approx(reported, rel=0.3)


def test_windowed_cells_are_padded() -> None:
    assert llama_windowed_cells(16384, 512) == 1024
    assert llama_windowed_cells(16384, 512, 1024) == 1536
    assert llama_windowed_cells(768, 512) == 768


# Starts of vLLM 0.21.0 on an H200: model, context, computed bytes of weights, KV cache and computation, measured bytes
# (docs/reference/evidence.md, "Memory of a start").
VLLM_STARTS = (
    ("v01", 16384, 835846144, 939524096, 87293952, 3957325824),
    ("v01", 65536, 835846144, 3758096384, 87293952, 6790578176),
    ("v01", 16384, 835846144, 939524096, 87293952, 3984588800),
    ("v02", 16384, 3080964096, 1879048192, 141819904, 7402946560),
    ("v02", 65536, 3080964096, 7516192768, 141819904, 12897484800),
    ("v02", 16384, 3080964096, 1879048192, 141819904, 7342129152),
    ("v04", 16384, 15465015296, 2415919104, 316407808, 21508390912),
)


@pytest.mark.parametrize("has_work", [True, False])
def test_a_model_that_vllm_never_started_is_predicted_from_two_others(has_work: bool) -> None:
    # instances of a rig have no computed bytes of vLLM's computation
    records = [
        MeasuredMemory(
            replace(computed(model, context), engine="vllm", weights=weights, cache=cache, work=work * has_work),
            f"{number:04}",
            (peak,),
            GIB,
        )
        for number, (model, context, weights, cache, work, peak) in enumerate(VLLM_STARTS)
    ]
    rows = []
    for one in records:
        others = [record for record in records if record.computed.model != one.computed.model]
        made = predict(one.computed, others)
        assert made.basis == "learned bias"
        assert made.judge((one.peak - 1,)) != "fits"
        assert made.least <= one.peak <= made.safe
        assert made.safe - one.peak > GIB
        rows.append(TrialRow("", made.basis, made.need, made.least, made.safe, one.peak, 0.0))
    errors = [abs(row.error) for row in rows]
    assert percentile(errors, 0.95) == max(errors)
    assert round(100 * max(errors), 1) == (5.4 if has_work else 6.4)
    assert predict(records[0].computed, [one for one in records if one.computed.model == "v02"]).basis == "floor"
