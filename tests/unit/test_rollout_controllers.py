"""Controllers of a rollout: successors, strangers, and markers on boxes."""

# ruff: noqa: F811 (fixtures of another file)

from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from cli.rollout_run import BoxUnreachable, ForeignRollout
from rigwright.rollout.box_marker import BoxMarker
from rigwright.rollout.state_file import BoxRecord, load_state, save_state
from tests.unit.rollout_samples import ONE, OTHER, ControllerKilled, StandInFleet, make_marker
from tests.unit.test_rollout_run import (  # noqa: F401 (fixtures)
    BATCHES,
    STEPS,
    fleet,
    path,
    run_rollout,
)
from tests.unit.test_rollout_state import make_state


def test_another_controller_is_refused_by_name_until_it_replaces_the_first(path: Path, fleet: StandInFleet) -> None:
    fleet.kill_at = 9
    with pytest.raises(ControllerKilled):
        run_rollout(path, fleet, make_state(*BATCHES))
    state = load_state(path)
    assert state
    steps = len(fleet.deployed)
    for identifier in (state.identifier, "ffffffffffff"):
        with pytest.raises(ForeignRollout, match=f"by {ONE}"):
            run_rollout(path, fleet, state.model_copy(update={"identifier": identifier}), controller=OTHER)
    assert len(fleet.deployed) == steps
    assert run_rollout(path, fleet, state, controller=OTHER, replaced=ONE)[0] == "finished"
    assert {marker.controller for marker in fleet.markers.values()} == {OTHER}
    # another rollout begins where all boxes are done
    fresh = make_state(*BATCHES).model_copy(update={"identifier": "ffffffffffff"})
    assert run_rollout(path, fleet, fresh)[0] == "finished"


def test_a_stopped_rollout_continues_from_another_machine(path: Path, fleet: StandInFleet) -> None:
    fleet.gate_faults["two"] = "S01 fails"
    _, state = run_rollout(path, fleet, make_state(*BATCHES))
    fleet.gate_faults.clear()
    assert run_rollout(path, fleet, state, controller=OTHER)[0] == "finished"
    assert fleet.deployed == ["one", "two", "three", "two", "four"]


def test_a_replaced_controller_that_still_runs_changes_no_further_box(path: Path, fleet: StandInFleet) -> None:
    real = fleet.run_gate

    def run_gate(name: str, *, speed: bool) -> str:
        if name == "one":
            marker = fleet.markers["one"]
            fleet.markers["one"] = marker.model_copy(
                update={"controller": OTHER, "record": marker.record.model_copy(update={"step": 9})}
            )
        return real(name, speed=speed)

    fleet.run_gate = run_gate  # type: ignore[method-assign]
    with pytest.raises(ForeignRollout, match=OTHER):
        run_rollout(path, fleet, make_state(*BATCHES))
    assert fleet.deployed == ["one"]
    assert fleet.markers["one"].controller == OTHER
    state = load_state(path)
    assert state
    assert state.phase == "paused"


def test_a_second_process_of_one_controller_ends_the_first(path: Path, fleet: StandInFleet) -> None:
    # with a name, a state and even a clock of their own machine that are equal
    real, state = fleet.deploy, make_state(*BATCHES)
    deploys: list[str] = []

    def deploy(names: Collection[str], *, reboot: bool | None, driver: str = "") -> Mapping[str, str]:
        deploys.extend(names)
        if deploys == ["one"]:
            assert run_rollout(path.with_name("copy.rollout.json"), fleet, state)[0] == "finished"
        return real(names, reboot=reboot)

    fleet.deploy = deploy  # type: ignore[method-assign]
    with pytest.raises(ForeignRollout, match="one: another process of this controller has written its marker"):
        run_rollout(path, fleet, state)
    assert deploys == ["one", "one", "two", "three", "four"]


def test_a_write_whose_answer_was_lost_is_the_controllers_own(path: Path, fleet: StandInFleet) -> None:
    real, lost = fleet.mark, ["one"]

    def mark(markers: Mapping[str, tuple[BoxMarker, str]]) -> Mapping[str, str | BoxUnreachable | None]:
        written = dict(real(markers))
        if lost and lost[0] in markers:
            written[lost.pop()] = BoxUnreachable("cut")
        return written

    fleet.mark = mark  # type: ignore[method-assign]
    phase, state = run_rollout(path, fleet, make_state(*BATCHES))
    assert phase == "stopped"
    assert state.boxes["one"].state == fleet.markers["one"].record.state == "failed"
    assert "its marker: cut" in state.boxes["one"].reason


def test_a_box_that_comes_back_after_the_claim_keeps_the_steps_of_its_own_marker(tmp_path: Path) -> None:
    for kill_at in range(1, STEPS):
        fleet = StandInFleet({"one": 1, "two": 1}, kill_at=kill_at, gate_faults={"two": "S01 fails"})
        path = tmp_path / f"rig{kill_at}.rollout.json"
        begun = make_state(("one", "two"), reboot=True, soak=1)
        save_state(path, begun)
        try:
            run_rollout(path, fleet, begun)
        except ControllerKilled:
            state = load_state(path)
            assert state
        else:
            break
        fleet.unreachable_looks = 1
        assert run_rollout(path, fleet, state)[0] == "stopped", kill_at
        assert fleet.generations == {"one": 2, "two": 1}, kill_at
        assert fleet.markers["two"].record.state in ("restored", "failed"), kill_at
        assert not fleet.markers["two"].record.is_out
        assert len(fleet.reboots) == len({*fleet.reboots}), kill_at
    assert 20 < kill_at < STEPS - 1


def test_a_box_that_does_not_take_its_marker_is_not_rolled_back(path: Path, fleet: StandInFleet) -> None:
    real = fleet.mark

    def mark(markers: Mapping[str, tuple[BoxMarker, str]]) -> Mapping[str, str | BoxUnreachable | None]:
        if [one for one, _ in markers.values() if one.record.state in ("restoring", "failed")]:
            return {name: BoxUnreachable("no space left") for name in markers}
        return real(markers)

    fleet.mark = mark  # type: ignore[method-assign]
    fleet.gate_faults["one"] = "S01 fails"
    phase, state = run_rollout(path, fleet, make_state(*BATCHES))
    assert phase == "stopped"
    assert fleet.rolled_back == []
    assert state.boxes["one"].state == "failed"
    assert state.boxes["one"].reason == "S01 fails; not rolled back: its marker: no space left"


def test_a_marker_with_steps_far_ahead_is_refused_and_the_state_stays_readable(path: Path, fleet: StandInFleet) -> None:
    state = make_state(*BATCHES)
    save_state(path, state)
    fleet.markers["two"] = make_marker(controller=ONE, record=BoxRecord(state="draining", step=10**6))
    with pytest.raises(ForeignRollout, match=r"two: .* has 1000000 steps, and this controller's state 0"):
        run_rollout(path, fleet, state)
    assert load_state(path) == state
    assert fleet.deployed == []
