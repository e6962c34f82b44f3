"""A rollout after a wait for a maintenance window: inputs and boxes are compared again before a batch begins."""

# ruff: noqa: F811 (fixtures of another file)

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import click
import pytest

from cli import rollout_control, rollout_plan
from cli.rollout_control import find_late_refusal
from cli.rollout_plan import digest_inputs
from cli.rollout_run import RolloutRun
from rigwright.rollout.batch_plan import RolloutBox
from rigwright.rollout.state_file import RolloutState, load_state, save_state
from tests.unit.rollout_samples import BEGIN, ONE, StandInFleet
from tests.unit.test_rollout_batches import make_box
from tests.unit.test_rollout_run import BATCHES, fleet, path  # noqa: F401 (fixtures)
from tests.unit.test_rollout_state import make_state


def test_a_batch_that_has_waited_is_judged_again(path: Path, fleet: StandInFleet) -> None:
    judged: list[tuple[str, ...]] = []
    lines: list[str] = []
    now = [BEGIN]

    def find_refusal(names: Sequence[str]) -> str:
        judged.append(tuple(names))
        return "the inventory changed" if "four" in names else ""

    def wait(seconds: float) -> None:
        now[0] += timedelta(seconds=seconds)

    def read_moment() -> datetime:
        return now[0]

    windows = {"two": ("Sat 02:00-02:05",), "three": ("Sat 02:00-02:05",), "four": ("Sat 04:00-04:05",)}
    state = make_state(*BATCHES).model_copy(update={"windows": windows})
    run = RolloutRun(
        *(path, state, fleet, lines.append, lambda: "", ONE), wait=wait, now=read_moment, find_refusal=find_refusal
    )
    run.claim_boxes()
    assert (run.run(), fleet.deployed) == ("paused", ["one", "two", "three"])
    assert judged == [("two", "three"), ("four",)], "the first batch has not waited"
    assert lines[-1] == "paused after the wait: the inventory changed"


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "fleet.py"
    file.write_text("")
    monkeypatch.setattr(rollout_control, "load_hosts", lambda inventory, limit: {})
    return file


def state_of(inventory: Path, **settings: object) -> RolloutState:
    digest, supply = digest_inputs(str(inventory), {})
    state = make_state(*BATCHES, **settings)  # type: ignore[arg-type]
    return state.model_copy(update={"inventory_digest": digest, "supply_digest": supply})


def judge(
    inventory: Path, monkeypatch: pytest.MonkeyPatch, names: Sequence[str], *boxes: RolloutBox, **settings: object
) -> str:
    monkeypatch.setattr(rollout_plan, "survey_boxes", lambda *words: list(boxes))
    return find_late_refusal(str(inventory), state_of(inventory, **settings), names)


def test_an_inventory_that_changed_pauses(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_of(inventory)
    inventory.write_text("# another\n")
    assert find_late_refusal(str(inventory), state, ["one"]).startswith("the inventory (or catalog/")


def test_the_present_states_of_all_boxes_count(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two, three = make_box("two"), make_box("three")
    down = make_box("four", serving={}, interrupted={}, fault="chat has failed")
    both = ["two", "three"]
    assert judge(inventory, monkeypatch, both, two, three, make_box("four")) == ""
    assert "two, three may not change at the same time" in judge(inventory, monkeypatch, both, two, three, down)
    assert judge(inventory, monkeypatch, ["two"], two, down).startswith("two has the last instance of chat")
    assert judge(inventory, monkeypatch, ["two"], two, down, allowed_outages=("chat",)) == ""
    assert "already unavailable" in judge(inventory, monkeypatch, ["two"], two, three, down, max_unavailable=1)
    failed = make_box("two", fault="chat has failed")
    assert judge(inventory, monkeypatch, ["two"], failed, three, max_unavailable=1) == ""


def test_a_box_that_refuses_its_deploy_pauses(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def survey(*words: object) -> list[RolloutBox]:
        raise click.ClickException("two: refused: no disk space")

    state = state_of(inventory)
    monkeypatch.setattr(rollout_plan, "survey_boxes", survey)
    assert find_late_refusal(str(inventory), state, ["two"]) == "two: refused: no disk space"


def test_limits_and_consents_are_kept(path: Path) -> None:
    state = make_state(*BATCHES, max_unavailable=2, allowed_outages=("chat",))
    save_state(path, state)
    assert load_state(path) == state
