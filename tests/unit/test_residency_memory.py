"""The ledger's decisions where the memory of a card has other users, or is unknown."""

from __future__ import annotations

import pytest

from roles.residency.host.ledger import decide
from roles.residency.host.state import (
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
from tests.unit.simulated_box import FULL, GIB, SIX, TWO, box, kinds, observe_units


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


@pytest.mark.parametrize(
    ("device", "text"),
    [
        ("0", "it needs 6144 MiB of card 0, which has 5120"),
        ("host", "it needs 6144 MiB of the host, which has 5120 for instances on demand"),
    ],
)
def test_one_that_needs_more_than_there_ever_is_is_refused_at_once(device: str, text: str) -> None:
    state = LedgerState({"one": Entry()}, [Waiter("1", "one", 100.0, proof=True)])
    seen = Observation(100.0, {"one": UnitObserved()}, {device: MemoryDevice(5 * GIB, 0)})
    _, actions = decide({"one": InstanceSpec({device: 6 * GIB})}, state, seen)
    assert [one.text for one in actions] == [f"refused memory 30 {text}"]


def test_a_refusal_names_the_memory_of_instances_that_stay_loaded() -> None:
    entries = {"warm": Entry(AWAKE), "one": Entry(short_since=80.0)}
    specs = {"warm": InstanceSpec({"0": 5 * GIB}, keep_warm=True), "one": InstanceSpec(SIX)}
    device = MemoryDevice(10 * GIB, 6 * GIB, {"warm": 5 * GIB})
    seen = Observation(100.0, {"warm": UnitObserved("active"), "one": UnitObserved()}, {"0": device}, {"warm": 0})
    _, actions = decide(specs, LedgerState(entries, [Waiter("1", "one", 80.0)]), seen)
    text = "it needs 6144 MiB of card 0, of 10240; other processes have 1024, instances that stay loaded 5120"
    assert f"refused memory 30 {text}" in [one.text for one in actions]


def test_clients_are_refused_where_the_use_of_a_card_stays_unknown() -> None:
    state = LedgerState({"one": Entry()}, [Waiter("1", "one", 100.0)])
    specs = {"one": InstanceSpec(SIX)}
    state, actions = decide(specs, state, Observation(100.0, {"one": UnitObserved()}))
    assert not actions
    state, actions = decide(specs, state, Observation(161.0, {"one": UnitObserved()}))
    text = "the memory of card 0 is unknown, for nvidia-smi does not list it"
    assert [one.text for one in actions] == [f"refused memory 30 {text}"]


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
