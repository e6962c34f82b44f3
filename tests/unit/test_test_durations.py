"""How tests are shared out by what they took, and what they may add up to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli import test_durations
from cli.test_durations import ALL_SUFFIX, DurationRecord, RecordedDuration, group_name, partition_tests

SECONDS = st.floats(0, 1000, allow_nan=False)


def recorded_durations(**seconds: float) -> dict[str, RecordedDuration]:
    """Tests of files, by the file's name."""
    return {f"tests/{name}.py::test": RecordedDuration(value, value, False) for name, value in seconds.items()}


@given(st.dictionaries(st.text(min_size=1, max_size=3), SECONDS), st.integers(1, 4), st.data())
def test_each_test_is_in_one_share(seconds: dict[str, float], number: int, data: st.DataObject) -> None:
    names = sorted(seconds)
    known = data.draw(st.sets(st.sampled_from(names))) if names else set()
    record = {name: RecordedDuration(seconds[name], 0.0, False) for name in known}
    items = [(data.draw(st.sampled_from("abc")), name) for name in names]
    shares = partition_tests(items, record, number)
    assert sorted(name for one in shares for name in one) == names
    assert partition_tests(list(reversed(items)), record, number) == shares


def test_shares_take_about_as_long() -> None:
    record = recorded_durations(a=100, b=60, c=50, d=10)
    assert partition_tests([(group_name(name), name) for name in record], record) == [
        {"tests/a.py::test", "tests/d.py::test"},
        {"tests/b.py::test", "tests/c.py::test"},
    ]


def test_a_file_of_unit_tests_is_in_the_stage_of_what_it_takes_now() -> None:
    fast, slow = "tests/unit/test_fast.py", "tests/unit/test_slow.py"
    old = {
        fast: RecordedDuration(1, 1, False),
        slow: RecordedDuration(9, 9, False),
        slow + ALL_SUFFIX: RecordedDuration(0.5, 0.5, True),
    }
    record = DurationRecord(
        {"unit": old, "programs": {"fixture made": RecordedDuration(5, 5, False)}}
    ).with_programs_apart()
    assert set(record.stages["unit"]) == {fast}
    assert set(record.stages["programs"]) == {slow, slow + ALL_SUFFIX, "fixture made"}
    assert record.programs == {slow}
    now = record.with_measured("programs", {slow: (1.5, False)}, whole=False)
    assert set(now.stages["unit"]) == {fast, slow, slow + ALL_SUFFIX}
    assert now.stages["unit"][slow] == RecordedDuration(1.5, 9, False)
    assert now.with_measured("unit", {fast: (3.5, False), slow: (1.5, False)}, whole=False).programs == {fast}
    # however long it takes, what `all` alone runs does not count
    only = {fast + ALL_SUFFIX: RecordedDuration(90, 90, True), fast: RecordedDuration(1, 1, False)}
    assert DurationRecord({"unit": only}).with_programs_apart().programs == set()


def test_a_budget_that_is_exceeded_names_what_grew_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_durations, "BUDGETS", {"test": 100, "all": 1000})
    record = DurationRecord(
        {
            "unit": {
                "a.py": RecordedDuration(120, 40, False),
                "b.py": RecordedDuration(90, 85, False),
                "c.py": RecordedDuration(5, 9, False),
            }
        }
    )
    assert record.budget_problems() == [
        "`rigwright test` takes 120 s, and may take 100 s",
        "  a.py: 40.0 s before, 120.0 s now",
        "  b.py: 85.0 s before, 90.0 s now",
    ]
    assert record.added_seconds() == 120 - 85
    monkeypatch.setattr(test_durations, "BUDGETS", {"unit": 100})
    assert record.budget_problems()[0] == "`rigwright test unit` takes 120 s, and may take 100 s"
    whole = DurationRecord({"unit": {**record.stages["unit"], "d.py": RecordedDuration(999, 500, True)}})
    assert whole.added_seconds() == 120 - 85
