"""The run of a rollout: the gate, the stop at the first failure, and a controller that is killed at each step."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from cli.rollout_run import BoxBefore, BoxUnreachable, RolloutRun
from rigwright.rollout.box_marker import BoxMarker
from rigwright.rollout.state_file import Phase, Request, RolloutState, load_state, save_state
from tests.unit.rollout_samples import make_marker
from tests.unit.test_rollout_state import make_state

BEGIN = datetime(2026, 11, 28, 1, 30, tzinfo=timezone.utc)  # a Saturday
ONE, OTHER = "ada@laptop:/x/fleet.py", "bob@desk:/y/fleet.py"


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
    unreachable_looks: int = 0
    """At so many of the next looks no box answers."""
    markers: dict[str, BoxMarker] = field(default_factory=dict)
    deployed_out: dict[str, bool] = field(default_factory=dict)
    """Box -> whether it was out of rotation and drained when its deploy began."""
    drained: set[str] = field(default_factory=set)
    drivers: dict[str, str] = field(default_factory=dict)
    shared: list[tuple[str, ...]] = field(default_factory=list)
    awaited: list[tuple[str, ...]] = field(default_factory=list)
    """Boxes that gateways had to send requests to again before the next step."""
    standing_consent: bool = False
    """Whether the inventory allows reboots."""
    kill_at: int = -1
    """The number of the step before or after which the controller is killed; -1: never."""
    steps: int = 0

    def _count(self) -> None:
        self.steps += 1
        if self.steps == self.kill_at:
            raise ControllerKilled

    def observe(self, names: Collection[str]) -> Mapping[str, BoxBefore | BoxUnreachable]:
        self._count()
        if self.unreachable_looks:
            self.unreachable_looks -= 1
            return {name: BoxUnreachable("no route") for name in names}
        return {name: self._observe_box(name) for name in names}

    def _observe_box(self, name: str) -> BoxBefore | BoxUnreachable:
        if name in self.unreachable:
            return BoxUnreachable("no route")
        marker, served = self.markers.get(name), self.generations[name]
        boot, previous = f"{self.boots.get(name, 0):012x}", served - 1 if served and served > 1 else None
        return BoxBefore(served, boot, marker, digest_of(marker), previous)

    def mark(self, markers: Mapping[str, tuple[BoxMarker, str]]) -> Mapping[str, str | BoxUnreachable | None]:
        self._count()
        written: dict[str, str | BoxUnreachable | None] = {}
        for name, (marker, expected) in markers.items():
            if name in self.unreachable:
                written[name] = BoxUnreachable("no route")
            elif digest_of(self.markers.get(name)) == expected:
                self.markers[name] = marker
                written[name] = digest_of(marker)
                self._count()
            else:
                written[name] = None
        return written

    def share_builds(self, names: Collection[str], builders: Mapping[str, Sequence[str]]) -> None:
        self._count()
        self.shared.append((*names,))

    def drain(self, names: Collection[str]) -> None:
        self._count()
        assert all(self.markers[name].record.is_out for name in names)
        self.drained |= {*names}

    def await_gateways(self, names: Collection[str]) -> None:
        self._count()
        assert not any(self.markers[name].record.is_out for name in names)
        self.awaited.append((*names,))

    def deploy(self, names: Collection[str], *, reboot: bool | None, driver: str = "") -> Mapping[str, str]:
        self._count()
        if driver:
            return self._return_to_driver(names, driver, reboot)
        reboot = self.standing_consent if reboot is None else reboot
        for name in names:
            self.deployed.append(name)
            self.deployed_out[name] = self.markers[name].record.is_out and name in self.drained
            if name not in self.deploy_faults:
                self.generations[name] = 2
            if reboot:
                self.reboots.append(name)
                self.boots[name] = self.boots.get(name, 0) + 1
            self._count()
        return {name: self.deploy_faults[name] for name in names if name in self.deploy_faults}

    def _return_to_driver(self, names: Collection[str], driver: str, reboot: bool | None) -> Mapping[str, str]:
        for name in names:
            assert reboot or self.boots.get(name), "a driver needs consent to its first reboot"
            self.drivers[name] = driver
            self._count()
            if reboot:
                self.reboots.append(name)
                self.boots[name] = self.boots.get(name, 0) + 1
            self._count()
        return {}

    def run_gate(self, name: str, *, speed: bool) -> str:
        self._count()
        self.gated.append(f"{name}{'' if speed else ' after soak'}")
        assert self.markers[name].record.is_out == speed
        return self.gate_faults.get(name, "")

    def roll_back(self, name: str, generation: int) -> str:
        self._count()
        self.rolled_back.append((name, generation))
        self.generations[name] = generation
        self._count()
        return ""


def digest_of(marker: BoxMarker | None) -> str:
    return marker.content if marker else ""


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


STEPS = 200


@pytest.mark.parametrize("successor", ["the same controller", "another one with the first state"])
@pytest.mark.parametrize("faulty", ["", "two"])
def test_a_controller_that_is_killed_at_any_step_has_a_successor(tmp_path: Path, faulty: str, successor: str) -> None:
    for kill_at in range(1, STEPS):
        fleet = StandInFleet({"one": 1, "two": 1, "three": 1, "four": 1}, kill_at=kill_at)
        if faulty:
            fleet.gate_faults[faulty] = "S01 fails"
        path = tmp_path / f"rig{kill_at}.rollout.json"
        begun = make_state(*BATCHES, soak=1, reboot=True)
        save_state(path, begun)
        try:
            phase, _ = run_rollout(path, fleet, begun)
        except ControllerKilled:
            state = load_state(path)
            assert state
            finished = {name for name, record in state.boxes.items() if record.state == "done"}
            before = len(fleet.deployed)
            if successor == "the same controller":
                phase, _ = run_rollout(path, fleet, state)
            else:
                phase, _ = run_rollout(path, fleet, begun, controller=OTHER, replaced=ONE)
            assert not finished & {*fleet.deployed[before:]}
        else:
            break
        assert phase == ("stopped" if faulty else "finished"), kill_at
        assert len(fleet.reboots) == len({*fleet.reboots}), f"step {kill_at}: a box has rebooted twice"
        expected = {"one": 2, "two": 1, "three": 2, "four": 1} if faulty else dict.fromkeys(fleet.generations, 2)
        assert fleet.generations == expected, kill_at
        assert all(fleet.deployed_out.values())
        assert not any(marker.record.is_out for marker in fleet.markers.values()), kill_at
    assert 40 < kill_at < STEPS - 1


def test_a_box_that_is_not_rolled_back_stays_out_of_rotation(path: Path, fleet: StandInFleet) -> None:
    fleet.gate_faults["one"] = "S01 fails"
    fleet.roll_back = lambda name, generation: "no space left"  # type: ignore[method-assign]
    assert run_rollout(path, fleet, make_state(*BATCHES))[0] == "stopped"
    assert fleet.markers["one"].record.is_out
    assert fleet.markers["one"].is_released


def test_a_batch_waits_for_a_maintenance_window(path: Path, fleet: StandInFleet) -> None:
    moments: list[str] = []
    real = fleet.deploy

    def deploy(names: Collection[str], *, reboot: bool | None, driver: str = "") -> Mapping[str, str]:
        moments.append(fleet.markers[next(iter(names))].moment)
        return real(names, reboot=reboot)

    fleet.deploy = deploy  # type: ignore[method-assign]
    windows = ("Sat 02:00-02:05", "Sat 02:20-02:25", "Sat 04:00-04:05 Europe/Berlin")
    assert run_rollout(path, fleet, make_state(*BATCHES, soak=6, windows=windows))[0] == "finished"
    assert moments == ["2026-11-28T02:00:00Z", "2026-11-28T02:20:00Z", "2026-11-28T03:00:00Z"]


@pytest.mark.parametrize(
    ("option", "begins"),
    [
        ((), {"one": "01:30", "two": "03:20", "three": "03:20", "four": "03:25"}),
        # those of --window replace the windows of boxes
        (("Sat 05:00-06:00",), dict.fromkeys(("one", "two", "three", "four"), "05:00")),
    ],
)
def test_a_batch_begins_in_the_windows_of_its_boxes(
    path: Path, fleet: StandInFleet, option: tuple[str, ...], begins: dict[str, str]
) -> None:
    moments: dict[str, str] = {}
    real = fleet.deploy

    def deploy(names: Collection[str], *, reboot: bool | None, driver: str = "") -> Mapping[str, str]:
        moments.update((name, fleet.markers[name].moment[11:16]) for name in names)
        return real(names, reboot=reboot)

    fleet.deploy = deploy  # type: ignore[method-assign]
    own = {"two": ("Sat 03:00-03:30",), "three": ("Sat 03:20-04:30", "Sun 03:20-04:30"), "four": ("Sat 03:25-05:00",)}
    state = make_state(*BATCHES, windows=option).model_copy(update={"windows": own})
    assert run_rollout(path, fleet, state)[0] == "finished"
    assert moments == begins


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
    for kill_at in range(1, STEPS):
        fleet = StandInFleet({"one": 3, "two": 2, "three": 5, "four": 2}, kill_at=kill_at)
        state: RolloutState | None = make_state(*BATCHES, action="rollback")
        assert state
        save_state(path, state)
        try:
            phase, _ = run_rollout(path, fleet, state)
        except ControllerKilled:
            state = load_state(path)
            assert state
            phase, _ = run_rollout(path, fleet, state)
        else:
            break
        assert phase == "finished"
        assert fleet.generations == {"one": 2, "two": 1, "three": 4, "four": 1}, kill_at
        assert fleet.deployed == []
    assert kill_at > 20


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
    for kill_at in range(1, STEPS):
        fleet = StandInFleet(dict.fromkeys(DRIVERS, 2), kill_at=kill_at)
        state: RolloutState | None = make_driver_rollback()
        assert state
        save_state(path, state)
        try:
            phase, _ = run_rollout(path, fleet, state)
        except ControllerKilled:
            state = load_state(path)
            assert state
            phase, _ = run_rollout(path, fleet, state)
        else:
            break
        assert phase == "finished"
        assert fleet.drivers == DRIVERS, kill_at
        assert sorted(fleet.reboots) == sorted(DRIVERS), kill_at
        assert {*fleet.generations.values()} == {2}
    assert kill_at > 30


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
    for kill_at in range(1, STEPS):
        fleet = StandInFleet(dict.fromkeys(DRIVERS, 1), kill_at=kill_at, standing_consent=True)
        state: RolloutState | None = make_state(*BATCHES)
        assert state
        save_state(path, state)
        try:
            run_rollout(path, fleet, state)
        except ControllerKilled:
            state = load_state(path)
            assert state
            run_rollout(path, fleet, state)
        else:
            break
        assert sorted(fleet.reboots) == sorted(DRIVERS), kill_at
    assert kill_at > 30


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
