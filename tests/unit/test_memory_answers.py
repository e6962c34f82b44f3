"""Answers about the memory of several instances of a box: cards, RAM, neighbours and the driver."""

import json
from dataclasses import asdict, replace

import pytest

from rigwright.engines.computed_memory import compute_memory
from rigwright.engines.known_issues import place_instance
from rigwright.engines.llama_cpp.known_issues import estimate_memory
from rigwright.engines.memory_assessment import DRIVER_RESERVE
from rigwright.memory_answers import FitRow, assess_rig
from rigwright.memory_records import AcceptedRecords, StartMemory, as_measurements
from rigwright.model.instance import Instance
from rigwright.model.instance_schema import OnDemandEntry
from rigwright.supply.artefact import GgufMetadata, KvCacheSize
from tests.unit.samples import sample_artefact, sample_card, sample_instance, sample_parts, sample_rig
from tests.unit.vllm_samples import vllm_instance

GIB = 1 << 30
HEADER = GgufMetadata(architecture="llama", cache=KvCacheSize(keys=1000, values=500))
CARD = sample_card("8.6")


def locked_instance(name: str, size: int = GIB, **changes: object) -> Instance:
    """An instance of a model with a header."""
    digest = name[0] * 64
    parts = sample_parts(sample_artefact(name=name, file=f"{name}.gguf", sha256=digest, size=size, header=HEADER))
    return sample_instance(name, parts=parts, **changes)


def record_start(
    instance: Instance, peak: int, available: int, driver: str = "", ram: int = 0, **machine: int
) -> AcceptedRecords:
    """An accepted record of an instance."""
    placed = place_instance(instance, [CARD] * len(instance.cards), ())
    need = estimate_memory(placed)
    assert need is not None
    cards = {
        f"GPU-{index}2345678": {"peak": peak, "settled": peak, "name": "x", "index": index} for index in instance.cards
    }
    values = {
        **{"schema": 1, "fingerprint": "a" * 64, "seconds": 1.0, "cards": cards, "driver": driver, "lines": []},
        **{"host": {"peak": ram or peak, "settled": 0, "anon": ram or peak}, "moment": "2026-06-10T12:00:00Z"},
        **{"machine": {"MemAvailable": available, **machine}, "invocation": "1" * 32},
        "computed": {**asdict(compute_memory(placed, need)), "indexes": instance.cards},
    }
    return AcceptedRecords.model_validate_json(json.dumps({"instances": {instance.name: [values]}}))


def with_failure(
    book: AcceptedRecords, instance: Instance, result: str = "oom-kill", **changes: object
) -> AcceptedRecords:
    """The same with a later start of an instance that failed."""
    (one,) = record_start(instance, GIB, 0).instances[instance.name]
    values = {"outcome": "failed", "result": result, "moment": "2026-06-11T12:00:00Z", "invocation": "2" * 32}
    return book.with_records(instance.name, [one.model_copy(update={**values, **changes})])


def assess(*instances: Instance, book: AcceptedRecords | None = None) -> dict[str, FitRow]:
    """The answers for a box with one card."""
    rig = sample_rig(*instances, cards=(CARD,))
    measured = as_measurements({"box": book}) if book else []
    return {row.instance: row for row in assess_rig("box", rig, instances, measured, book)}


