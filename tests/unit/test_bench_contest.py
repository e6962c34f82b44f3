"""Whatever becomes of a measurement, the unit serves after it: by the bench, or by the host itself."""

import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from bench import alternating_runs as contest_module
from bench import sandbox_overhead
from bench.alternating_runs import BARE_UNIT, GUARD_UNIT, LOAD_UNIT, Contest, Deployed, MeasurementFailed, contest
from bench.sandbox_overhead import measure
from checks.connections import ConnectedHost
from rigwright.model.rig import Rig
from roles.root_shell import RootCommandFailed
from tests.unit.samples import sample_installation, sample_instance, sample_rig

CHAT = sample_instance()
MADE = sample_rig(CHAT)
DECLARED = Deployed(MADE, CHAT, sample_installation())
STARTED_FROM = {unit_state.unit: unit_state.started_from for unit_state in DECLARED.unit_states}


@dataclass
class ContestHost:
    """Its orders, and which commands fail, by a piece of their text."""

    told: list[str] = field(default_factory=list)
    fails: dict[str, Exception] = field(default_factory=dict)
    refused: str = ""
    lost: str = ""
    released: bool = False
    started_from: dict[str, str] = field(default_factory=lambda: dict(STARTED_FROM))
    channel: SimpleNamespace | None = None

    def run(self, script: str, stdin: str = "") -> str:
        self.told.append(script)
        for text, error in self.fails.items():
            if text in script:
                raise error
        if script.startswith("head"):
            return f"{self.started_from[script.rpartition('/')[2]]}\n"
        return ""

    def acquire(self) -> str:
        self.channel = SimpleNamespace(close=lambda: setattr(self, "released", True))
        return self.refused

    def index(self, text: str) -> int:
        """Of the last command with this text."""
        return max(number for number, script in enumerate(self.told) if text in script)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> ContestHost:
    made = ContestHost()
    monkeypatch.setattr(contest_module, "RootShell", lambda target: made)
    monkeypatch.setattr(contest_module, "DeployLock", lambda target, doing: made)
    return made


@pytest.mark.parametrize("error", [None, RuntimeError, KeyboardInterrupt, SystemExit])
def test_the_unit_serves_after_it_and_then_the_deploy_lock_is_free(host, error):
    if error:
        with pytest.raises(error), contest(SimpleNamespace(), DECLARED, "bench", lambda text: None) as found:
            found.serve("bare")
            raise error
    else:
        with contest(SimpleNamespace(), DECLARED, "bench", lambda text: None) as found:
            found.serve("bare")
    assert host.index(f"systemctl stop {BARE_UNIT}") < host.index(f"systemctl start {CHAT.unit}")
    assert host.index(f"systemctl stop {LOAD_UNIT}") < host.index(f"systemctl start {CHAT.unit}")
    # the host's own way back stays until the unit is there
    assert host.index(f"systemctl start {CHAT.unit}") < host.index(f"systemctl stop {GUARD_UNIT}")
    assert host.released


def test_the_way_back_is_there_before_anything_is_stopped(host: ContestHost) -> None:
    with contest(SimpleNamespace(), DECLARED, "bench", lambda text: None) as found:
        found.serve("bare")
    started = next(number for number, script in enumerate(host.told) if f"--unit={GUARD_UNIT}" in script)
    stopped = next(number for number, script in enumerate(host.told) if script.startswith("systemctl stop"))
    assert started < stopped


@pytest.mark.parametrize("error", [RootCommandFailed("it crashed"), OSError("the connection was lost")])
def test_a_unit_that_does_not_come_back_is_left_to_the_host(host: ContestHost, error: Exception) -> None:
    with (
        pytest.raises(MeasurementFailed, match=r"(it crashed|was lost)\nnot back: .*; the host starts what is missing"),
        contest(SimpleNamespace(), DECLARED, "bench", lambda text: None),
    ):
        host.fails[f"systemctl start {CHAT.unit} ||"] = error
    assert not any(f"systemctl stop {GUARD_UNIT}" in script for script in host.told)
    assert host.released


def test_nothing_is_touched_while_the_deploy_lock_is_held(host: ContestHost) -> None:
    host.refused = "ana@desk holds the deploy lock"
    with pytest.raises(MeasurementFailed, match="refused: ana@desk"):
        contest(SimpleNamespace(), DECLARED, "bench", lambda text: None).__enter__()
    assert host.told == []


@pytest.mark.parametrize("name", STARTED_FROM)
def test_an_instance_that_does_not_run_or_has_no_port_is_left_as_it_is(host: ContestHost, name: str) -> None:
    host.fails[f"is-active {name}"] = RootCommandFailed("exit status 3")
    with pytest.raises(MeasurementFailed, match=f"{name} does not run: start or deploy it first"):
        contest(SimpleNamespace(), DECLARED, "bench", lambda text: None).__enter__()
    assert not any(word in script for script in host.told for word in ("stop", "start"))
    assert host.released


@pytest.mark.parametrize("name", STARTED_FROM)
def test_an_instance_of_another_declaration_is_left_as_it_is(host: ContestHost, name: str) -> None:
    host.started_from[name] = "0" * 64
    with pytest.raises(MeasurementFailed, match=f"{name} was not started from what the inventory declares"):
        contest(SimpleNamespace(), DECLARED, "bench", lambda text: None).__enter__()
    assert not any(word in script for script in host.told for word in ("stop", "systemctl start"))
    assert host.released


