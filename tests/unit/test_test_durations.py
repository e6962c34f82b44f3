"""How tests are shared out by what they took, and what they may add up to."""

from pathlib import Path

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


def test_each_process_finds_the_same_shares_where_all_take_as_long() -> None:
    items = [(name, name) for name in "abc"]
    assert partition_tests(items, {}) == partition_tests(items[::-1], {}) == [{"a", "c"}, {"b"}]


def test_shares_take_about_as_long() -> None:
    record = recorded_durations(a=100, b=60, c=50, d=10)
    assert partition_tests([(group_name(name), name) for name in record], record) == [
        {"tests/a.py::test", "tests/d.py::test"},
        {"tests/b.py::test", "tests/c.py::test"},
    ]


def test_tests_of_one_file_on_one_release_stay_together() -> None:
    releases = {"w": "debian-13", "x": "debian-12", "y": "debian-12", "z": "debian-13"}
    names = [f"tests/a.py::test_{n}[{release}]" for n, release in releases.items()]
    first, second = partition_tests([(group_name(name), name) for name in names], {})
    assert first == {name for name in names if "debian-12" in name}
    assert second == {name for name in names if "debian-13" in name}


def test_what_all_alone_runs_of_a_file_of_unit_tests_stays_with_the_file() -> None:
    record = {
        "tests/unit/test_a.py": RecordedDuration(40, 40, False),
        "tests/unit/test_a.py in all": RecordedDuration(30, 30, True),
    }
    record |= {"tests/unit/test_b.py": RecordedDuration(50, 50, False)}
    assert partition_tests([(group_name(name), name) for name in record], record) == [
        {"tests/unit/test_a.py", "tests/unit/test_a.py in all"},
        {"tests/unit/test_b.py"},
    ]


def test_a_test_that_was_never_recorded_counts_as_a_usual_one() -> None:
    record = recorded_durations(a=30, b=20, c=10)
    items = [(group_name(name), name) for name in [*record, "tests/new.py::test"]]
    assert partition_tests(items, record) == [
        {"tests/a.py::test", "tests/c.py::test"},
        {"tests/b.py::test", "tests/new.py::test"},
    ]


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    record = DurationRecord(
        {
            "hosts": recorded_durations(a=1.5),
            "types": {"mypy": RecordedDuration(9.25, 8.0, False), "all": RecordedDuration(2.0, 1.0, True)},
        }
    )
    record.save(tmp_path / "durations.json")
    assert DurationRecord.load(tmp_path / "durations.json") == record
    assert DurationRecord.load(tmp_path / "none.json") == DurationRecord({})


def test_what_was_measured_takes_the_place_of_what_was_there() -> None:
    old = DurationRecord(
        {
            "hosts": {
                "a.py": RecordedDuration(1, 0, False),
                "gone.py": RecordedDuration(9, 9, False),
                "more.py": RecordedDuration(5, 5, True),
            }
        }
    )
    new = old.with_measured("hosts", {"a.py": (2, False), "new.py": (3, False)}, whole=False)
    assert new.stages["hosts"] == {
        "a.py": RecordedDuration(2, 1, False),
        "new.py": RecordedDuration(3, 0, False),
        "more.py": RecordedDuration(5, 5, True),
    }
    assert new.with_measured("types", {}, whole=False).stages["hosts"] == new.stages["hosts"]
    assert "more.py" not in old.with_measured("hosts", {"a.py": (2, False)}, whole=True).stages["hosts"]


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


@pytest.mark.parametrize("whole", [False, True])
def test_where_something_failed_what_was_not_measured_is_kept(whole: bool) -> None:
    old = DurationRecord(
        {
            "hosts": {
                "a.py": RecordedDuration(1, 0, False),
                "red.py": RecordedDuration(9, 8, False),
                "more.py": RecordedDuration(5, 5, True),
            }
        }
    )
    new = old.with_measured("hosts", {"a.py": (2, False)}, whole, failed=True)
    assert new.stages["hosts"] == {**old.stages["hosts"], "a.py": RecordedDuration(2, 1, False)}


def test_a_record_is_of_what_there_is_now() -> None:
    old = DurationRecord(
        {
            "hosts": {
                **recorded_durations(a=10, b=30, gone=80),
                "fixture x": RecordedDuration(7, 7, False),
                "fixture y": RecordedDuration(5, 5, True),
            }
        }
    )
    there = {"tests/a.py::test": True, "tests/b.py::test": False, "tests/new.py::test": False}
    assert old.restricted_to("hosts", {**there, "fixture x": True, "fixture new": False}).stages["hosts"] == {
        "tests/a.py::test": RecordedDuration(10, 10, True),
        "tests/b.py::test": RecordedDuration(30, 30, False),
        "tests/new.py::test": RecordedDuration(40, 0, False),
        "fixture x": RecordedDuration(7, 7, True),
    }
    assert old.restricted_to("unit", {"tests/unit/test_new.py": False}).stages["unit"] == {
        "tests/unit/test_new.py": RecordedDuration(1, 0, False)
    }


@pytest.mark.parametrize(("stage", "longest", "waited"), [("bench", 110, 30), ("hosts", 100, 15)])
def test_a_total_is_that_of_the_longest_process_and_a_share_of_what_all_wait_for(
    stage: str, longest: int, waited: int
) -> None:
    parts = recorded_durations(a=100, b=60, c=50) | {"fixture first_run debian-13": RecordedDuration(60, 60, False)}
    parts["tests/d.py::test"] = RecordedDuration(500, 500, True)
    record = DurationRecord({stage: parts, "types": {"mypy": RecordedDuration(9, 9, False)}})
    assert record.total_seconds(whole=False) == longest + waited + 9
    assert record.total_seconds(whole=True) == 500 + waited + 9


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


def test_the_five_files_that_grew_most_are_named_and_what_all_alone_runs_only_where_it_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = {f"{n}.py": RecordedDuration(10.0 + n, 10.0, False) for n in range(1, 8)} | {
        "only.py": RecordedDuration(90.0, 1.0, True)
    }
    record = DurationRecord({"unit": rows})
    assert [line.partition(":")[0] for line in record.describe_growth(whole=False)] == [
        f"{n}.py" for n in (7, 6, 5, 4, 3)
    ]
    assert record.describe_growth(whole=True)[0] == "only.py: 1.0 s before, 90.0 s now"
    quick, whole = record.total_seconds(whole=False), record.total_seconds(whole=True)
    monkeypatch.setattr(test_durations, "BUDGETS", {"test": quick, "all": whole})
    assert record.budget_problems() == []
    monkeypatch.setattr(test_durations, "BUDGETS", {"test": quick - 1, "all": whole})
    assert not [line for line in record.budget_problems() if "only.py" in line]
