"""Slower and other results; and the book of a box, which has only its written entries."""

import json
import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from rigwright import speed_baselines
from rigwright.speed_baselines import (
    BaselineHistory,
    BaselineRun,
    Fingerprint,
    InstanceHistory,
    Series,
    UnreadableHistory,
    compare_rates,
    compute_level,
)

FINGERPRINT = Fingerprint(
    driver="580.95.05",
    cards=("NVIDIA GeForce RTX 3090",),
    power_w=(280.0,),
    lanes=(16,),
    lock="ab" * 32,
    variant="vllm/dual",
    settings="0123456789ab",
)


def run(
    *values: float, boot: str = "a", day: int = 1, fingerprint: Fingerprint = FINGERPRINT, **more: object
) -> BaselineRun:
    """One of five measurements around each value, at that start of the engine."""
    told = {"date": f"2026-11-{day:02}T10:00:00Z", "boot": boot * 12, "fingerprint": fingerprint}
    rates = {f"rate {at}": Series(values=(value * 0.99, value, value * 1.01)) for at, value in enumerate(values)}
    return BaselineRun.model_validate(told | {"rates": rates} | more)


@pytest.mark.parametrize(
    ("accepted", "now", "verdict"),
    [
        # two starts that differ by 2: noise is 2 * 1.41
        ([(100, "a"), (102, "b")], 101, "same"),
        ([(100, "a"), (102, "b")], 96.5, "same"),
        ([(100, "a"), (102, "b")], 95.0, "slower"),
        ([(100, "a"), (102, "b")], 107.0, "faster"),
        # beyond 5 %, and not beyond what starts differ by
        ([(90, "a"), (110, "b")], 80, "same"),
        ([(90, "a"), (110, "b")], 70, "slower"),
        # of one start nothing is known
        ([(100, "a")], 50, "unjudged"),
        ([(100, "a"), (104, "a"), (96, "a")], 50, "unjudged"),
        # each start counts once, however often it was measured
        ([(100, "a"), (100, "a"), (100, "a"), (80, "b")], 91, "same"),
    ],
)
def test_slower_is_beyond_a_share_and_beyond_what_starts_differ_by(accepted, now, verdict):
    (found,) = compare_rates(run(now), [run(value, boot=boot) for value, boot in accepted])
    assert found.verdict == verdict


def test_a_level_is_the_mean_of_starts() -> None:
    runs = [run(100, boot="a"), run(104, boot="a"), run(90, boot="b")]
    found = compute_level(runs, "rate 0")
    assert found is not None
    assert (found.mean, found.boots) == (pytest.approx(96), 2)
    assert found.noise == pytest.approx(2 * 8.485, rel=1e-3)
    assert compute_level(runs, "rate 1") is None


def test_a_rate_that_was_not_accepted_is_not_compared() -> None:
    assert [one.name for one in compare_rates(run(1, 2), [run(1), run(1, boot="b")])] == ["rate 0"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"driver": "590.10"}, ["driver: 580.95.05 → 590.10"]),
        ({"power_w": (230.0,)}, ["power limit (W): 280 → 230"]),
        ({"lanes": (8,)}, ["lanes: 16 → 8"]),
        ({"lanes": (None,), "variant": "vllm/turbo"}, ["variant: vllm/dual → vllm/turbo", "lanes: 16 → ?"]),
        ({"lock": "cd" * 32}, ["lock: abababababab → cdcdcdcdcdcd"]),
        ({"cards": ("A", "B")}, ["cards: NVIDIA GeForce RTX 3090 → A, B"]),
        ({"settings": "ffffffffffff"}, ["the variant's settings: 0123456789ab → ffffffffffff"]),
        ({}, []),
    ],
)
def test_changes_of_the_box_are_named(changes: dict[str, object], said: list[str]) -> None:
    assert list(FINGERPRINT.model_copy(update=changes).describe_changes(FINGERPRINT)) == said


def test_only_what_is_accepted_moves_the_baseline() -> None:
    page = InstanceHistory().with_run(run(100)).with_run(run(102, boot="b"))
    assert page.find_accepted(run(50)) is None
    page = page.with_last_accepted().with_run(run(50, boot="c"))
    before, changes = speed_baselines.find_reference(page, run(50))
    assert before is not None
    assert ([one.boot for one in before.runs], changes) == (["a" * 12, "b" * 12], [])
    # runs of before stay what later ones are compared with
    assert page.with_last_accepted().accepted[-1].runs == page.runs


