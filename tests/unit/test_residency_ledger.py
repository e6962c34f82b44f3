"""The ledger's decisions: table-driven, and under random events with kills at each step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roles.residency.host.ledger import admit_clients, decide, estimates
from roles.residency.host.state import (
    ASLEEP,
    AWAKE,
    LEAVING,
    STARTING,
    STOPPING,
    Action,
    Entry,
    InstanceSpec,
    LedgerState,
    MemoryDevice,
    Observation,
    UnitObserved,
    Waiter,
)
from roles.residency.host.wake_states import render_wake_states
from tests.unit.simulated_box import CARD, GIB, SimulatedBox

SIX = {CARD: 6 * GIB}


def box(**specs: InstanceSpec) -> SimulatedBox:
    return SimulatedBox(specs or {"one": InstanceSpec(SIX), "two": InstanceSpec(SIX)})


def awake(found: SimulatedBox, *names: str) -> None:
    for name in names:
        found.wake(name)
    found.run(5)
    assert all(found.units[name].state == "active" for name in names)


@pytest.mark.parametrize(
    ("phase", "unit", "expected", "acts"),
    [
        (ASLEEP, "inactive", ASLEEP, []),
        (ASLEEP, "active", AWAKE, ["stay"]),
        (ASLEEP, "activating", STARTING, []),
        (ASLEEP, "failed", ASLEEP, []),
        (ASLEEP, "restarting", STOPPING, ["stop"]),
        (ASLEEP, "deactivating", STOPPING, ["stop"]),
        (STARTING, "inactive", STARTING, ["start"]),
        (STARTING, "activating", STARTING, []),
        (STARTING, "active", AWAKE, ["stay"]),
        (STARTING, "failed", STARTING, ["start"]),
        (STARTING, "restarting", STOPPING, ["stop"]),
        (STARTING, "deactivating", STOPPING, ["stop"]),
        (AWAKE, "active", AWAKE, []),
        (AWAKE, "inactive", ASLEEP, []),
        (AWAKE, "activating", STARTING, []),
        (AWAKE, "failed", STOPPING, ["stop"]),
        (LEAVING, "inactive", ASLEEP, []),
        (STOPPING, "active", STOPPING, ["stop"]),
        (STOPPING, "activating", STOPPING, ["stop"]),
        (STOPPING, "deactivating", STOPPING, []),
        (STOPPING, "failed", ASLEEP, []),
        (STOPPING, "inactive", ASLEEP, []),
    ],
)
def test_an_entry_follows_its_unit(phase: str, unit: str, expected: str, acts: list[str]) -> None:
    before = LedgerState({"one": Entry(phase, since=99.0, ready_at=90.0, last_used=99.0)})
    seen = Observation(100.0, {"one": UnitObserved(unit)}, requests={"one": 0})
    after, actions = decide({"one": InstanceSpec(SIX)}, before, seen)
    assert after.entries["one"].phase == expected
    assert [one.kind for one in actions] == acts
    assert before.entries["one"].phase == phase, "the state before is not changed"


def test_a_wake_starts_and_is_answered_once_the_unit_is_active() -> None:
    made = box()
    client = made.wake("one")
    made.step()
    assert made.state.entries["one"].phase == STARTING
    made.run(2)
    assert client not in made.answers
    made.run(2)
    assert made.answers == {client: "ready"}
    assert made.state.entries["one"].load_seconds == pytest.approx(3.0, abs=0.5)


def test_a_link_sends_the_clients_of_its_instance_on_and_changes_nothing_else() -> None:
    made = box()
    client, proof, other = made.wake("one"), made.wake("one", proof=True), made.wake("two")
    made.step()
    before = made.state
    after, actions = admit_clients(made.specs, before, made.observe(), "one")
    assert (after.entries["one"].phase, after.entries["one"].answered_at) == (AWAKE, made.now)
    assert {(one.kind, one.target) for one in actions} == {("stay", "one"), ("answer", client), ("answer", proof)}
    assert [one.id for one in after.waiters] == [other]
    assert (before.entries["one"].phase, after.entries["two"]) == (STARTING, before.entries["two"])


def test_the_model_of_the_request_that_has_waited_longest_is_next() -> None:
    made = box()
    younger, older = made.wake("one"), made.wake("two")
    made.state.waiters[1] = replace(made.state.waiters[1], since=made.now - 30)
    made.run(5)
    assert (younger in made.answers, made.answers[older]) == (False, "ready")


def test_an_idle_one_is_stopped_for_another_after_its_residence() -> None:
    made = box()
    awake(made, "one")
    client = made.wake("two")
    made.run(5)
    assert made.state.entries["two"].phase == ASLEEP
    made.run(15)
    assert made.answers[client] == "ready"
    kinds = [(kind, name) for _, kind, name in made.log if kind in ("leave", "stop", "start") and name != client]
    assert kinds.index(("leave", "one")) < kinds.index(("stop", "one")) < kinds.index(("start", "two"))


def test_one_with_requests_leaves_and_is_stopped_once_they_have_ended() -> None:
    made = box()
    awake(made, "one")
    made.ask("one")
    made.run(20)
    client = made.wake("two")
    made.run(60)
    assert made.state.entries["one"].phase == LEAVING
    assert not made.is_open("one")
    assert client not in made.answers
    made.units["one"].served = 0
    made.run(5)
    assert made.answers[client] == "ready"


def test_one_that_leaves_for_a_client_that_goes_stays() -> None:
    made = box()
    awake(made, "one")
    made.ask("one")
    made.run(20)
    client = made.wake("two")
    made.step()
    assert made.state.entries["one"].phase == LEAVING
    made.state.waiters = [one for one in made.state.waiters if one.id != client]
    made.step()
    assert made.state.entries["one"].phase == AWAKE
    assert made.is_open("one")


def test_lowest_priority_then_cheapest_reload() -> None:
    four = {CARD: 4 * GIB}
    made = box(
        dear=InstanceSpec(four, seconds=60.0, residence=0.0),
        cheap=InstanceSpec(four, seconds=2.0, residence=0.0, priority=0),
        first=InstanceSpec({CARD: 1 * GIB}, priority=-1, residence=0.0),
        new=InstanceSpec({CARD: 2 * GIB}),
        newer=InstanceSpec(four),
    )
    made.load_s = 0.5
    awake(made, "dear", "cheap", "first")
    made.state.entries["dear"].load_seconds, made.state.entries["cheap"].load_seconds = 60.0, 2.0
    made.wake("new")
    made.run(5)
    assert made.loaded() == {"dear", "cheap", "new"}, "one of the lowest priority is enough"
    made.wake("newer")
    made.run(5)
    assert made.loaded() == {"dear", "new", "newer"}, "the cheaper one to load again"


def test_one_that_is_kept_warm_starts_by_itself_and_stays() -> None:
    made = box(warm=InstanceSpec(SIX, keep_warm=True, idle=1.0, residence=0.0), two=InstanceSpec(SIX))
    made.run(5)
    assert made.units["warm"].state == "active"
    client = made.wake("two")
    made.run(30)
    assert made.units["warm"].state == "active"
    assert made.answers[client].startswith("refused memory 30 it needs 6144 MiB of card 0, of 10240")


def test_idle_ends_after_so_many_seconds_without_requests() -> None:
    made = box(one=InstanceSpec(SIX, idle=60.0))
    awake(made, "one")
    made.run(50)
    assert made.units["one"].state == "active"
    made.ask("one")
    made.run(100)
    assert made.units["one"].state == "active"
    made.units["one"].served = 0
    made.run(50)
    assert made.units["one"].state == "active"
    made.run(20)
    assert made.units["one"].state == "inactive"


def test_nothing_is_stopped_while_the_gateway_does_not_answer() -> None:
    made = box(one=InstanceSpec(SIX, idle=10.0), two=InstanceSpec(SIX))
    awake(made, "one")
    made.gateway_up = False
    made.wake("two")
    made.run(60)
    assert made.units["one"].state == "active"


def test_a_failed_start_answers_all_its_clients_and_backs_off() -> None:
    made = box()
    made.units["one"].breaks = True
    clients = [made.wake("one"), made.wake("one")]
    other = made.wake("two")
    made.run(5)
    assert [made.answers[one] for one in clients] == ["refused failed 5 broken"] * 2
    late = made.wake("one")
    made.step()
    assert made.answers[late].startswith("refused failed")
    made.run(6)
    assert made.answers[other] == "ready", "the others serve on"
    made.run(20)
    last = made.wake("one")
    made.run(25)
    assert made.answers[last] == "refused failed 10 broken"


def test_failures_with_a_regular_stop_between_them_are_not_in_a_row() -> None:
    specs = {"one": InstanceSpec(SIX), "two": InstanceSpec(SIX)}
    before = LedgerState({"one": Entry(LEAVING, failures=3), "two": Entry()}, [Waiter("1", "two", 0.0)])
    units = {"one": UnitObserved("active"), "two": UnitObserved()}
    card = {CARD: MemoryDevice(8 * GIB, 6 * GIB, {"one": 6 * GIB})}
    after, actions = decide(specs, before, Observation(100.0, units, card, {"one": 0, "two": 0}))
    assert Action("stop", "one") in actions
    assert after.entries["one"].failures == 0


def test_memory_of_other_processes_counts() -> None:
    made = box()
    made.foreign = 5 * GIB
    client = made.wake("one")
    made.run(9)
    assert client not in made.answers, "a driver may give back memory late"
    made.run(3)
    text = "refused memory 30 it needs 6144 MiB of card 0, of 10240; other processes have 5120"
    assert made.answers[client].startswith(text)
    made.foreign = 0
    client = made.wake("one")
    made.run(5)
    assert made.answers[client] == "ready"


def test_a_listener_that_may_not_evict_is_refused_and_others_are_not() -> None:
    made = box()
    awake(made, "one")
    refused, allowed = made.wake("two", may_evict=False), made.wake("two")
    made.run(30)
    assert made.answers[refused].startswith("refused busy 30 ")
    assert made.answers[allowed] == "ready"
    made = box()
    client = made.wake("two", may_evict=False)
    made.run(5)
    assert made.answers[client] == "ready", "free memory is everybody's"


def test_an_older_model_waits_no_longer_because_of_a_younger_one() -> None:
    made = box(
        big=InstanceSpec({CARD: 9 * GIB}), one=InstanceSpec({CARD: 4 * GIB}), small=InstanceSpec({CARD: 4 * GIB})
    )
    awake(made, "one")
    first = made.wake("big")
    made.step()
    second = made.wake("small")
    made.run(25)
    assert made.answers[first] == "ready"
    assert second not in made.answers


def test_alternating_requests_are_served_in_batches() -> None:
    made = box()
    made.load_s = 2.0
    answered = {"one": 0, "two": 0}
    pending: dict[str, str] = {}
    for turn in range(600):
        name = ("one", "two")[turn % 2]
        if (client := made.ask(name)) is not None:
            pending[client] = name
        else:
            answered[name] += 1
            made.units[name].served = 0
        made.step()
        for client in [one for one in pending if one in made.answers]:
            assert made.answers[client] == "ready"
            answered[pending.pop(client)] += 1
    starts = [name for _, kind, name in made.log if kind == "start"]
    assert starts == [("one", "two")[number % 2] for number in range(len(starts))], "fair order"
    # 120 s: a residence of 15 s, a stop and a load each
    assert 4 <= len(starts) <= 9
    assert answered["one"] + answered["two"] + len(pending) == 600
    made.run(60)
    assert all(client in made.answers for client in pending)


def test_a_stop_by_hand_is_respected() -> None:
    made = box()
    made.by_hand = {"one"}
    client = made.wake("one")
    made.step()
    assert made.answers[client] == "refused failed 60 it was stopped by hand"
    assert render_wake_states(made.state, made.observe()) == "one stopped 0\n"


def test_a_failed_instance_is_named_until_it_serves() -> None:
    made = box()

    def states() -> str:
        return render_wake_states(made.state, made.observe())

    made.wake("one")
    made.units["one"].breaks = True
    assert states() == ""
    made.run(4)
    assert states() == "one failed 0\n"
    made.run(5)
    assert states() == "one failed 1\n", "its pause is over"
    made.by_hand = {"one"}
    assert states() == "one stopped 0\n"
    made.by_hand, made.units["one"].breaks = set(), False
    made.wake("one")
    made.run(1)
    assert (made.units["one"].state, states()) == ("activating", "one failed 1\n")
    made.run(4)
    assert (made.units["one"].state, states()) == ("active", "")


def test_only_proofs_move_while_an_activation_is_under_way() -> None:
    made = box()
    awake(made, "one")
    made.ask("one")
    made.paused = True
    client = made.wake("two")
    made.run(30)
    assert client not in made.answers
    proof = made.wake("two", proof=True)
    made.run(45)
    assert made.answers[proof] == "ready", "its victim's streams end after the time of a drain"
    assert made.answers[client] == "ready"
    made.run(1)
    assert made.units["two"].state == "active", "its client is on its way"
    made.wake("two", proof=True)
    made.run(3)
    assert made.units["two"].state == "inactive", "it sleeps again after a proof alone"
    made.paused = False
    later = made.wake("one")
    made.run(10)
    assert made.answers[later] == "ready"


def test_a_ledger_of_another_boot_has_load_times_only() -> None:
    from roles.residency.host.state import parse_entries

    rows = {"one": {"phase": AWAKE, "load_seconds": 12.5, "failures": 3, "ready_at": 5.0}}
    assert parse_entries(rows, same_boot=True)["one"].phase == AWAKE
    assert parse_entries(rows, same_boot=False)["one"] == Entry(load_seconds=12.5)


def test_a_waiting_client_is_told_its_place_and_the_seconds() -> None:
    specs = {"one": InstanceSpec(SIX, seconds=40.0), "two": InstanceSpec(SIX)}
    state = LedgerState({"one": Entry(STARTING, since=100.0), "two": Entry()})
    state.waiters = [Waiter("1", "one", 100.0), Waiter("2", "two", 101.0)]
    assert estimates(specs, state, 110.0) == {"1": "waiting 1 30", "2": "waiting 2 -"}


NAMES = ("a", "b", "c")
ASK = st.tuples(st.just("ask"), st.sampled_from(NAMES))
FINISH = st.tuples(st.just("finish"), st.sampled_from(NAMES))
WAIT = st.tuples(st.just("wait"), st.sampled_from((1, 10, 20)))
FAULT = st.one_of(
    st.tuples(st.just("withdraw"), st.integers(0, 3)),
    st.tuples(st.just("break"), st.sampled_from(NAMES)),
    st.tuples(st.just("crash"), st.sampled_from(NAMES)),
    st.tuples(st.just("foreign"), st.integers(0, 8)),
    st.tuples(st.just("gateway"), st.booleans()),
    st.tuples(st.just("kill"), st.integers(0, 4)),
    st.tuples(st.just("cold"), st.just(0)),
)
EVENTS = st.lists(st.one_of(ASK, ASK, ASK, WAIT, WAIT, FINISH, FAULT), min_size=10, max_size=40)


def _play(made: SimulatedBox, event: tuple[str, object]) -> None:
    """Have one event happen; a kill cuts a decision off after so many of its actions."""
    kind, value = event
    if kind == "ask":
        made.ask(str(value))
    elif kind == "finish":
        made.units[str(value)].served = 0
    elif kind == "withdraw":
        made.state.waiters = [one for one in made.state.waiters if int(one.id) % 4 != value]
    elif kind == "break":
        made.units[str(value)].breaks = not made.units[str(value)].breaks
    elif kind == "crash" and made.units[str(value)].state == "active":
        made.units[str(value)].state, made.units[str(value)].result = "restarting", "exit-code"
        made.units[str(value)].served = 0
    elif kind == "foreign":
        made.foreign = min(int(str(value)) * GIB, made.total - sum(made.ours().values()))
    elif kind == "gateway":
        made.gateway_up = bool(value)
    elif kind == "kill":
        made.advance()
        for one in made.decide()[: int(str(value))]:
            made.carry_out(one)
        made.restart_service()
    elif kind == "cold":
        made.file = "{}"
        made.restart_service()
    elif kind == "wait":
        for _ in range(int(str(value))):
            _step_and_compare(made)


def _step_and_compare(made: SimulatedBox) -> None:
    """One step, and the rules that hold after any others."""
    made.advance()
    before = {name: (one.served, one.state) for name, one in made.units.items()}
    phases = {name: one.phase for name, one in made.state.entries.items()}
    foreign = made.foreign
    actions = made.decide()
    for one in actions:
        if one.kind == "start" and phases.get(one.target, ASLEEP) == ASLEEP:
            assert made.reserved() + foreign <= made.total, "a start exceeds the card"
        if one.kind == "stop":
            served, state = before[one.target]
            assert not served or state != "active", "an instance with requests was stopped"
            entry = made.state.entries[one.target]
            if state == "active" and phases.get(one.target) == LEAVING:
                assert made.now - entry.ready_at >= made.specs[one.target].residence
        made.carry_out(one)


@settings(max_examples=100, deadline=None)
@given(EVENTS)
def test_whatever_happens_the_card_is_never_exceeded_and_no_request_is_stopped(
    events: list[tuple[str, object]],
) -> None:
    made = box(
        a=InstanceSpec({CARD: 6 * GIB}, residence=1.0),
        b=InstanceSpec({CARD: 5 * GIB}, residence=1.0, idle=10.0),
        c=InstanceSpec({CARD: 3 * GIB}, residence=0.5, priority=1),
    )
    made.load_s = 1.0
    for event in events:
        _play(made, event)
        _step_and_compare(made)
        # instances never have more than the card
        assert sum(made.ours().values()) <= made.total
    # once nothing goes wrong any more, each client gets an answer
    made.foreign, made.gateway_up = 0, True
    for unit in made.units.values():
        unit.breaks, unit.served = False, 0
    waiting = [one.id for one in made.state.waiters]
    for _ in range(600):
        _step_and_compare(made)
    assert all(client in made.answers for client in waiting)
    assert not made.state.waiters


def test_clients_are_refused_where_the_use_of_a_card_stays_unknown() -> None:
    state = LedgerState({"one": Entry()}, [Waiter("1", "one", 100.0)])
    specs = {"one": InstanceSpec(SIX)}
    state, actions = decide(specs, state, Observation(100.0, {"one": UnitObserved()}))
    assert not actions
    state, actions = decide(specs, state, Observation(161.0, {"one": UnitObserved()}))
    text = "the memory of card 0 is unknown, for nvidia-smi does not list it"
    assert [one.text for one in actions] == [f"refused memory 30 {text}"]


def test_an_activation_that_stops_a_start_is_no_failure() -> None:
    state = LedgerState({"one": Entry(STARTING, since=99.0)}, [Waiter("1", "one", 99.0)])
    seen = Observation(100.0, {"one": UnitObserved("deactivating")}, paused=True)
    state, actions = decide({"one": InstanceSpec(SIX)}, state, seen)
    assert (state.entries["one"].phase, state.entries["one"].failures) == (STOPPING, 0)
    assert [one.kind for one in actions] == ["stop"], "its client waits for the end of the activation"


FULL = MemoryDevice(10 * GIB, 8 * GIB, {"one": 8 * GIB})
TWO = {"one": InstanceSpec(SIX), "two": InstanceSpec(SIX)}


def observe_units(now: float, device: MemoryDevice | None, requests: int | None = 0, **units: str) -> Observation:
    """An observation of units by their states."""
    observed = {name: UnitObserved(state, "success", "an earlier failure") for name, state in units.items()}
    counts = dict.fromkeys(units, requests)
    return Observation(now, observed, {CARD: device} if device else {}, counts)


def kinds(actions: list[Action]) -> list[tuple[str, str]]:
    return [(one.kind, one.target) for one in actions]


@pytest.mark.parametrize("unit", ["failed", "inactive"])
def test_memory_that_a_sleeping_instance_has_left_is_not_free(unit: str) -> None:
    state = LedgerState({"one": Entry(STOPPING), "two": Entry()}, [Waiter("1", "two", 90.0)])
    state, actions = decide(TWO, state, observe_units(100.0, FULL, one=unit, two="inactive"))
    assert not actions
    state, actions = decide(TWO, state, observe_units(111.0, FULL, one=unit, two="inactive"))
    assert next(one.text for one in actions).startswith(
        "refused memory 30 it needs 6144 MiB of card 0, of 10240; other"
    )


@pytest.mark.parametrize(
    "device",
    [
        MemoryDevice(10 * GIB, 6 * GIB),
        MemoryDevice(10 * GIB, 6 * GIB, {"one": 0}, frozenset({"one"})),
        MemoryDevice(10 * GIB, 9 * GIB, {"one": 0}, frozenset({"one"})),
    ],
)
def test_instances_take_turns_where_a_driver_names_no_memory_of_processes(device: MemoryDevice) -> None:
    state = LedgerState({"one": Entry(AWAKE), "two": Entry(short_since=80.0)}, [Waiter("1", "two", 80.0)])
    _, actions = decide(TWO, state, observe_units(100.0, device, one="active", two="inactive"))
    foreign = device.used - 6 * GIB
    # of 10 GiB, 3 of others leave more than 6
    assert kinds(actions) == ([("leave", "one")] if foreign <= 4 * GIB else [])


def test_a_start_whose_memory_is_not_named_refuses_no_other() -> None:
    state = LedgerState({"one": Entry(STARTING), "two": Entry(short_since=80.0)}, [Waiter("1", "two", 80.0)])
    _, actions = decide(
        TWO, state, observe_units(100.0, MemoryDevice(10 * GIB, 6 * GIB), one="activating", two="inactive")
    )
    assert not actions


def test_one_that_leaves_does_so_while_the_use_of_its_card_is_unknown() -> None:
    state = LedgerState({"one": Entry(LEAVING), "two": Entry()}, [Waiter("1", "two", 90.0)])
    state, actions = decide(TWO, state, observe_units(100.0, None, 1, one="active", two="inactive"))
    assert kinds(actions) == [("leave", "one")]
    _, actions = decide(TWO, state, observe_units(101.0, None, 0, one="active", two="inactive"))
    assert kinds(actions) == [("stop", "one")]


@pytest.mark.parametrize("count", [3, None])
def test_an_order_to_stop_that_was_lost_is_not_repeated_under_requests(count: int | None) -> None:
    state = LedgerState({"one": Entry(STOPPING, since=60.0)})
    _, actions = decide(TWO, state, observe_units(100.0, None, count, one="active", two="inactive"))
    assert "stop" not in [one.kind for one in actions]
    state.waiters = [Waiter("1", "two", 90.0)]
    state, actions = decide(TWO, state, observe_units(100.0, FULL, 3, one="active", two="inactive"))
    assert kinds(actions) == [("leave", "one")]
    assert state.entries["one"].phase == LEAVING


def test_a_client_that_waits_with_a_proof_keeps_the_instance_awake() -> None:
    both = [Waiter("1", "one", 80.0, proof=True), Waiter("2", "one", 81.0)]
    state, actions = decide(TWO, LedgerState({"one": Entry(AWAKE)}, both), observe_units(100.0, FULL, one="active"))
    assert kinds(actions) == [("answer", "1"), ("answer", "2")]
    assert not state.entries["one"].sleep_next
    # the next proof gives it the time to arrive
    state.waiters = [Waiter("3", "two", 100.0, proof=True)]
    state, actions = decide(TWO, state, observe_units(101.0, FULL, one="active", two="inactive"))
    assert not actions
    _, actions = decide(TWO, state, observe_units(103.0, FULL, one="active", two="inactive"))
    assert kinds(actions) == [("leave", "one")]
    state, actions = decide(TWO, LedgerState({"one": Entry(AWAKE)}, both[:1]), observe_units(100.0, FULL, one="active"))
    assert kinds(actions) == [("answer", "1"), ("leave", "one")], "a proof alone is over at once"


def test_idle_does_not_end_before_a_client_has_arrived() -> None:
    specs = {"one": InstanceSpec(SIX, idle=1.0, residence=0.0)}
    state = LedgerState({"one": Entry(AWAKE, last_used=98.9, answered_at=98.9)})
    assert decide(specs, state, observe_units(100.0, None, one="active"))[1] == []
    assert kinds(decide(specs, state, observe_units(101.0, None, one="active"))[1]) == [("leave", "one")]


def test_a_start_that_was_written_down_and_not_ordered_is_ordered_again() -> None:
    before = LedgerState({"one": Entry(STARTING, since=99.0)}, [Waiter("1", "one", 99.5)])
    state, actions = decide(TWO, before, observe_units(100.0, None, one="failed"))
    assert kinds(actions) == [("start", "one")]
    _, actions = decide(TWO, state, observe_units(105.0, None, one="failed"))
    assert ("answer", "1") in kinds(actions), "it does not start"
    state, _ = decide(TWO, before, observe_units(100.0, None, one="activating"))
    _, actions = decide(TWO, state, observe_units(100.5, None, one="failed"))
    assert kinds(actions) == [("stop", "one"), ("answer", "1")], "one that was seen to start has failed"


def test_thousands_of_clients_cost_one_sort() -> None:
    class CountedSince(float):
        """A time that counts its comparisons."""

        compared = 0

        def __lt__(self, other: float) -> bool:
            CountedSince.compared += 1
            return float(self) < float(other)

    specs = {f"i{number}": InstanceSpec(SIX) for number in range(8)}
    waiters = [Waiter(f"{one:05d}", f"i{one % 8}", CountedSince(one)) for one in range(4096)]
    lines = estimates(specs, LedgerState({name: Entry() for name in specs}, waiters), 1.0)
    assert lines["04095"] == "waiting 4096 -"
    assert CountedSince.compared < 20 * len(waiters)
    state, actions = decide(specs, LedgerState({name: Entry(AWAKE) for name in specs}, waiters), Observation(5000.0))
    assert (len(actions), state.waiters) == (4096, [])
    assert CountedSince.compared < 60 * len(waiters)
