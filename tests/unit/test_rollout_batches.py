"""Batches of a rollout: order, sizes, and the instances that keep serving."""

from datetime import datetime, timezone

import pytest

from rigwright.rollout.batch_plan import BatchLimits, RolloutBox, RolloutRefused, plan_batches, resolve_batch_size

NOW = datetime(2026, 11, 28, 12, 0, tzinfo=timezone.utc)  # a Saturday


def make_box(name: str, **changes: object) -> RolloutBox:
    """A box with one ready instance of `chat`, which a deploy interrupts."""
    values: dict[str, object] = {"serving": {"chat": 1}, "interrupted": {"chat": 1}, "seconds": 60.0}
    return RolloutBox(name, **(values | changes))  # type: ignore[arg-type]


def batches_of(boxes: list[RolloutBox], limits: BatchLimits, *targets: str) -> list[tuple[str, ...]]:
    return [one.boxes for one in plan_batches(boxes, targets or [box.name for box in boxes], limits, NOW)]


FOUR = [make_box(name) for name in ("a", "b", "c", "d")]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (BatchLimits(), [("a",), ("b",), ("c",), ("d",)]),
        (BatchLimits(canary=0, batch=2), [("a", "b"), ("c", "d")]),
        (BatchLimits(canary=1, batch=2), [("a",), ("b", "c"), ("d",)]),
        (BatchLimits(canary=2, batch=3), [("a", "b"), ("c", "d")]),
        # one instance of the model stays
        (BatchLimits(canary=0, batch=4), [("a", "b", "c"), ("d",)]),
        (BatchLimits(canary=0, batch=4, allowed_outages=frozenset({"chat"})), [("a", "b", "c", "d")]),
        (BatchLimits(canary=3, batch=3, max_unavailable=2), [("a", "b"), ("c", "d")]),
    ],
)
def test_sizes(limits: BatchLimits, expected: list[tuple[str, ...]]) -> None:
    assert batches_of(FOUR, limits) == expected


@pytest.mark.parametrize(
    ("text", "boxes", "size"), [("3", 10, 3), ("25%", 10, 2), ("1%", 10, 1), ("100%", 7, 7), ("50%", 1, 1)]
)
def test_a_share_is_rounded_down_to_at_least_one_box(text: str, boxes: int, size: int) -> None:
    assert resolve_batch_size(text, boxes) == size


def test_a_box_comes_after_the_boxes_that_it_fetches_weights_from() -> None:
    boxes = [
        make_box("a", sources=frozenset({"c"})),
        make_box("b", sources=frozenset({"a"})),
        make_box("c"),
        make_box("d"),
    ]
    assert batches_of(boxes, BatchLimits(canary=0, batch=2)) == [("c", "d"), ("a",), ("b",)]


def test_boxes_that_fetch_from_each_other_keep_the_order_of_the_inventory() -> None:
    boxes = [make_box("a", sources=frozenset({"b"})), make_box("b", sources=frozenset({"a"})), make_box("c")]
    assert batches_of(boxes, BatchLimits(canary=0)) == [("c",), ("a",), ("b",)]


def test_a_source_outside_of_the_rollout_delays_nothing() -> None:
    boxes = [make_box("a", sources=frozenset({"b"})), make_box("b")]
    assert batches_of(boxes, BatchLimits(), "a") == [("a",)]


def test_the_capacity_counts_all_boxes_of_the_inventory() -> None:
    (batch,) = plan_batches(FOUR, ["b"], BatchLimits(), NOW)
    assert batch.capacity == {"chat": (3, 4)}
    assert batch.is_canary
    assert batch.seconds == 60.0


def test_a_last_instance_needs_consent_by_name() -> None:
    boxes = [make_box("a"), make_box("b", serving={"code": 1}, interrupted={"code": 1}, aliases={"gpt": "code"})]
    with pytest.raises(RolloutRefused) as refused:
        plan_batches(boxes, ["a", "b"], BatchLimits(), NOW)
    assert refused.value.reasons == (
        "a has the last instance of chat: --allow-outage chat consents to its interruption",
        "b has the last instance of code: --allow-outage code consents to its interruption",
    )
    consent = BatchLimits(allowed_outages=frozenset({"chat", "gpt"}))
    assert batches_of(boxes, consent) == [("a",), ("b",)]


def test_a_box_whose_instances_stay_needs_no_consent() -> None:
    assert batches_of([make_box("a", interrupted={})], BatchLimits()) == [("a",)]


def test_an_unknown_model_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(RolloutRefused, match='there is no model "chta"; did you mean "chat"'):
        plan_batches(FOUR, ["a"], BatchLimits(allowed_outages=frozenset({"chta"})), NOW)


def test_boxes_that_are_down_already_count_as_unavailable() -> None:
    boxes = [*FOUR, make_box("e", serving={}, interrupted={}, fault="chat is failed")]
    assert batches_of(boxes, BatchLimits(canary=0, batch=4, max_unavailable=3), "a", "b", "c") == [("a", "b"), ("c",)]
    with pytest.raises(RolloutRefused, match=r"--max-unavailable 1: 1 already unavailable \(e: chat is failed\)"):
        plan_batches(boxes, ["a"], BatchLimits(max_unavailable=1), NOW)


def test_a_batch_begins_in_the_windows_of_all_its_boxes() -> None:
    windows = {"a": "Sat 02:00-05:00", "b": "Sat 04:00-06:00", "c": "Sun 02:00-05:00"}
    boxes = [make_box(box.name, windows=(windows[box.name],) if box.name in windows else ()) for box in FOUR]
    planned = plan_batches(boxes, [*windows, "d"], BatchLimits(canary=0, batch=3, soak_minutes=60), NOW)
    assert [(one.boxes, one.opening and f"{one.opening:%a %d %H:%M}") for one in planned] == [
        # c's window has no common time with a's
        (("a", "b", "d"), "Sat 05 04:00"),
        (("c",), "Sun 06 02:00"),
    ]


def test_an_opening_counts_the_batches_before_it() -> None:
    boxes = [make_box(name, windows=("Sat 11:00-12:10",), seconds=600.0) for name in ("a", "b", "c")]
    planned = plan_batches(boxes, ["a", "b", "c"], BatchLimits(soak_minutes=10), NOW)
    assert [f"{one.opening:%d %H:%M}" for one in planned] == ["28 12:00", "05 11:00", "05 11:20"]