def test_one_process_is_stopped_before_the_other_is_started(host: ContestHost) -> None:
    found = Contest(host, host, DECLARED)  # type: ignore[arg-type]
    found.serve("unit")
    found.serve("bare")
    stops = [number for number, script in enumerate(host.told) if script.startswith("systemctl stop")]
    assert all(CHAT.unit in host.told[number] and BARE_UNIT in host.told[number] for number in stops)
    assert stops[0] < host.index(f"systemctl start {CHAT.unit}") < stops[1] < host.index("systemd-run")


def test_without_the_deploy_lock_nothing_goes_on(host: ContestHost) -> None:
    found = Contest(host, host, DECLARED)  # type: ignore[arg-type]
    host.lost = "the host released it"
    with pytest.raises(MeasurementFailed, match="lost the deploy lock"):
        found.serve("bare")
    assert host.told == []


def box(rig: Rig) -> Any:
    """A host on which the chat instance is installed."""
    installations = {CHAT.installed_as: sample_installation()}
    return SimpleNamespace(rig=rig, target=None, resolve_desired=lambda: SimpleNamespace(installations=installations))


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Arguments of each load; all requests of a load are answered alike."""
    one = {"first_s": 0.1, "gaps_s": [0.1], "total_s": 0.2, "tokens": 2}
    asked: list[dict[str, Any]] = []

    def load(made: Contest, arguments: str, program: str) -> str:
        asked.append(json.loads(arguments))
        number = asked[-1]["streams"] * asked[-1]["requests"]
        return json.dumps({"seconds": 0.2, "requests": [one] * number})

    monkeypatch.setattr(Contest, "load", load)
    monkeypatch.setattr(sandbox_overhead, "_machine", lambda box, instance, found: None)
    return asked


def test_unit_and_port_are_the_same_process_asked_alternately(host, loads):
    report = measure(box(MADE), CHAT, [3], 1, 2, 3, 2, lambda text: None)  # type: ignore[arg-type]
    places = DECLARED.places
    assert len(set(places.values())) == 3
    names = {at: way for way, at in places.items()}
    timed = [(names[one["at"]], one["seed"]) for one in loads if one["streams"] == 3]
    assert [way for way, _ in timed] == [
        *("unit", "port", "port", "unit", "unit", "port", "bare", "bare", "bare"),
        # the order changes from round to round
        *("bare", "bare", "bare", "port", "unit", "unit", "port", "port", "unit"),
    ]
    seeds = {way: [seed for name, seed in timed if name == way] for way in places}
    assert seeds["bare"] == seeds["unit"] == seeds["port"]
    assert len(set(seeds["bare"])) == 6
    # a process a turn: two of the unit's, and the one that serves after it
    assert len([script for script in host.told if f"systemctl start {CHAT.unit} ||" in script]) == 3
    assert {row.way: len(row.loads) for row in report.rows} == {"bare": 6, "unit": 6, "port": 6}


def test_another_instance_takes_the_place_of_the_bare_process(host, loads):
    code = sample_instance("code", port=8021)
    both = sample_rig(CHAT, code)
    mine, other = (Deployed(both, one, sample_installation()) for one in (CHAT, code))
    for unit_state in (*mine.unit_states, *other.unit_states):
        host.started_from[unit_state.unit] = unit_state.started_from
    report = measure(box(both), CHAT, [3], 1, 2, 1, 1, lambda text: None, code)  # type: ignore[arg-type]
    assert {row.way: len(row.loads) for row in report.rows} == {"other": 1, "unit": 1, "port": 1}
    assert report.baseline_ways == {"unit": "other", "port": "unit"}
    assert {name: len(taken) for name, taken in report.starts.items()} == {"unit": 1, "other": 1}
    asked = {(one["at"], one["key_file"]) for one in loads}
    assert {(code.socket, other.key_file), (CHAT.socket, mine.key_file)} <= asked
    assert not any("systemd-run" in script and BARE_UNIT in script.split("--")[0] for script in host.told)
    # never both at a time; both serve when all is over, and the host itself would see to both
    turns = [script for script in host.told if f"stop {CHAT.unit}" in script]
    assert all(f"stop {code.unit}" in script for script in turns)
    last = host.index(f"systemctl stop {GUARD_UNIT}")
    assert max(host.index(f"systemctl start {one.unit} ||") for one in (CHAT, code)) < last
    (guarded,) = [script for script in host.told if f"--unit={GUARD_UNIT}" in script]
    assert f"systemctl start {CHAT.unit} {code.unit}" in guarded


def test_requests_that_no_slot_has_room_for_are_refused(host: ContestHost) -> None:
    room = CHAT.variant.context_per_sequence
    box = ConnectedHost("box", MADE, SimpleNamespace())
    with pytest.raises(MeasurementFailed, match=f"has {room} tokens: no room for 200 and an answer of {room}"):
        measure(box, CHAT, [1], 1, room, 1, 1, lambda text: None)
    assert host.told == []


def test_both_processes_may_be_up_at_once_and_are_asked_load_by_load(host, loads):
    measure(box(MADE), CHAT, [3], 1, 2, 2, 2, lambda text: None, together=True)  # type: ignore[arg-type]
    names = {at: way for way, at in DECLARED.places.items()}
    assert [names[one["at"]] for one in loads if one["streams"] == 3] == [
        *("unit", "port", "bare", "bare", "port", "unit"),
        *("bare", "unit", "port", "port", "unit", "bare"),
    ]
    # once a round, before its first process; and once more before the unit serves again
    assert len([script for script in host.told if f"stop {CHAT.unit}" in script]) == 2
