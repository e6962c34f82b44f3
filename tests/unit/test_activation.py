"""From what a host serves to a generation: what is stopped, started and waited for, state by state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rigwright.serving.activation import Activation, activation, goal, only_loading
from rigwright.serving.generation import SETTLE, Generation
from rigwright.serving.live import Served
from tests.unit.samples import card, instance, rig
from tests.unit.states import CHAT, CODE, CONFIG, converged, kept, process, two, wanted

AIM = wanted()
SLOTS = {unit.name: unit.slot for unit in AIM.units}
FOREIGN = "rigwright-old.service"
SYSTEMD = Activation()
"""Nothing is stopped or started: systemd has to read what is there."""


def way(found: Served, aim: Generation = AIM) -> Activation | None:
    return activation(found, CONFIG, goal(found, aim))


def chat(**changes: Any) -> dict[str, Any]:
    """A converged host but for the process of chat."""
    return {"processes": {CHAT: process(SLOTS[CHAT], **changes), CODE: process(SLOTS[CODE])}}


def stray(**changes: Any) -> dict[str, Any]:
    """A converged host with one process more."""
    one = replace(process(SLOTS[CHAT]), port=9000, **changes)
    return {"processes": {FOREIGN: one, **{name: process(slot) for name, slot in SLOTS.items()}}}


LINKS = converged(AIM).links
STATES: dict[str, tuple[dict[str, Any], Activation | None]] = {
    "converged": ({}, None),
    "changed unit": (chat(digest="other"), Activation((), (CHAT,))),
    "edited unit": (chat(started_from="other"), Activation((), (CHAT,))),
    "started before systemd read its unit": (chat(started_from=""), Activation((), (CHAT,))),
    "stale key": (chat(key_current=False), Activation((), (CHAT,))),
    "failed": (chat(state="failed", sub="failed", pid=0), Activation((), (CHAT,))),
    "stopped by hand": (chat(state="inactive", sub="dead", pid=0), Activation((), (CHAT,))),
    "stopping": (chat(state="deactivating", sub="stop-sigterm"), Activation((), (CHAT,))),
    "gone": ({"processes": {CODE: process(SLOTS[CODE])}}, Activation((), (CHAT,))),
    "loading": (chat(state="activating", sub="start-post"), Activation((), (), (CHAT,))),
    "loading another unit": (chat(state="activating", sub="start-post", digest="other"), Activation((), (CHAT,))),
    "loading again after a failure": (chat(state="activating", sub="start-post", restarts=1), Activation((), (CHAT,))),
    "between two starts": (chat(state="activating", sub="auto-restart", pid=0), Activation((), (CHAT,))),
    "restarted by systemd and serving": (chat(restarts=3), None),
    "stray instance": (stray(), Activation((FOREIGN,))),
    "stray instance that is starting": (stray(state="activating", sub="start-post"), Activation((FOREIGN,))),
    "stray instance that is down": (stray(state="inactive", sub="dead", pid=0), None),
    "stray instance that has failed": (stray(state="failed", sub="failed", pid=0), None),
    "loaded description stale": ({"loaded": "All instances of this rig, generation 0"}, SYSTEMD),
    "never loaded": ({"loaded": "rigwright.target"}, SYSTEMD),
    "reload needed": ({"reload_needed": True}, SYSTEMD),
    "not enabled": ({"enabled": False}, SYSTEMD),
    "link missing": ({"links": {name: to for name, to in LINKS.items() if name != CHAT}}, SYSTEMD),
    "link to elsewhere": ({"links": {**LINKS, CHAT: f"{CONFIG}/current/units/{CODE}"}}, SYSTEMD),
    "an ordinary file of ours": ({"links": {**LINKS, CHAT: ""}}, SYSTEMD),
    "a file of ours too many": ({"links": {**LINKS, FOREIGN: ""}}, SYSTEMD),
    "journal left": ({"activating": True}, SYSTEMD),
    "no current link": ({"current": None}, SYSTEMD),
    "another generation is current": ({"current": 7}, SYSTEMD),
    "damaged current generation": ({"generations": (kept(1, AIM.digest, found="other"),)}, SYSTEMD),
    "damaged, and no current link": (
        {"generations": (kept(1, AIM.digest, found="other"),), "current": None},
        SYSTEMD,
    ),
    "a newer generation with this content": ({"generations": (kept(1, AIM.digest), kept(2, AIM.digest))}, SYSTEMD),
}


@pytest.mark.parametrize("state", STATES)
def test_the_way_from_a_state_to_the_generation(state: str) -> None:
    changes, expected = STATES[state]
    assert way(converged(AIM, **changes)) == expected


def test_on_a_blank_host_everything_is_started() -> None:
    assert way(Served()) == Activation((), (CHAT, CODE))


def test_on_a_blank_host_a_rig_without_instances_is_activated_too() -> None:
    empty = wanted(rig())
    assert way(Served(), empty) == SYSTEMD
    assert way(converged(empty), empty) is None


def test_instances_that_swap_their_ports_are_stopped_before_one_of_them_starts() -> None:
    after = wanted(two(instance("chat", port=8021), instance("code", port=8020)))
    assert way(converged(AIM), after) == Activation((CHAT, CODE), (CHAT, CODE))


def test_an_instance_that_takes_the_port_of_another_waits_for_it_to_move() -> None:
    after = wanted(two(instance("chat", port=8022), instance("code", port=8020)))
    assert way(converged(AIM), after) == Activation((CHAT,), (CHAT, CODE))


def test_an_instance_that_takes_the_card_of_another_waits_for_it_to_move() -> None:
    cards = (card("8.6"), card("8.6"))
    before = wanted(rig(instance("chat", cards=(0,)), cards=cards))
    after = wanted(rig(instance("chat", cards=(1,)), instance("code", cards=(0,), port=8021), cards=cards))
    assert way(converged(before), after) == Activation((CHAT,), (CHAT, CODE))


def test_an_instance_that_goes_is_stopped_before_the_one_that_gets_its_card_starts() -> None:
    cards = (card("8.6"),)
    before = wanted(rig(instance("chat", cards=(0,)), cards=cards))
    after = wanted(rig(instance("code", cards=(0,)), cards=cards))
    assert way(converged(before), after) == Activation((CHAT,), (CODE,))


def test_what_does_not_run_is_in_nobodys_way() -> None:
    after = wanted(two(instance("chat", port=8021), instance("code", port=8020)))
    down = {name: replace(one, pid=0, state="failed") for name, one in converged(AIM).processes.items()}
    assert way(converged(AIM, processes=down), after) == Activation((), (CHAT, CODE))


def test_an_instance_that_keeps_its_port_and_cards_is_restarted_and_not_stopped_first() -> None:
    after = wanted(two(instance("chat", context=8192), instance("code", port=8021)))
    assert way(converged(AIM), after) == Activation((), (CHAT,))


def test_an_added_instance_leaves_the_others_alone() -> None:
    after = wanted(two(instance("chat"), instance("code", port=8021), instance("more", port=8022)))
    assert way(converged(AIM), after) == Activation((), ("rigwright-more.service",))


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (None, False),
        (Activation(), False),
        (Activation((), (), (CHAT,)), True),
        (Activation((), (CODE,), (CHAT,)), False),
        (Activation((FOREIGN,), (), (CHAT,)), False),
    ],
)
def test_waiting_is_all_that_is_left(one: Activation | None, expected: bool) -> None:
    assert only_loading(one) == expected


def test_a_goal_is_the_newest_unchanged_generation_with_the_content() -> None:
    host = converged(
        AIM, generations=(kept(1, AIM.digest), kept(2), kept(3, AIM.digest), kept(4, AIM.digest, found="x"))
    )
    aim = goal(host, AIM)
    assert (aim.number, aim.mark, aim.unit_files) == (3, AIM.mark, AIM.unit_files)
    assert {slot.unit for slot in aim.slots} == {CHAT, CODE}
    assert SETTLE in aim.unit_files
    assert host.next_number == 5
    assert goal(Served(), AIM).number is None
    assert Served().next_number == 1
