"""The ledger's decisions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roles.residency.host.ledger import admit_clients, decide, estimates
from roles.residency.host.state import (
    ASLEEP,
    AWAKE,
    LEAVING,
    STARTING,
    STOPPING,
    Entry,
    InstanceSpec,
    LedgerState,
    MemoryDevice,
    Observation,
    UnitObserved,
    Waiter,
)
from roles.residency.host.wake_states import render_wake_states
from tests.unit.simulated_box import CARD, FULL, GIB, SIX, TWO, SimulatedBox, box, kinds, observe_units


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


def test_failures_of_another_form_of_a_unit_do_not_count() -> None:
    failed = Entry(failures=4, retry_at=400.0, reason="its engine ended with status 1", form="new")
    seen = observe_units(100.0, None, one="inactive")
    for form, reason in (("new", failed.reason), ("old", "")):
        state = LedgerState({"one": replace(failed)}, [])
        state, _ = decide({"one": InstanceSpec(SIX, form=form)}, state, seen)
        entry = state.entries["one"]
        assert (entry.reason, entry.retry_at > 100.0, bool(entry.failures), entry.form) == (
            *(reason, bool(reason), bool(reason)),
            form,
        )


def test_the_seconds_of_a_waiting_client_include_those_for_which_another_model_serves_at_least() -> None:
    specs = {"one": InstanceSpec(SIX, seconds=3.0), "two": InstanceSpec(SIX, residence=15.0)}
    entries = {"one": Entry(), "two": Entry(AWAKE, ready_at=95.0)}
    state = LedgerState(entries, [Waiter("1", "one", 99.0)])
    loaded = observe_units(100.0, MemoryDevice(10 * GIB, 6 * GIB, {"two": 6 * GIB}), one="inactive", two="active")
    assert estimates(specs, state, 100.0, loaded) == {"1": "waiting 1 13"}
    assert estimates(specs, state, 108.0, loaded) == {"1": "waiting 1 5"}
    assert estimates(specs, state, 120.0, loaded) == {"1": "waiting 1 3"}
    roomy = observe_units(100.0, MemoryDevice(20 * GIB, 6 * GIB, {"two": 6 * GIB}), one="inactive", two="active")
    assert estimates(specs, state, 100.0, roomy) == {"1": "waiting 1 3"}
    warm = {**specs, "warm": InstanceSpec(SIX, keep_warm=True)}
    state.entries["warm"] = Entry(AWAKE, ready_at=10.0)
    assert estimates(warm, state, 100.0, loaded) == {"1": "waiting 1 13"}, "one that stays loaded makes no room"