def test_another_fingerprint_is_compared_with_the_one_before_and_the_change_is_named() -> None:
    upgraded = FINGERPRINT.model_copy(update={"driver": "590.10"})
    page = InstanceHistory().with_run(run(100)).with_last_accepted()
    before, changes = speed_baselines.find_reference(page, run(90, fingerprint=upgraded))
    assert before == page.accepted[-1]
    assert changes == ["driver: 580.95.05 → 590.10"]
    page = page.with_run(run(90, fingerprint=upgraded)).with_last_accepted()
    assert [one.fingerprint.driver for one in page.accepted] == ["580.95.05", "590.10"]
    # and each has its own, once it has one
    for fingerprint in (FINGERPRINT, upgraded):
        before, changes = speed_baselines.find_reference(page, run(1, fingerprint=fingerprint))
        assert before is not None
        assert (before.fingerprint, changes) == (fingerprint, [])


@pytest.mark.parametrize("more", [{"quick": True}, {"contaminated": True}, {"ended": "interrupted"}, {"rates": {}}])
def test_a_run_that_is_not_whole_is_kept_and_neither_judged_nor_accepted(more: dict[str, object]) -> None:
    page = InstanceHistory().with_run(run(50, **more))
    assert len(page.runs) == 1
    assert page.last_run is None
    with pytest.raises(ValueError, match="no run to accept"):
        page.with_last_accepted()
    page = InstanceHistory().with_run(run(100)).with_run(run(50, day=2, **more))
    assert page.last_run == run(100)
    assert page.with_last_accepted().accepted[-1].runs == (run(100),)


def test_a_book_is_read_as_it_was_written_and_of_all_runs_the_last_are_kept(tmp_path: Path) -> None:
    file = tmp_path / speed_baselines.FOLDER / "box.json"
    assert speed_baselines.load_history(file) == BaselineHistory()
    page = InstanceHistory()
    for number in range(speed_baselines.RUNS + 3):
        page = page.with_run(run(100 + number, temperatures=(61.0, None)))
    speed_baselines.save_history(file, BaselineHistory().with_instance("chat", page.with_last_accepted()))
    found = speed_baselines.load_history(file)
    assert found.for_instance("chat") == page.with_last_accepted()
    assert [found.for_instance("chat").runs[at].rates["rate 0"].values[1] for at in (0, -1)] == [103, 152]
    assert found.for_instance("other") == InstanceHistory()
    assert [path.name for path in file.parent.iterdir()] == ["box.json"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Invalid JSON"),
        ("[]", "box.json"),
        ('{"schema": 2}', "schema"),
        ('{"schema": 1, "instances": {"chat": {"runs": [{}]}}}', "instances.chat.runs.0.date"),
        ('{"schema": 1, "more": 1}', "more"),
    ],
)
def test_a_book_that_is_invalid_is_refused_with_its_name(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "box.json").write_text(text)
    with pytest.raises(UnreadableHistory, match=words):
        speed_baselines.load_history(tmp_path / "box.json")


def test_a_book_that_is_no_file_or_without_end_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(UnreadableHistory, match="is not a file"):
        speed_baselines.load_history(tmp_path / "pipe.json")
    with (tmp_path / "big.json").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(UnreadableHistory, match="has more than 16 MiB"):
        speed_baselines.load_history(tmp_path / "big.json")


@pytest.mark.parametrize(
    "changes",
    [
        {"date": "yesterday"},
        {"boot": "\x1b[2J"},
        {"rates": {"Rate\n": Series(values=(1.0,))}},
        {"rates": {"rate": {"values": [float("nan")]}}},
        {"rates": {"rate": {"values": []}}},
        {"ended": "because"},
        {"fingerprint": {**json.loads(FINGERPRINT.model_dump_json()), "driver": "580; rm"}},
    ],
)
def test_a_run_of_another_shape_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        BaselineRun.model_validate(run(1).model_dump() | changes)
