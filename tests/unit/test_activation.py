"""From a host's serving state to a generation: its stops, starts and waits, state by state."""

from dataclasses import replace
from typing import Any

import pytest

from rigwright.host.systemd import UnitState
from rigwright.serving.activation import Activation, goal_for, goal_of, is_only_loading, plan_activation
from rigwright.serving.generation import SETTLE, Generation
from rigwright.serving.instance_units import listener_units
from rigwright.serving.serving_state import ObservedServing
from tests.unit.host_states import (
    CHAT,
    CODE,
    CONFIG,
    converged_state,
    host_generation,
    running_process,
    target_generation,
    two_instance_rig,
)
from tests.unit.samples import sample_card, sample_instance, sample_rig

AIM = target_generation()
UNIT_STATES = {unit_state.unit: unit_state for unit_state in AIM.unit_states}
BEFORE = target_generation(
    two_instance_rig(sample_instance("chat", context=8192), sample_instance("code", context=8192, port=8021))
)
EARLIER = {unit_state.unit: unit_state for unit_state in BEFORE.unit_states}
RIGHT = {name: running_process(unit_state) for name, unit_state in UNIT_STATES.items()}
(PORT, HOLDER), (PORT_2, HOLDER_2), PORT_3 = listener_units(8020), listener_units(8021), listener_units(8022)[0]
FOREIGN = "rigwright-old.service"
OLD = UnitState(FOREIGN, "0" * 64, 9000, frozenset())
WAYS_BACK = (
    host_generation(1, AIM.digest, unit_states=AIM.unit_states),
    host_generation(2, unit_states=BEFORE.unit_states),
    host_generation(3, unit_states=(OLD,)),
)
NOBODY_KNOWS = "f" * 64
UNKNOWN = {name: UnitState(name, "", 0, frozenset()) for name in (CHAT, FOREIGN)}
"""The holdings of a process where they are unknown: it has to end, no more can be proven."""
SYSTEMD = Activation()
"""Nothing is stopped or started: systemd has to read what is there."""


def way(found: ObservedServing, aim: Generation = AIM) -> Activation | None:
    return plan_activation(found, CONFIG, goal_for(found, aim))