def test_instances_in_ram_see_each_other() -> None:
    first, second = locked_instance("a", GIB // 2), locked_instance("b", GIB // 2)
    book = record_start(first, 600 << 20, 200 << 20, others=0)
    alone = assess(first, book=book)["a"]
    assert (alone.free_ram, alone.verdict) == (800 << 20, "fits")
    both = assess(first, second, book=book)
    assert [row.verdict for row in both.values()] == ["does not fit", "does not fit"]
    more = assess(first, second, book=record_start(first, 600 << 20, 800 << 20, others=0))
    assert [row.verdict for row in more.values()] == ["may not fit", "may not fit"]
    most = assess(first, second, book=record_start(first, 600 << 20, 4 * GIB, others=0))
    assert [row.verdict for row in most.values()] == ["fits", "fits"]
    assert assess(first, replace(second, start="on-demand"), book=book)["a"].verdict == "fits"
    assert assess(first, second, book=record_start(first, 600 << 20, 200 << 20))["a"].verdict == "room unknown"


def limited(
    *instances: Instance, budget: str | None = None, book: AcceptedRecords | None = None, context: int | None = None
) -> dict[str, FitRow]:
    """The answers for a box without a card."""
    rig = replace(sample_rig(*instances), on_demand=OnDemandEntry(host_memory=budget))
    measured = as_measurements({"box": book}) if book else []
    return {row.instance: row for row in assess_rig("box", rig, instances, measured, book, context)}


def test_an_instance_on_demand_in_ram_has_the_budget_of_the_residency_service() -> None:
    first = replace(locked_instance("a", GIB // 2), start="on-demand")
    book = record_start(first, 600 << 20, 4 * GIB, others=0, MemTotal=8 * GIB)
    assert limited(first, book=book)["a"].verdict == "fits"
    for budget, verdict in (("1G", "fits"), ("500M", "does not fit"), ("5%", "does not fit"), ("90%", "fits")):
        row = limited(first, budget=budget, book=book)["a"]
        assert (row.verdict, row.first_start) == (verdict, ()), budget
        assert row.answer is not None
        assert row.answer.largest_context != 0 or verdict != "fits"
    # one at boot is not the service's
    assert limited(replace(first, start="boot"), budget="500M", book=book)["a"].verdict == "fits"
    warm = replace(locked_instance("b", GIB // 2), start="on-demand", keep_warm=True)
    both = record_start(warm, 600 << 20, 4 * GIB, others=0, MemTotal=8 * GIB).instances["b"]
    known = book.with_records("b", list(both))
    assert limited(first, warm, budget="2G", book=known)["a"].verdict == "fits"
    assert limited(first, warm, budget="1G", book=known)["a"].verdict == "does not fit"


def test_a_first_start_that_the_residency_service_refuses_does_not_count_as_one_that_fits() -> None:
    first = replace(locked_instance("a", GIB // 2), start="on-demand")
    # 512 MiB of weights, 3 MiB of KV cache and 512 MiB count for it
    for budget, verdict, refused in (("1G", "may not fit", True), ("400M", "does not fit", True)):
        row = limited(first, budget=budget)["a"]
        assert (row.verdict, bool(row.first_start)) == (verdict, refused), budget
        assert "its first start counts as 1.0 GiB of " in row.description
    assert limited(first, budget="8G")["a"].verdict == "room unknown"
    assert limited(first)["a"].verdict == "room unknown"
    near = record_start(first, 600 << 20, 4 * GIB, others=0, MemTotal=8 * GIB)
    row = limited(first, budget="1G", book=near, context=16384)["a"]
    assert row.answer is not None
    assert (row.answer.prediction.basis, row.verdict) == ("neighbour", "may not fit")


def test_a_refused_first_start_is_compared_with_the_device_that_lacks_the_memory() -> None:
    # 23 GiB of weights on each of two cards
    wide = replace(locked_instance("a", 46 * GIB, cards=(0, 1)), start="on-demand")
    (row,) = assess_rig("box", sample_rig(wide, cards=(CARD, CARD)), (wide,), [], None)
    assert row.answer is not None
    room = f"{row.answer.room[0] / GIB:.1f}"
    assert f"its first start counts as 24.5 GiB of {room} GiB of a card, so" in row.description

    # the residency service compares with its budget: `memory_max` is the kernel's
    limit = replace(locked_instance("a", 30 * GIB), start="on-demand", memory_max="4G")
    row = limited(limit, budget="16G")["a"]
    assert "its first start counts as 30.5 GiB of 16.0 GiB, so the residency service may refuse it" in row.description


def test_the_limit_of_a_unit_makes_a_larger_need_doubtful() -> None:
    instance = replace(locked_instance("a", GIB // 2), memory_max="300M")
    book = record_start(instance, 600 << 20, 4 * GIB, others=0, MemTotal=8 * GIB)
    assert assess(instance, book=book)["a"].verdict == "may not fit"
    assert assess(instance)["a"].verdict == "may not fit"
    assert assess(replace(instance, memory_max="2G"), book=book)["a"].verdict == "fits"
    assert assess(replace(instance, memory_max="2G"))["a"].verdict == "room unknown"


def test_a_neighbour_that_stays_loaded_takes_its_memory() -> None:
    large = locked_instance("a", 14 * GIB, cards=(0,))
    other = replace(locked_instance("b", 14 * GIB, cards=(0,)), start="on-demand")
    assert assess(large, other)["a"].verdict == "fits"
    assert assess(large, replace(other, keep_warm=True))["a"].verdict == "does not fit"
    assert assess(large, replace(other, start="boot"))["a"].verdict == "does not fit"


def test_a_neighbour_of_unknown_memory_makes_the_room_unknown() -> None:
    large = locked_instance("a", 14 * GIB, cards=(0,))
    moe = locked_instance("b", GIB, cards=(0,), flags={"cpu-moe": True})
    rows = assess(large, moe)
    assert (rows["a"].verdict, rows["b"].verdict) == ("room unknown", "unknown")
    assert rows["b"].as_json()["reason"] == "flags.cpu-moe"
    assert "flags.cpu-moe" in rows["b"].as_cells()
    elsewhere = replace(moe, cards=())
    assert assess(large, elsewhere)["a"].verdict == "fits"


@pytest.mark.parametrize(("driver", "basis"), [("595.91", "same variant"), ("600.1", "neighbour"), ("", "neighbour")])
def test_the_driver_of_the_box_decides_whether_a_start_is_the_same(driver: str, basis: str) -> None:
    instance = locked_instance("a", cards=(0,))
    measured = as_measurements({"other": record_start(instance, 2 * GIB, 0, "595.91")})
    book = record_start(locked_instance("b", cards=(0,)), 2 * GIB, 0, driver)
    (row,) = assess_rig("box", sample_rig(instance, cards=(CARD,)), [instance], measured, book)
    assert row.answer is not None
    assert row.answer.prediction.basis == basis


@pytest.mark.parametrize(
    ("free", "verdict"), [(2 * GIB, "fits"), (0, "fits"), (GIB, "may not fit"), (1, "does not fit")]
)
def test_the_verdict_has_ram_too(free: int, verdict: str) -> None:
    instance = locked_instance("a", cards=(0,))
    row = assess(instance, book=record_start(instance, 2 * GIB, GIB, ram=GIB, others=0))["a"]
    row = replace(row, free_ram=free)
    assert row.as_json()["verdict"] == verdict
    assert row.is_doubtful == (verdict != "fits")
    assert ("of RAM" in row.description) == (verdict != "fits")
    assert (row.as_json()["largest_context"] is None) == (verdict != "fits")


@pytest.mark.parametrize("cards", [(0,), ()])
def test_a_start_that_lacked_memory_makes_nothing_fit(cards: tuple[int, ...]) -> None:
    instance = locked_instance("a", cards=cards)
    book = record_start(instance, 2 * GIB, 9 * GIB, ram=GIB, others=0)
    before = assess(instance, book=book)["a"]
    row = assess(instance, book=with_failure(book, instance))["a"]
    assert (before.verdict, row.verdict) == ("fits", "may not fit")
    assert row.answer is not None
    assert before.answer is not None
    assert row.answer.prediction.need == before.answer.prediction.need
    assert "its last start failed: the kernel ended it for lack of memory on 2026-06-11" in row.description
    # no context that needs as much fits, and a smaller one may
    assert row.answer.largest_context is not None
    assert before.answer.largest_context is not None
    assert row.answer.largest_context < row.answer.computed.context <= before.answer.largest_context
    for changes in ({"result": "exit-code"}, {"outcome": "stopped"}, {"moment": "2026-06-09T12:00:00Z"}):
        assert assess(instance, book=with_failure(book, instance, **changes))["a"].verdict == "fits"


def test_a_first_start_that_lacked_memory_counts_without_a_measurement() -> None:
    instance = locked_instance("a", cards=())
    row = assess(instance, book=with_failure(AcceptedRecords(), instance))["a"]
    assert (row.verdict, row.is_doubtful) == ("may not fit", True)
    assert row.answer is not None
    assert (row.answer.prediction.basis, row.answer.room) == ("floor", ())
    other = locked_instance("b", cards=())
    assert assess(other, book=with_failure(AcceptedRecords(), instance))["b"].verdict == "room unknown"


def with_box_cards(book: AcceptedRecords, foreign: int, total: int = 0, index: int = 0) -> AcceptedRecords:
    """The same records with a look at the box's card."""
    card = {"index": index, "total": total or CARD.vram_mib << 20, "foreign": foreign}
    made = {
        name: tuple(
            StartMemory.model_validate({**one.model_dump(by_alias=True), "box_cards": {"GPU-02345678": card}})
            for one in records
        )
        for name, records in book.instances.items()
    }
    return book.model_copy(update={"instances": made})


def test_the_room_of_a_card_is_without_the_driver_and_other_processes() -> None:
    instance = locked_instance("a", cards=(0,))
    book, whole = record_start(instance, 2 * GIB, 9 * GIB, ram=GIB, others=0), CARD.vram_mib << 20
    row = assess(instance, book=book)["a"]
    assert row.answer is not None
    assert (row.answer.room, row.reserves, row.seen) == ((whole - DRIVER_RESERVE,), (DRIVER_RESERVE,), "")
    assert row.reserve_description == "no record of the box: 640 MiB of each card are assumed to be the driver's"
    for foreign, verdict in ((3 * GIB, "fits"), (whole - 2 * GIB, "may not fit"), (whole - GIB, "does not fit")):
        row = assess(instance, book=with_box_cards(book, foreign))["a"]
        assert row.answer is not None
        assert (row.answer.room, row.verdict) == ((whole - foreign,), verdict)
        assert f"as seen on 2026-06-10: GPU 0: {foreign >> 20} MiB" in row.reserve_description
    # a card that has less than is declared, and a record of another card
    row = assess(instance, book=with_box_cards(book, GIB, whole - GIB))["a"]
    assert row.answer is not None
    assert row.answer.room == (whole - 2 * GIB,)
    assert assess(instance, book=with_box_cards(book, GIB, index=1))["a"].seen == ""


def test_a_row_has_less_than_a_hundred_columns() -> None:
    instance = locked_instance("a-chat", 10 * GIB, cards=(0,))
    cells = assess(instance)["a-chat"].as_cells()
    assert sum(map(len, cells)) + 2 * len(cells) < 100


def shared_room(share: float, *others: Instance, foreign: int | None = None) -> int:
    """Bytes that an instance of vLLM can use, which takes a share of the card; 0 where it would not start."""
    box_record = record_start(locked_instance("a", cards=(0,)), GIB, 9 * GIB)
    book = None if foreign is None else with_box_cards(box_record, foreign)
    answer = assess(vllm_instance(gpu_memory_utilization=share, max_model_len=1024), *others, book=book)["chat"].answer
    assert answer is not None
    return answer.room[0]


def test_vllm_starts_only_where_its_share_of_the_whole_card_is_free() -> None:
    whole, usable = CARD.vram_mib << 20, int(((CARD.vram_mib << 20) - DRIVER_RESERVE) * 0.92)
    for free, room in ((22100 << 20, 0), (22608 << 20, 0), (22610 << 20, usable), (whole - DRIVER_RESERVE, usable)):
        # the record has the driver's memory and a desktop's together: CUDA's total may be nearly the whole card
        assert shared_room(0.92, foreign=whole - free) == room


@pytest.mark.parametrize("foreign", [None, 616 << 20, 620 << 20, 3 * GIB])
def test_a_first_start_that_needs_a_whole_card_is_refused_only_where_others_have_a_part(foreign: int | None) -> None:
    known = record_start(locked_instance("a", cards=(0,)), GIB, 9 * GIB)
    book = None if foreign is None else with_box_cards(known, foreign)
    first = vllm_instance(gpu_memory_utilization=0.99, max_model_len=1024, start="on-demand")
    assert bool(assess(first, book=book)["chat"].first_start) == (foreign == 3 * GIB)


@pytest.mark.parametrize("share", [0.92, 0.99, 1.0])
def test_without_a_record_the_reserve_is_the_drivers_and_the_rest_is_cudas(share: float) -> None:
    total = (CARD.vram_mib << 20) - DRIVER_RESERVE
    assert shared_room(share) == int(total * share)
    other = locked_instance("b", 3 * GIB, cards=(0,))
    assert shared_room(share, other) == 0
    assert shared_room(0.7, other) == int(total * 0.7)
