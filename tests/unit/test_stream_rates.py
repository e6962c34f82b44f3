"""Rates of streams that `bench speed` leaves out: measurements that are too short, or that contradict each other."""

import pytest

from bench.load_ladder_results import LadderStep
from bench.load_statistics import RequestTimes
from bench.speed_protocol import MeasuredPart, drop_impossible_rates


def _streams_part(count: int, *seconds: float) -> MeasuredPart:
    made = MeasuredPart(f"{count} stream{'s' * (count > 1)} 100/500", 500)
    for each in seconds:
        made.add_rung(LadderStep(count, each, (RequestTimes(0.1, (), each, 500),) * count, {}, 0.0))
    return made


def test_streams_that_end_within_a_moment_have_no_rate() -> None:
    made = _streams_part(2, 0.13, 5)
    assert made.rates == {made.name: [200]}
    assert made.left_out == ["too short to tell a rate: 1000 tokens in 0.13 s"]


@pytest.mark.parametrize(("four_s", "kept"), [(2.6, False), (6.6, True), (8.0, True), (20.0, True)])
def test_more_streams_cannot_make_more_than_as_many_times_one(four_s: float, kept: bool) -> None:
    """Four streams make at most four times the tokens of one; otherwise other work has slowed the one."""
    parts = {part.name: part for part in (_streams_part(1, 6.6), _streams_part(2, 7.0), _streams_part(4, four_s))}
    drop_impossible_rates(parts)
    assert all(bool(part.rates) == kept for part in parts.values())
    assert all(any("other work slowed the box" in why for why in part.left_out) != kept for part in parts.values())
