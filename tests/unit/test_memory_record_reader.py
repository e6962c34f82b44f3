"""Records of starts as the controller reads them: refused values, accepted records, measurements and failures."""

import json
from pathlib import Path

import pytest

from rigwright import memory_records
from rigwright.memory_records import (
    AcceptedRecords,
    UnreadableRecords,
    as_measurements,
    load_accepted,
    load_all_records,
    parse_host_records,
    records_path,
    save_accepted,
)
from tests.unit.test_memory_records import COMPUTED, sample_record


@pytest.mark.parametrize(
    "change",
    [
        {"fingerprint": "$(reboot)"},
        {"seconds": -1},
        {"host": {"peak": "1", "settled": 1}},
        {"host": {"peak": 1 << 60, "settled": 1}},
        {"cards": {"GPU-../../x": {"peak": 1, "settled": 1, "name": "x"}}},
        {"lines": ["\x1b[2J"]},
        {"lines": ["x" * 301]},
        {"moment": "yesterday"},
        {"computed": {**COMPUTED, "parallel": 0}},
        {"history": [{}]},
    ],
)
def test_another_value_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(UnreadableRecords):
        parse_host_records(json.dumps(sample_record(**change)))


def test_accepted_records_are_kept_next_to_the_inventory(tmp_path: Path) -> None:
    inventory = str(tmp_path / "rig.py")
    path = records_path(inventory, "box")
    assert load_accepted(path) == AcceptedRecords()
    records = parse_host_records(json.dumps(sample_record()))
    book = AcceptedRecords().with_records("chat", records).with_records("chat", records)
    assert len(book.instances["chat"]) == 1
    save_accepted(path, book)
    assert load_all_records(inventory) == {"box": book}
    assert len(as_measurements({"box": book})) == 1
    path.write_text("{}x")
    with pytest.raises(UnreadableRecords, match=r"memory/box\.json: .*restore it, or remove it"):
        load_all_records(inventory)


BIG = {"weights": 16 << 30}


def test_a_share_counts_without_the_cache_that_is_not_needed() -> None:
    line = "INFO [gpu_worker.py:300] Available KV cache memory: 5.00 GiB"
    card = {"GPU-12345678": {"peak": 20 << 30, "settled": 20 << 30, "name": "x"}}
    changes = {"engine": "vllm 0.21.0", "cards": ["rtx"], "share": 0.9, "cache": 1 << 30}
    values = sample_record(computed={**COMPUTED, **changes}, cards=card, lines=[line])
    (one,) = parse_host_records(json.dumps(values))
    found = one.as_measured()
    assert found is not None
    assert found.peak == 16 << 30
    # the engine's process writes its log: a false line makes no other launch fit
    for lines in ([], ["Available KV cache memory: 99999 GiB"], ["Available KV cache memory: 19.9 GiB"]):
        (one,) = parse_host_records(json.dumps({**values, "lines": lines, "computed": {**COMPUTED, **changes} | BIG}))
        assert one.as_measured() is None


def test_without_a_card_that_answers_a_launch_on_cards_is_no_measurement() -> None:
    values = sample_record(computed={**COMPUTED, "cards": ["rtx"]})
    (one,) = parse_host_records(json.dumps(values))
    assert one.as_measured() is None


def pair_record(indexes: tuple[int | None, ...], declared: list[int], count: int = 2) -> dict[str, object]:
    """A record of two declared cards."""
    cards = {
        f"GPU-{number}2345678": {"peak": size << 30, "settled": 0, "name": "x", "index": index}
        for number, (size, index) in enumerate(zip((20, 5, 1), indexes, strict=False))
    }
    return sample_record(computed={**COMPUTED, "cards": ["rtx"] * count, "indexes": declared}, cards=cards)


def test_parts_of_cards_are_in_the_declared_order() -> None:
    (one,) = parse_host_records(json.dumps(pair_record((0, 3), [3, 0])))
    found = one.as_measured()
    assert found is not None
    assert found.cards == (5 << 30, 20 << 30)


@pytest.mark.parametrize(
    ("indexes", "declared"),
    [((0, 1, 2), [0, 1]), ((0,), [0, 1]), ((0, 2), [0, 1]), ((None, None), [0, 1]), ((0, 1), [])],
)
def test_a_record_of_other_cards_is_no_measurement(indexes: tuple[int | None, ...], declared: list[int]) -> None:
    (one,) = parse_host_records(json.dumps(pair_record(indexes, declared)))
    assert one.as_measured() is None


LACKS = {"outcome": "failed", "result": "exit-code", "host": {"peak": 1, "settled": 0}}


@pytest.mark.parametrize(
    ("line", "failure"),
    [
        ("E llama_model_load: error loading model: unable to allocate CUDA0 buffer", "the engine did not get a buffer"),
        (
            "0.00.5 E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 99.00 MiB on device 0: cudaMalloc failed: "
            "out of memory",
            "the engine did not get a buffer",
        ),
        (
            "0.00.009.728 E ggml_aligned_malloc: insufficient memory (attempted to allocate  19.73 MB)",
            "the engine did not get a buffer",
        ),
        ("alloc_tensor_range: failed to allocate CPU buffer of size 999999488", "the engine did not get a buffer"),
        (
            "(EngineCore pid=7) ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0",
            "CUDA had no memory left",
        ),
        (
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.",
            "vLLM had too little memory for its KV cache",
        ),
        ("unable to allocate CUDA0 buffer; and now for something else", ""),
        ("a client's prompt has: unable to allocate room", ""),
        ("", ""),
    ],
)
def test_the_reason_of_a_failed_start_is_matched_whole(line: str, failure: str) -> None:
    (one,) = parse_host_records(json.dumps({"failures": [sample_record(**LACKS, failure_lines=[line])]}))
    assert one.memory_failure == failure
    assert (one.as_failure() is not None) == bool(failure)
    assert one.as_measured() is None
    (stopped,) = parse_host_records(json.dumps(sample_record(failure_lines=[line], outcome="stopped")))
    assert stopped.memory_failure == ""


def test_an_end_by_the_kernel_is_a_lack_of_memory() -> None:
    for change in ({"result": "oom-kill"}, {"cgroup": {"oom_kill": 1}}):
        (one,) = parse_host_records(json.dumps(sample_record(**{**LACKS, **change})))
        assert one.memory_failure == "the kernel ended it for lack of memory"


def test_failures_push_no_measurement_out() -> None:
    every = [sample_record(f"{number:032x}") for number in range(memory_records.KEPT)]
    every += [sample_record(f"{number:032x}", **LACKS) for number in range(1000, 1030)]
    found = [one for row in every for one in parse_host_records(json.dumps(row))]
    kept = AcceptedRecords().with_records("chat", found).instances["chat"]
    assert len(kept) == memory_records.KEPT
    assert sum(one.outcome == "failed" for one in kept) == memory_records.KEPT_FAILURES