def order(found: ObservedServing, aim: Generation = AIM) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The stops, and then the starts."""
    made = way(found, aim)
    assert made is not None
    return made.stop, made.restart


def chat(**changes: Any) -> dict[str, Any]:
    """A converged host but for the process of chat, and with earlier generations."""
    return {"processes": {**RIGHT, CHAT: running_process(UNIT_STATES[CHAT], **changes)}, "generations": WAYS_BACK}


def stray(**changes: Any) -> dict[str, Any]:
    """A converged host with one process more."""
    return {"processes": {FOREIGN: running_process(OLD, **changes), **RIGHT}, "generations": WAYS_BACK}


LINKS = converged_state(AIM).links
STATES: dict[str, tuple[dict[str, Any], Activation | None]] = {
    "converged": ({}, None),
    "changed unit": (chat(started_from=EARLIER[CHAT].started_from), Activation((), (CHAT,), (), (EARLIER[CHAT],))),
    "started from what nobody knows": (
        chat(started_from=NOBODY_KNOWS),
        Activation((CHAT,), (CHAT,), (), (UNKNOWN[CHAT],)),
    ),
    "started before systemd read its unit": (chat(started_from=""), Activation((CHAT,), (CHAT,), (), (UNKNOWN[CHAT],))),
    "stale key": (chat(key_current=False), Activation((), (CHAT,), (), (UNIT_STATES[CHAT],))),
    "weights replaced on disk": (chat(weights_current=False), Activation((), (CHAT,), (), (UNIT_STATES[CHAT],))),
    "failed": (chat(state="failed", sub="failed", running=False), Activation((), (CHAT,))),
    "stopped by hand": (chat(state="inactive", sub="dead", running=False), Activation((), (CHAT,))),
    "stopping": (chat(state="deactivating", sub="stop-sigterm"), Activation((), (CHAT,), (), (UNIT_STATES[CHAT],))),
    "gone": ({"processes": {name: one for name, one in RIGHT.items() if name != CHAT}}, Activation((), (CHAT,))),
    "loading": (chat(state="activating", sub="start-post"), Activation((), (), (CHAT,))),
    "loading another unit": (
        chat(state="activating", sub="start-post", started_from=EARLIER[CHAT].started_from),
        Activation((), (CHAT,), (), (EARLIER[CHAT],)),
    ),
    "loading again after a failure": (
        chat(state="activating", sub="start-post", restarts=1),
        Activation((), (CHAT,), (), (UNIT_STATES[CHAT],)),
    ),
    "between two starts": (chat(state="activating", sub="auto-restart", running=False), Activation((), (CHAT,))),
    "restarted by systemd and serving": (chat(restarts=3), None),
    "stray instance": (stray(), Activation((FOREIGN,), (), (), (OLD,))),
    "stray instance that nobody knows": (
        stray(started_from=NOBODY_KNOWS),
        Activation((FOREIGN,), (), (), (UNKNOWN[FOREIGN],)),
    ),
    "stray instance that is starting": (
        stray(state="activating", sub="start-post"),
        Activation((FOREIGN,), (), (), (OLD,)),
    ),
    "stray instance that is down": (stray(state="inactive", sub="dead", running=False), None),
    "stray instance that has failed": (stray(state="failed", sub="failed", running=False), None),
    "loaded description stale": ({"loaded": "All instances of this rig, generation 0"}, SYSTEMD),
    "never loaded": ({"loaded": "rigwright.target"}, SYSTEMD),
    "reload needed": ({"reload_needed": True}, SYSTEMD),
    "not enabled": ({"enabled": False}, SYSTEMD),
    "link missing": ({"links": {name: to for name, to in LINKS.items() if name != CHAT}}, SYSTEMD),
    "link to elsewhere": ({"links": {**LINKS, CHAT: f"{CONFIG}/current/units/{CODE}"}}, SYSTEMD),
    "an ordinary file of ours": ({"links": {**LINKS, CHAT: ""}}, SYSTEMD),
    "a file of ours too many": ({"links": {**LINKS, FOREIGN: ""}}, Activation(idle=(FOREIGN,))),
    "one that was stopped and is not declared": (
        {**stray(state="inactive", sub="dead", running=False), "links": {**LINKS, FOREIGN: "/x"}},
        Activation(idle=(FOREIGN,)),
    ),
    "one that runs and is not declared": (
        {**stray(), "links": {**LINKS, FOREIGN: "/x"}},
        Activation((FOREIGN,), (), (), (OLD,)),
    ),
    "journal left": ({"activating": True}, SYSTEMD),
    "no current link": ({"current": None}, SYSTEMD),
    "another generation is current": ({"current": 7}, SYSTEMD),
    "damaged current generation": ({"generations": (host_generation(1, AIM.digest, found="other"),)}, SYSTEMD),
    "damaged, and no current link": (
        {"generations": (host_generation(1, AIM.digest, found="other"),), "current": None},
        SYSTEMD,
    ),
    "a newer generation with this content": (
        {"generations": (host_generation(1, AIM.digest), host_generation(2, AIM.digest))},
        SYSTEMD,
    ),
}


@pytest.mark.parametrize("state", STATES)
def test_the_way_from_a_state_to_the_generation(state: str) -> None:
    changes, expected = STATES[state]
    assert way(converged_state(AIM, **changes)) == expected


def test_on_a_blank_host_everything_is_started() -> None:
    assert way(ObservedServing()) == Activation((), (CHAT, CODE, PORT, PORT_2), listen=(HOLDER, HOLDER_2))


def test_on_a_blank_host_a_rig_without_instances_is_activated_too() -> None:
    empty = target_generation(sample_rig())
    assert way(ObservedServing(), empty) == SYSTEMD
    assert way(converged_state(empty), empty) is None


def test_an_instance_that_takes_the_card_of_another_waits_for_it_to_move() -> None:
    cards = (sample_card("8.6"), sample_card("8.6"))
    before = target_generation(sample_rig(sample_instance("chat", cards=(0,)), cards=cards))
    after = target_generation(
        sample_rig(sample_instance("chat", cards=(1,)), sample_instance("code", cards=(0,), port=8021), cards=cards)
    )
    assert order(converged_state(before), after) == ((CHAT,), (CHAT, CODE, PORT_2))


def test_an_instance_that_goes_is_stopped_before_the_one_that_gets_its_card_starts() -> None:
    cards = (sample_card("8.6"),)
    before = target_generation(sample_rig(sample_instance("chat", cards=(0,)), cards=cards))
    after = target_generation(sample_rig(sample_instance("code", cards=(0,)), cards=cards))
    assert order(converged_state(before), after) == ((CHAT,), (CODE, PORT))


def test_a_stopped_process_is_no_conflict() -> None:
    cards = (sample_card("8.6"), sample_card("8.6"))
    before = target_generation(
        sample_rig(sample_instance("chat", cards=(0,)), sample_instance("code", cards=(1,), port=8021), cards=cards)
    )
    after = target_generation(
        sample_rig(sample_instance("chat", cards=(1,)), sample_instance("code", cards=(0,), port=8021), cards=cards)
    )
    assert order(converged_state(before), after) == ((CHAT, CODE), (CHAT, CODE))
    down = {name: running_process(before.unit_states[0], running=False, state="failed") for name in (CHAT, CODE)}
    host = converged_state(before, processes={**converged_state(before).processes, **down})
    assert order(host, after) == ((), (CHAT, CODE))


def test_an_instance_that_keeps_its_cards_is_restarted_and_not_stopped_first() -> None:
    after = target_generation(
        two_instance_rig(sample_instance("chat", context=8192), sample_instance("code", port=8021))
    )
    assert order(converged_state(AIM), after) == ((), (CHAT,))


def test_an_added_instance_leaves_the_others_alone() -> None:
    after = target_generation(
        two_instance_rig(
            sample_instance("chat"), sample_instance("code", port=8021), sample_instance("more", port=8022)
        )
    )
    assert order(converged_state(AIM), after) == ((), ("rigwright-more.service", PORT_3))


def cards_of(name: str, index: int, **changes: Any) -> Generation:
    """A generation of two cards that serves one instance on one of them."""
    return target_generation(
        sample_rig(sample_instance(name, cards=(index,), **changes), cards=(sample_card("8.6"), sample_card("8.6")))
    )


def test_an_unknown_process_is_stopped_before_another_instance_starts() -> None:
    before, after = cards_of("chat", 0), two_instance_rig(sample_instance("chat"), sample_instance("code", port=8021))
    unknown = {
        **converged_state(before).processes,
        CHAT: running_process(before.units[0].unit_state, started_from=NOBODY_KNOWS),
    }
    assert order(converged_state(before, processes=unknown), target_generation(after)) == (
        (CHAT,),
        (CHAT, CODE, PORT_2),
    )


def test_an_unknown_process_is_only_restarted_where_there_is_no_other_instance() -> None:
    alone = cards_of("chat", 0)
    unknown = {
        **converged_state(alone).processes,
        CHAT: running_process(alone.units[0].unit_state, started_from=NOBODY_KNOWS),
    }
    assert order(converged_state(alone, processes=unknown), alone) == ((), (CHAT,))


def test_holdings_of_a_process_follow_from_its_start_and_not_from_its_unit_now() -> None:
    """Its unit was changed on the host since: on the disk it has card 1, in its process card 0."""
    before, after = cards_of("chat", 0), cards_of("chat", 1)
    host = converged_state(
        after,
        2,
        generations=(
            host_generation(1, unit_states=before.unit_states),
            host_generation(2, after.digest, unit_states=after.unit_states),
        ),
    )
    host = replace(host, processes={**host.processes, CHAT: running_process(before.units[0].unit_state)})
    assert host.held_state(CHAT) == before.units[0].unit_state
    both = sample_rig(
        sample_instance("chat", cards=(1,)),
        sample_instance("code", cards=(0,), port=8021),
        cards=(sample_card("8.6"), sample_card("8.6")),
    )
    assert order(host, target_generation(both)) == ((CHAT,), (CHAT, CODE, PORT_2))


def test_the_held_memory_is_given_back_and_not_the_next_ones() -> None:
    before, after = cards_of("chat", 0), cards_of("chat", 1)
    assert way(converged_state(before), after) == Activation((), (CHAT,), (), (before.units[0].unit_state,))


@pytest.mark.parametrize(
    ("manifests", "known"),
    [
        ((), False),
        ((host_generation(1, unit_states=AIM.unit_states),), True),
        ((host_generation(1, unit_states=BEFORE.unit_states), host_generation(2, unit_states=AIM.unit_states)), True),
        ((host_generation(1, unit_states=BEFORE.unit_states),), False),
        # the same text under another unit's name is another process's
        ((host_generation(1, unit_states=(replace(UNIT_STATES[CHAT], unit=CODE),)),), False),
    ],
)
def test_a_process_is_known_by_the_generation_that_it_was_started_from(manifests, known):
    host = converged_state(AIM, generations=manifests)
    assert host.held_state(CHAT) == (UNIT_STATES[CHAT] if known else None)


def test_a_unit_without_a_process_holds_nothing() -> None:
    down = {CHAT: running_process(UNIT_STATES[CHAT], running=False)}
    assert converged_state(AIM, processes=down).held_state(CHAT) is None
    assert converged_state(AIM, processes={}).held_state(CHAT) is None


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (None, False),
        (Activation(), False),
        (Activation((), (), (CHAT,)), True),
        (Activation((), (CODE,), (CHAT,)), False),
        (Activation((FOREIGN,), (), (CHAT,)), False),
        (Activation((), (), (CHAT,), release=("rigwright_listener-8020.socket",)), False),
    ],
)
def test_waiting_is_all_that_is_left(one: Activation | None, expected: bool) -> None:
    assert is_only_loading(one) == expected


def test_a_goal_is_the_newest_unchanged_generation_with_the_content() -> None:
    host = converged_state(
        AIM,
        generations=(
            host_generation(1, AIM.digest),
            host_generation(2),
            host_generation(3, AIM.digest),
            host_generation(4, AIM.digest, found="x"),
        ),
    )
    aim = goal_for(host, AIM)
    assert (aim.number, aim.mark, aim.unit_files) == (3, AIM.mark, AIM.unit_files)
    assert {unit_state.unit for unit_state in aim.unit_states} == {CHAT, CODE, PORT, PORT_2}
    assert SETTLE in aim.unit_files
    assert host.next_number == 5
    assert goal_for(ObservedServing(), AIM).number is None
    assert ObservedServing().next_number == 1


def test_a_generation_that_lies_on_the_host_is_a_goal_as_it_is() -> None:
    one = replace(host_generation(3, unit_states=AIM.unit_states), mark=AIM.mark, unit_files=AIM.unit_files)
    host = converged_state(AIM, 3, generations=(one,))
    assert plan_activation(host, CONFIG, goal_of(one)) is None
    assert plan_activation(replace(host, current=2), CONFIG, goal_of(one)) == SYSTEMD


def test_services_that_an_activation_changes_are_named_by_their_instances() -> None:
    made = Activation(
        stop=(FOREIGN, CHAT),
        restart=(CHAT, CODE, PORT, "rigwright_reserved-1.service", "rigwright_router.service"),
        reload=("rigwright_gateway.service",),
    )
    assert made.service_changes({CHAT: RIGHT[CHAT], CODE: replace(RIGHT[CODE], running=False)}) == {
        "old": "stopped",
        "chat": "restarted",
        "code": "started",
        "router": "started",
        "gateway": "reloaded",
    }
