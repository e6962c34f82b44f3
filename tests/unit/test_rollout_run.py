"""The run of a rollout: the gate, the stop at the first failure, and a controller that is killed at each step."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cli.rollout_run import BoxBefore, BoxUnreachable, RolloutRun
from rigwright.rollout.state_file import Phase, Request, RolloutState, load_state, save_state
from tests.unit.test_rollout_state import make_state


class ControllerKilled(BaseException):
    """The controller ends here, without a word."""


@dataclass
class StandInFleet:
    """Boxes in memory: a stand-in for hosts, which survives its controllers."""

    generations: dict[str, int | None]
    deployed: list[str] = field(default_factory=list)
    gated: list[str] = field(default_factory=list)
    rolled_back: list[tuple[str, int]] = field(default_factory=list)
    reboots: list[str] = field(default_factory=list)
    boots: dict[str, int] = field(default_factory=dict)
    deploy_faults: dict[str, str] = field(default_factory=dict)
    gate_faults: dict[str, str] = field(default_factory=dict)
    unreachable: set[str] = field(default_factory=set)
    kill_at: int = -1
    """The number of the step before or after which the controller is killed; -1: never."""
    steps: int = 0

    def _count(self) -> None:
        self.steps += 1
        if self.steps == self.kill_at:
            raise ControllerKilled

    def observe(self, name: str) -> BoxBefore:
        if name in self.unreachable:
            raise BoxUnreachable("no route")
        return BoxBefore(self.generations[name], f"{self.boots.get(name, 0):012x}")

    def deploy(self, names: Collection[str], *, reboot: bool) -> Mapping[str, str]:
        self._count()
        for name in names:
            self.deployed.append(name)
            if name not in self.deploy_faults:
                self.generations[name] = 2
            if reboot:
                self.reboots.append(name)
                self.boots[name] = self.boots.get(name, 0) + 1
        self._count()
        return {name: self.deploy_faults[name] for name in names if name in self.deploy_faults}

    def run_gate(self, name: str, *, speed: bool) -> str:
        self._count()
        self.gated.append(f"{name}{'' if speed else ' after soak'}")
        return self.gate_faults.get(name, "")

    def roll_back(self, name: str, generation: int) -> str:
        self._count()
        self.rolled_back.append((name, generation))
        self.generations[name] = generation
        self._count()
        return ""


def run_rollout(path: Path, fleet: StandInFleet, state: RolloutState, *requests: Request) -> tuple[Phase, RolloutState]:
    asked = iter(requests)
    now = [0.0]

    def wait(seconds: float) -> None:
        now[0] += seconds

    run = RolloutRun(path, state, fleet, lambda line: None, lambda: next(asked, ""), wait, lambda: now[0])
    phase = run.run()
    saved = load_state(path)
    assert saved == run.state
    return phase, run.state


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rig.rollout.json"


@pytest.fixture
def fleet() -> StandInFleet:
    return StandInFleet({"one": 1, "two": 1, "three": 1, "four": 1})


BATCHES = (("one",), ("two", "three"), ("four",))


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


@pytest.mark.parametrize("kill_at", range(1, 14))
@pytest.mark.parametrize("faulty", ["", "two"])
def test_a_killed_controller_resumes_without_repeating_a_reboot_or_a_finished_box(
    path: Path, fleet: StandInFleet, kill_at: int, faulty: str
) -> None:
    if faulty:
        fleet.gate_faults[faulty] = "S01 fails"
    fleet.kill_at = kill_at
    state: RolloutState | None = make_state(*BATCHES, reboot=True)
    assert state
    save_state(path, state)
    try:
        phase, _ = run_rollout(path, fleet, state)
        killed = False
    except ControllerKilled:
        killed = True
        state = load_state(path)
        assert state
        finished = [name for name, record in state.boxes.items() if record.state == "done"]
        before = len(fleet.deployed)
        phase, _ = run_rollout(path, fleet, state)
        assert not {*finished} & {*fleet.deployed[before:]}
    assert phase == ("stopped" if faulty else "finished")
    assert len(fleet.reboots) == len({*fleet.reboots}), "a box has rebooted twice"
    expected = {"one": 2, "two": 1, "three": 2, "four": 1} if faulty else dict.fromkeys(fleet.generations, 2)
    assert fleet.generations == expected
    assert killed or kill_at > 8
