"""The run of a rollout: the gate, the stop at the first failure, and a controller that is killed at each step."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cli.rollout_run import BoxUnreachable, RolloutRun
from rigwright.rollout.box_marker import BoxMarker
from rigwright.rollout.state_file import Phase, Request, RolloutState, load_state, save_state
from tests.unit.rollout_samples import BEGIN, ONE, OTHER, ControllerKilled, StandInFleet, make_marker
from tests.unit.test_rollout_state import make_state

BATCHES = (("one",), ("two", "three"), ("four",))
NAMES = ("one", "two", "three", "four")


def run_rollout(
    path: Path,
    fleet: StandInFleet,
    state: RolloutState,
    *requests: Request,
    controller: str = ONE,
    replaced: str = "",
) -> tuple[Phase, RolloutState]:
    asked = iter(requests)
    now = [0.0]

    def wait(seconds: float) -> None:
        now[0] += seconds

    def read_moment() -> datetime:
        return BEGIN + timedelta(seconds=now[0])

    run = RolloutRun(
        path,
        state,
        fleet,
        lambda line: None,
        lambda: next(asked, ""),
        controller,
        replaced,
        wait,
        lambda: now[0],
        read_moment,
    )
    run.claim_boxes()
    phase = run.run()
    saved = load_state(path)
    assert saved == run.state
    return phase, run.state


@pytest.fixture(autouse=True)
def lasting(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test loses power: a disk that writes each state at once takes most of the time."""
    monkeypatch.setattr("os.fsync", lambda file: None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rig.rollout.json"


@pytest.fixture
def fleet() -> StandInFleet:
    return StandInFleet(dict.fromkeys(NAMES, 1))


def test_each_box_is_deployed_and_gated_in_order(path: Path, fleet: StandInFleet) -> None:
    phase, state = run_rollout(path, fleet, make_state(*BATCHES, soak=2))
    assert phase == "finished"
    assert fleet.deployed == ["one", "two", "three", "four"]
    assert fleet.gated[:5] == ["one", "one after soak", "two", "three", "two after soak"]
    assert {record.state for record in state.boxes.values()} == {"done"}
    assert {record.generation for record in state.boxes.values()} == {2}


def test_a_box_that_fails_its_gate_is_rolled_back_and_the_rest_stays(path: Path, fleet: StandInFleet) -> None:
    fleet.gate_faults["two"] = "S01 fails"
    phase, state = run_rollout(path, fleet, make_state(*BATCHES))
    assert phase == "stopped"
    assert fleet.rolled_back == [("two", 1)]
    assert fleet.deployed == ["one", "two", "three"]
    assert fleet.generations == {"one": 2, "two": 1, "three": 2, "four": 1}
    assert [state.boxes[name].state for name in fleet.generations] == ["done", "restored", "done", "waiting"]
    assert state.boxes["two"].reason == "S01 fails"


def test_a_box_that_fails_after_its_soak_is_rolled_back(path: Path, fleet: StandInFleet) -> None:
    real = fleet.run_gate

    def run_gate(name: str, *, speed: bool) -> str:
        return real(name, speed=speed) or ("" if speed else "the engine is silent")

    fleet.run_gate = run_gate  # type: ignore[method-assign]
    assert run_rollout(path, fleet, make_state(*BATCHES, soak=1))[0] == "stopped"
    assert fleet.rolled_back == [("one", 1)]
    assert fleet.deployed == ["one"]


def test_a_deploy_that_activated_nothing_is_not_rolled_back_further(path: Path, fleet: StandInFleet) -> None:
    fleet.deploy_faults["one"] = "the instance does not answer"
    phase, state = run_rollout(path, fleet, make_state(*BATCHES))
    assert phase == "stopped"
    assert fleet.rolled_back == []
    assert fleet.gated == []
    assert state.boxes["one"].state == "failed"
    assert state.boxes["one"].reason == "the instance does not answer (the deploy activated no other generation)"


def test_a_box_without_an_earlier_generation_is_not_rolled_back(path: Path, fleet: StandInFleet) -> None:
    fleet.generations["one"] = None
    fleet.gate_faults["one"] = "S01 fails"
    _, state = run_rollout(path, fleet, make_state(*BATCHES))
    assert fleet.rolled_back == []
    assert state.boxes["one"].reason == "S01 fails (it had no generation)"


def test_a_box_out_of_reach_stops_the_rollout(path: Path, fleet: StandInFleet) -> None:
    fleet.unreachable.add("two")
    phase, state = run_rollout(path, fleet, make_state(*BATCHES))
    assert phase == "stopped"
    assert "four" not in fleet.deployed
    assert state.boxes["two"].reason.startswith("cannot be reached: no route")


@pytest.mark.parametrize(("request_", "phase"), [("pause", "paused"), ("abort", "aborted")])
def test_a_request_ends_the_rollout_after_the_present_boxes(
    path: Path, fleet: StandInFleet, request_: Request, phase: Phase
) -> None:
    ended, state = run_rollout(path, fleet, make_state(*BATCHES), "", request_)
    assert ended == phase
    assert fleet.deployed == ["one"]
    assert state.boxes["one"].state == "done"
    assert state.boxes["two"].state == "waiting"


def test_a_pause_ends_a_soak_and_the_next_run_soaks_again(path: Path, fleet: StandInFleet) -> None:
    phase, state = run_rollout(path, fleet, make_state(*BATCHES, soak=5), "", "", "pause")
    assert phase == "paused"
    assert state.boxes["one"].state == "soaking"
    assert run_rollout(path, fleet, state)[0] == "finished"
    assert fleet.deployed == ["one", "two", "three", "four"]


def test_a_stopped_rollout_goes_on_with_the_box_that_failed(path: Path, fleet: StandInFleet) -> None:
    fleet.gate_faults["two"] = "S01 fails"
    _, state = run_rollout(path, fleet, make_state(*BATCHES))
    fleet.gate_faults.clear()
    assert run_rollout(path, fleet, state)[0] == "finished"
    assert fleet.deployed == ["one", "two", "three", "two", "four"]
    assert {*fleet.generations.values()} == {2}


STEPS = 200


def run_with_kills(
    path: Path, begun: RolloutState, generations: Mapping[str, int | None], *, is_other: bool = False, **fleet_keys: Any
) -> Iterator[tuple[Phase, StandInFleet]]:
    """A rollout whose controller is killed at its first step, at its second and so on, each with its successor's end.

    The successor has the saved state, or is another controller with the first state.
    """
    for kill_at in range(1, STEPS):
        fleet = StandInFleet({**generations}, kill_at=kill_at, **fleet_keys)
        save_state(path, begun)
        try:
            run_rollout(path, fleet, begun)
        except ControllerKilled:
            state = load_state(path)
            assert state
            finished = {name for name, record in state.boxes.items() if record.state == "done"}
            before = len(fleet.deployed)
            if is_other:
                phase, _ = run_rollout(path, fleet, begun, controller=OTHER, replaced=ONE)
            else:
                phase, _ = run_rollout(path, fleet, state)
            assert not finished & {*fleet.deployed[before:]}
            yield phase, fleet
        else:
            return


@pytest.mark.parametrize("is_other", [False, True])
@pytest.mark.parametrize("faulty", ["", "two"])
def test_a_controller_that_is_killed_at_any_step_has_a_successor(path: Path, faulty: str, is_other: bool) -> None:
    begun = make_state(*BATCHES, soak=1, reboot=True)
    faults = {faulty: "S01 fails"} if faulty else {}
    runs = [*run_with_kills(path, begun, dict.fromkeys(NAMES, 1), is_other=is_other, gate_faults=faults)]
    for step, (phase, fleet) in enumerate(runs, 1):
        assert phase == ("stopped" if faulty else "finished"), step
        assert len(fleet.reboots) == len({*fleet.reboots}), f"step {step}: a box has rebooted twice"
        expected = {"one": 2, "two": 1, "three": 2, "four": 1} if faulty else dict.fromkeys(NAMES, 2)
        assert fleet.generations == expected, step
        assert all(fleet.deployed_out.values())
        assert not any(marker.record.is_out for marker in fleet.markers.values()), step
    assert 40 < len(runs) < STEPS - 2


def test_a_box_that_is_not_rolled_back_stays_out_of_rotation(path: Path, fleet: StandInFleet) -> None:
    fleet.gate_faults["one"] = "S01 fails"
    fleet.roll_back = lambda name, generation: "no space left"  # type: ignore[method-assign]
    assert run_rollout(path, fleet, make_state(*BATCHES))[0] == "stopped"
    assert fleet.markers["one"].record.is_out
    assert fleet.markers["one"].is_released


def deploy_moments(path: Path, fleet: StandInFleet, state: RolloutState) -> dict[str, str]:
    """When a complete rollout deploys each box."""
    moments: dict[str, str] = {}
    real = fleet.deploy

    def deploy(names: Collection[str], *, reboot: bool | None, driver: str = "") -> Mapping[str, str]:
        moments.update((name, fleet.markers[name].moment[11:16]) for name in names)
        return real(names, reboot=reboot)

    fleet.deploy = deploy  # type: ignore[method-assign]
    assert run_rollout(path, fleet, state)[0] == "finished"
    return moments


def test_a_batch_waits_for_a_maintenance_window(path: Path, fleet: StandInFleet) -> None:
    windows = ("Sat 02:00-02:05", "Sat 02:20-02:25", "Sat 04:00-04:05 Europe/Berlin")
    moments = deploy_moments(path, fleet, make_state(*BATCHES, soak=6, windows=windows))
    assert moments == {"one": "02:00", "two": "02:20", "three": "02:20", "four": "03:00"}


@pytest.mark.parametrize(
    ("option", "begins"),
    [
        ((), {"one": "01:30", "two": "03:20", "three": "03:20", "four": "03:25"}),
        # those of --window replace the windows of boxes
        (("Sat 05:00-06:00",), dict.fromkeys(NAMES, "05:00")),
    ],
)
def test_a_batch_begins_in_the_windows_of_its_boxes(
    path: Path, fleet: StandInFleet, option: tuple[str, ...], begins: dict[str, str]
) -> None:
    own = {"two": ("Sat 03:00-03:30",), "three": ("Sat 03:20-04:30", "Sun 03:20-04:30"), "four": ("Sat 03:25-05:00",)}
    state = make_state(*BATCHES, windows=option).model_copy(update={"windows": own})
    assert deploy_moments(path, fleet, state) == begins


@pytest.mark.parametrize(
    ("states", "waits"),
    [
        ("waiting waiting", True),
        ("draining waiting", False),
        ("deploying deploying", False),
        ("done checking", False),
        ("done soaking", False),
        # a second attempt begins in a window
        ("done restored", True),
        ("soaking failed", True),
    ],
)
def test_a_batch_that_has_begun_continues_outside_of_windows(
    path: Path, fleet: StandInFleet, states: str, waits: bool
) -> None:
    state = make_state(("two", "three"), ("four",), windows=("Sat 02:00-02:05",))
    records = {
        name: state.boxes[name].model_copy(update={"state": one})
        for name, one in zip(("two", "three"), states.split(), strict=True)
    }
    for name, record in records.items():
        record = record.model_copy(update={"is_out": record.state in ("draining", "deploying", "checking")})
        fleet.markers[name] = make_marker(record=record, controller=ONE)
        state = state.with_records({name: record})
    run_rollout(path, fleet, state, "", "pause", "pause")
    done = {name for name in records if fleet.markers[name].record.state == "done"}
    assert (done == {*records}) is not waits
    assert "four" not in fleet.deployed


def test_a_pause_ends_the_wait_for_a_window(path: Path, fleet: StandInFleet) -> None:
    state = make_state(*BATCHES, windows=("Sat 02:00-02:05",))
    assert run_rollout(path, fleet, state, "", "", "pause")[0] == "paused"
    assert fleet.deployed == []


def test_a_rollout_of_a_rollback_returns_each_box_once(path: Path) -> None:
    before = {"one": 3, "two": 2, "three": 5, "four": 2}
    runs = [*run_with_kills(path, make_state(*BATCHES, action="rollback"), before)]
    for step, (phase, fleet) in enumerate(runs, 1):
        assert (phase, fleet.deployed) == ("finished", [])
        assert fleet.generations == {"one": 2, "two": 1, "three": 4, "four": 1}, step
    assert len(runs) > 19


def test_a_rollout_of_a_rollback_returns_a_box_that_fails(path: Path) -> None:
    fleet = StandInFleet({"one": 3, "two": 3, "three": 3, "four": 3}, gate_faults={"two": "chat is failed"})
    phase, _ = run_rollout(path, fleet, make_state(*BATCHES, action="rollback", to=1))
    assert phase == "stopped"
    assert fleet.generations == {"one": 1, "two": 3, "three": 1, "four": 3}


DRIVERS = {"one": "595.58.03", "two": "580.159.03", "three": "595.58.03", "four": "595.58.03"}


def make_driver_rollback() -> RolloutState:
    state = make_state(*BATCHES, action="driver rollback", reboot=True)
    records = {name: record.model_copy(update={"driver": DRIVERS[name]}) for name, record in state.boxes.items()}
    return state.with_records(records)


def test_a_rollout_of_a_driver_rollback_reboots_each_box_once(path: Path) -> None:
    runs = [*run_with_kills(path, make_driver_rollback(), dict.fromkeys(DRIVERS, 2))]
    for step, (phase, fleet) in enumerate(runs, 1):
        assert (phase, fleet.drivers) == ("finished", DRIVERS), step
        assert sorted(fleet.reboots) == sorted(DRIVERS), step
        assert {*fleet.generations.values()} == {2}
    assert len(runs) > 29


def test_a_box_whose_driver_fails_its_gate_stays_out_of_rotation_and_does_not_reboot_again(path: Path) -> None:
    fleet = StandInFleet(dict.fromkeys(DRIVERS, 2), gate_faults={"two": "chat is failed"})
    phase, state = run_rollout(path, fleet, make_driver_rollback())
    assert phase == "stopped"
    assert sorted(fleet.reboots) == ["one", "three", "two"]
    assert fleet.rolled_back == []
    assert fleet.markers["two"].record.is_out
    assert state.boxes["two"].reason == "chat is failed (no driver goes back by itself: that takes another reboot)"
    assert state.boxes["four"].state == "waiting"


def test_a_killed_rollout_reboots_no_box_again_that_the_inventory_allows_reboots_of(path: Path) -> None:
    runs = [*run_with_kills(path, make_state(*BATCHES), dict.fromkeys(NAMES, 1), standing_consent=True)]
    assert all(sorted(fleet.reboots) == sorted(NAMES) for _, fleet in runs)
    assert len(runs) > 29


def test_boxes_copy_builds_after_their_marker_and_before_they_leave_rotation(path: Path, fleet: StandInFleet) -> None:
    state = make_state(*BATCHES, share_builds=True).model_copy(update={"builders": {"llama.cpp-1-abc": ("one", "two")}})
    real = fleet.share_builds

    def share(names: Collection[str], builders: Mapping[str, Sequence[str]]) -> None:
        assert builders == {"llama.cpp-1-abc": ("one", "two")}
        records = [fleet.markers[name].record for name in names]
        assert [(record.state, record.is_out) for record in records] == [("draining", False)] * len(names)
        real(names, builders)

    fleet.share_builds = share  # type: ignore[method-assign]
    assert run_rollout(path, fleet, state)[0] == "finished"
    assert fleet.shared == fleet.awaited == [*BATCHES]


def test_a_box_whose_marker_cannot_be_written_copies_no_build(path: Path, fleet: StandInFleet) -> None:
    state = make_state(*BATCHES, share_builds=True).model_copy(update={"builders": {"llama.cpp-1-abc": ("one", "two")}})
    mark = fleet.mark

    def lose_answer(markers: Mapping[str, tuple[BoxMarker, str]]) -> Mapping[str, str | BoxUnreachable | None]:
        fleet.unreachable |= {"two"} & {*markers}
        return mark(markers)

    fleet.mark = lose_answer  # type: ignore[method-assign]
    run_rollout(path, fleet, state)
    assert fleet.shared == [("one",), ("three",)]
