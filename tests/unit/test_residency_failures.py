"""The ledger's decisions about starts that fail, and about those that only seem to."""

from __future__ import annotations

import json

import pytest

from roles.residency.host.ledger import decide
from roles.residency.host.state import (
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
    parse_entries,
)
from roles.residency.host.wake_states import render_wake_states
from tests.unit.simulated_box import CARD, GIB, SIX, TWO, box, kinds, observe_units

FREE = MemoryDevice(10 * GIB, 0)


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


def test_failures_of_a_form_count_again_once_it_returns() -> None:
    failed = Entry(failures=6, retry_at=400.0, reason="its engine ended with status 1", form="a")
    state = LedgerState({"one": failed})
    for form, failures in (("b", 0), ("a", 6), ("c", 0), ("d", 0), ("a", 6)):
        # a service of each generation reads what the one before has written
        rows = json.loads(json.dumps(state.to_json(), sort_keys=True))
        state = LedgerState(parse_entries(rows, same_boot=True))
        state, _ = decide({"one": InstanceSpec(SIX, form=form)}, state, observe_units(100.0, None, one="failed"))
        entry = state.entries["one"]
        assert (entry.form, entry.failures, entry.retry_at, entry.reason) == (
            (form, failures, 400.0, failed.reason) if failures else (form, 0, 0.0, "")
        )


def test_only_the_latest_forms_that_failed_are_kept() -> None:
    state = LedgerState({"one": Entry(failures=1, form="0")})
    for number in range(1, 9):
        state, _ = decide({"one": InstanceSpec(SIX, form=str(number))}, state, observe_units(100.0, None))
        state.entries["one"].failures = number
    assert [one.form for one in state.entries["one"].others] == ["5", "6", "7"]


@pytest.mark.parametrize("phase", [STARTING, AWAKE, LEAVING])
@pytest.mark.parametrize("unit", ["inactive", "failed", "deactivating", "restarting"])
def test_the_end_of_another_form_is_no_failure_of_this_one(phase: str, unit: str) -> None:
    entry = Entry(phase, since=50.0, seen_starting=True, form="a")
    state = LedgerState({"one": entry}, [Waiter("1", "one", 90.0)])
    state, actions = decide({"one": InstanceSpec(SIX, form="b")}, state, observe_units(100.0, FREE, one=unit))
    assert (state.entries["one"].failures, state.entries["one"].reason) == (0, "")
    is_over = unit in ("inactive", "failed")
    assert kinds(actions) == ([("start", "one"), ("stay", "one")] if is_over else [("stop", "one")])
    up = LedgerState({"one": entry}, [Waiter("1", "one", 90.0)])
    up, _ = decide({"one": InstanceSpec(SIX, form="b")}, up, observe_units(100.0, FREE, one="activating"))
    assert up.entries["one"].phase == STARTING


def test_an_activation_that_stops_a_start_is_no_failure() -> None:
    state = LedgerState({"one": Entry(STARTING, since=99.0)}, [Waiter("1", "one", 99.0)])
    seen = Observation(100.0, {"one": UnitObserved("deactivating")}, paused=True)
    state, actions = decide({"one": InstanceSpec(SIX)}, state, seen)
    assert (state.entries["one"].phase, state.entries["one"].failures) == (STOPPING, 0)
    assert [one.kind for one in actions] == ["stop"], "its client waits for the end of the activation"


def test_a_start_that_was_written_down_and_not_ordered_is_ordered_again() -> None:
    before = LedgerState({"one": Entry(STARTING, since=99.0)}, [Waiter("1", "one", 99.5)])
    state, actions = decide(TWO, before, observe_units(100.0, None, one="failed"))
    assert kinds(actions) == [("start", "one")]
    _, actions = decide(TWO, state, observe_units(105.0, None, one="failed"))
    assert ("answer", "1") in kinds(actions), "it does not start"
    state, _ = decide(TWO, before, observe_units(100.0, None, one="activating"))
    _, actions = decide(TWO, state, observe_units(100.5, None, one="failed"))
    assert kinds(actions) == [("stop", "one"), ("answer", "1")], "one that was seen to start has failed"
