"""Recorded durations of steps, by which a run knows its time left."""

from pathlib import Path

import pytest

from roles.step_durations import StepDurations, record_path


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"a": {"h": {"": "x"}}}', "[" * 100_000, '{"a": {"h": []}}'])
def test_a_record_that_cannot_be_read_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    record_path().parent.mkdir()
    record_path().write_text(text)
    assert StepDurations.load().steps == {}


@pytest.mark.parametrize(("text", "seconds"), [("NaN", 1e6), ("-5", 0), ("1e999", 1e6), ("7", 7)])
def test_a_record_has_finite_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, seconds: float
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    record_path().parent.mkdir()
    record_path().write_text(f'{{"a": {{"h": {{"": {text}}}}}}}')
    assert StepDurations.load().expected("a", "h") == {"": seconds}


def test_records_of_two_runs_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for host, seconds in (("h1", 10.0), ("h2", 30.0), ("h3", 0.1)):
        made = StepDurations()
        made.add("step", host, {"": seconds})
        made.save()
    found = StepDurations.load()
    assert found.steps == {"step": {"h1": {"": 10.0}, "h2": {"": 30.0}}}
    assert found.expected("step", "h2") == {"": 30.0}
    assert found.expected("other", "h2") is None
