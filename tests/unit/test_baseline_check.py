"""J01, the check of how fast instances were: its book next to the inventory, and when it is red."""

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from checks import Drift, test_baseline
from checks.survey.answers import SurveyAnswers
from checks.survey.cards import WORDS
from rigwright import speed_baselines
from rigwright.model.instance import Instance
from rigwright.model.rig import Rig
from rigwright.nvidia.cards.smi import FIELDS
from rigwright.plan.plan_inputs import TargetState, build_target_state
from rigwright.speed_baselines import BaselineRun, Fingerprint, InstanceHistory, Series
from tests.unit.samples import sample_facts, sample_instance, sample_rig


@pytest.fixture
def box(tmp_path: Path) -> tuple[Rig, Instance, TargetState]:
    one = sample_instance()
    made = sample_rig(one, inventory=str(tmp_path / "rig.py"))
    return made, one, build_target_state(made, sample_facts())


def print_of(box: tuple[Rig, Instance, TargetState], **changes: object) -> Fingerprint:
    made, one, there = box
    return test_baseline.now_there(SurveyAnswers({}), made.cards, made.digest, there, sample_facts(), one).model_copy(
        update=changes
    )


def run(fingerprint: Fingerprint, rate: float, boot: str = "a", days: float = 3, **more: object) -> BaselineRun:
    began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - days * 86400))
    told = {"date": began, "boot": boot * 12, "fingerprint": fingerprint}
    return BaselineRun.model_validate(told | {"rates": {"narrative decode": Series(values=(rate,))}} | more)


def check_notes(
    box: tuple[Rig, Instance, TargetState], accepted: Sequence[BaselineRun], last: Sequence[BaselineRun]
) -> dict[str, object]:
    """The notes of the check on a box with such a book.

    Raises:
        Drift: it is red.
    """
    made, one, _ = box
    page = InstanceHistory()
    for each in accepted:
        page = page.with_run(each)
    page = page.with_last_accepted() if accepted else page
    for each in last:
        page = page.with_run(each)
    speed_baselines.save_history(
        speed_baselines.history_path(made.inventory, made.name),
        speed_baselines.BaselineHistory().with_instance(one.name, page),
    )
    return box_notes(box)


def box_notes(box: tuple[Rig, Instance, TargetState]) -> dict[str, object]:
    found: dict[str, object] = {}
    made, one, there = box
    test_baseline.test_speed(
        SurveyAnswers({}),
        made.name,
        made.inventory,
        made.cards,
        made.digest,
        there,
        sample_facts(),
        one,
        found.__setitem__,
    )
    return found


def two(fingerprint: Fingerprint) -> list[BaselineRun]:
    return [run(fingerprint, 100), run(fingerprint, 101, boot="b")]


def test_a_box_that_is_as_fast_as_it_was_says_when_that_was_seen(box: Any) -> None:
    now = print_of(box)
    assert check_notes(box, two(now), [run(now, 98, boot="c")]) == {"how": "measured 3 days ago"}
    assert check_notes(box, two(now), [run(now, 98, boot="c", days=0.2)]) == {"how": "measured 5 hours ago"}


def test_a_slower_one_is_red_with_figures_age_and_what_changed(box: Any) -> None:
    now = print_of(box)
    with pytest.raises(Drift) as red:
        check_notes(box, two(print_of(box, driver="580.95.05")), [run(now, 80, boot="c")])
    assert red.value.found == (
        "narrative decode: 80.0 tokens/s, -20.4 % of 100.5 (noise \N{PLUS-MINUS SIGN}1.4); measured 3 days ago; "
        "changed since the accepted baseline: driver: 580.95.05 \N{RIGHTWARDS ARROW} none"
    )


@pytest.mark.parametrize("more", [{"contaminated": True}, {"ended": "interrupted"}, {"quick": True}])
def test_a_run_that_does_not_count_turns_nothing_red(box: Any, more: dict[str, object]) -> None:
    now = print_of(box)
    assert check_notes(box, two(now), [run(now, 50, boot="c", **more)]) == {"how": "measured 3 days ago"}


def test_an_undecidable_case_is_left_out_with_the_reason(box: Any) -> None:
    now = print_of(box)
    for accepted, last, words in (
        ([], [], "no speed was measured: `rigwright bench speed`"),
        ([], [run(now, 50)], "measured 3 days ago, and no baseline is accepted"),
        ([run(now, 100)], [run(now, 50, boot="b")], "the accepted baseline has one start of the engine"),
        (two(now), [run(print_of(box, variant="llamacpp/other"), 50)], "before this changed: variant: llamacpp/other"),
    ):
        with pytest.raises(pytest.skip.Exception, match=re.escape(words)):
            check_notes(box, accepted, last)


def test_a_book_that_cannot_be_read_is_red(box: Any) -> None:
    file = speed_baselines.history_path(box[0].inventory, box[0].name)
    file.parent.mkdir()
    file.write_text("{")
    with pytest.raises(Drift, match="Invalid JSON"):
        box_notes(box)


def survey(**changes: str) -> SurveyAnswers:
    """Cards as nvidia-smi tells of them."""
    values = dict.fromkeys(FIELDS, "0") | {
        **{"index": "0", "pci.bus_id": "00000000:01:00.0", "uuid": "GPU-1", "driver_version": "580.95.05"},
        **{"compute_cap": "8.6", "persistence_mode": "Enabled", "power.limit": "280.00"},
        **{"pcie.link.width.current": "8", "name": "NVIDIA GeForce RTX 3090"},
        **changes,
    }
    said = {"status": 0, "out": ", ".join(values[name] for name in FIELDS) + "\n", "err": ""}
    told = {"answers": dict.fromkeys(WORDS, said), "processes": [], "log": {"blind": "", "messages": []}}
    return SurveyAnswers({"cards": {"told": told}})


def test_a_fingerprint_has_what_the_cards_say_now(box: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _, there = box
    one = sample_instance(cards=(0,))
    monkeypatch.setattr(test_baseline.topology, "answering_cards", lambda *given: list(enumerate(given[2])))
    found = test_baseline.now_there(survey(), made.cards, made.digest, there, sample_facts(), one)
    assert (found.driver, found.cards, found.power_w, found.lanes) == (
        *("580.95.05", ("NVIDIA GeForce RTX 3090",), (280.0,), (8,)),
    )
    with pytest.raises(Drift, match="none from card 3"):
        test_baseline.now_there(survey(), made.cards, made.digest, there, sample_facts(), sample_instance(cards=(3,)))
