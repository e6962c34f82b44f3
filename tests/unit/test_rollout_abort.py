"""The end of a rollout before all boxes are done: markers are closed, and boxes return to rotation."""

from pathlib import Path

import pytest

from cli import rollout_abort
from cli.exit_codes import InvalidRequest
from cli.rollout_abort import abort_rollout
from rigwright.rollout.box_marker import BoxMarker, controller_name
from rigwright.rollout.state_file import RolloutState, load_state, state_path
from tests.unit.rollout_samples import ONE, ControllerKilled, StandInFleet
from tests.unit.test_rollout_run import BATCHES, run_rollout
from tests.unit.test_rollout_state import make_state


@pytest.fixture
def inventory(tmp_path: Path) -> str:
    file = tmp_path / "fleet.py"
    file.write_text("")
    return str(file)


def run_until_killed(inventory: str, controller: str) -> tuple[StandInFleet, RolloutState]:
    """A rollout whose controller is killed in the deploy of its first box."""
    fleet = StandInFleet({"one": 1, "two": 1, "three": 1, "four": 1})
    fleet.kill_at = 8
    with pytest.raises(ControllerKilled):
        run_rollout(state_path(inventory), fleet, make_state(*BATCHES), controller=controller)
    fleet.kill_at = -1
    assert fleet.markers["one"].record.is_out
    state = load_state(state_path(inventory))
    assert state
    return fleet, state


def use_fleet(fleet: StandInFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout_abort, "BoxSteps", lambda inventory, action: fleet)
    monkeypatch.setattr(rollout_abort, "load_hosts", lambda inventory, limit: fleet.generations)
    monkeypatch.setattr(rollout_abort, "exit_on_interrupt", lambda: None)


def test_an_abort_closes_markers_and_returns_boxes_to_rotation(inventory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, _ = run_until_killed(inventory, controller_name(inventory))
    use_fleet(fleet, monkeypatch)
    state = abort_rollout(inventory, "")
    assert state
    assert state.phase == "aborted"
    assert load_state(state_path(inventory)) == state
    assert (fleet.markers["one"].is_closed, fleet.markers["one"].record.is_out) == (True, False)
    assert not state.boxes["one"].is_out
    with pytest.raises(InvalidRequest, match="no rollout to abort"):
        abort_rollout(inventory, "")


def test_an_abort_leaves_the_marker_of_another_controller_until_that_is_named(
    inventory: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet, _ = run_until_killed(inventory, ONE)
    use_fleet(fleet, monkeypatch)
    assert abort_rollout(inventory, "")
    assert not fleet.markers["one"].is_closed
    assert f"by {ONE}" in " ".join(capsys.readouterr().out.split())
    assert abort_rollout(inventory, ONE)
    assert fleet.markers["one"].is_closed
    # without the state file, by the markers alone
    fleet.markers["one"] = BoxMarker.model_validate(
        fleet.markers["one"].model_dump() | {"is_closed": False, "controller": ONE}
    )
    state_path(inventory).unlink()
    with pytest.raises(InvalidRequest, match="no box has an open marker of carol@desk:/z"):
        abort_rollout(inventory, "carol@desk:/z")
    assert abort_rollout(inventory, ONE) is None
    assert fleet.markers["one"].is_closed


def test_a_box_out_of_reach_keeps_its_marker(
    inventory: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet, _ = run_until_killed(inventory, controller_name(inventory))
    use_fleet(fleet, monkeypatch)
    fleet.unreachable = {"one"}
    assert abort_rollout(inventory, "")
    assert "one: not reached, its marker stays: no route" in capsys.readouterr().out


def test_an_abort_closes_a_marker_with_the_last_possible_step(inventory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, _ = run_until_killed(inventory, controller_name(inventory))
    use_fleet(fleet, monkeypatch)
    marker = fleet.markers["one"]
    last = marker.record.model_copy(update={"step": 10**6})
    fleet.markers["one"] = marker.model_copy(update={"record": last})
    state = abort_rollout(inventory, "")
    assert load_state(state_path(inventory)) == state
    assert fleet.markers["one"].is_closed
    assert BoxMarker.model_validate_json(fleet.markers["one"].content) == fleet.markers["one"]
