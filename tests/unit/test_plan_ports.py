"""The plan of a deploy, as far as ports and users go: its texts, and the clients that notice."""

from typing import Any

import pytest

from rigwright.model.fact_types import HostAccount
from rigwright.model.rig import account_names
from rigwright.serving.instance_units import listener_units
from tests.unit.host_states import CHAT, CODE, converged_state, two_instance_rig
from tests.unit.samples import sample_instance
from tests.unit.test_plan import AIM, RIG, plan_for, ready

HOLDER = listener_units(8020)[1]
HELD = converged_state(AIM).sockets


@pytest.mark.parametrize(
    ("changes", "rows", "interrupted"),
    [
        # its service has it to itself until then
        (
            {"sockets": {name: at for name, at in HELD.items() if name != HOLDER}},
            [("activate generation 1", "listen on port 8020; start port 8020")],
            (CHAT,),
        ),
        (
            {"sockets": HELD | {listener_units(9000)[1]: frozenset({"127.0.0.1:9000"})}},
            [("end port 9000", "no longer declared"), ("activate generation 1", "without port 9000")],
            (),
        ),
    ],
)
def test_steps_for_ports_are_reported(
    changes: dict[str, Any], rows: list[tuple[str, str]], interrupted: tuple[str, ...]
) -> None:
    done = plan_for(converged_state(AIM, **changes))
    assert [(step.what, step.why) for step in done.steps] == rows
    assert done.interrupted == interrupted


def test_ports_that_are_swapped_interrupt_both_and_stop_neither() -> None:
    after = two_instance_rig(sample_instance("chat", port=8021), sample_instance("code", port=8020))
    done = plan_for(one=after)
    assert [step.what for step in done.steps] == ["write generation 2", "activate generation 2"]
    assert done.steps[1].why == "start port 8021, port 8020"
    assert done.interrupted == (CHAT, CODE)


def test_a_port_that_moves_interrupts_its_instance_alone() -> None:
    done = plan_for(one=two_instance_rig(sample_instance("chat", port=8022), sample_instance("code", port=8021)))
    assert [(step.what, step.why) for step in done.steps[1:]] == [
        ("end port 8020", "no longer declared"),
        ("activate generation 2", "listen on port 8022; start port 8022"),
    ]
    assert done.interrupted == (CHAT,)


def test_users_that_no_generation_runs_as_are_removed_and_named() -> None:
    there = [
        HostAccount(f"{name}:x:999:999::/nonexistent:/usr/sbin/nologin", True)
        for name in ("rigwright-x", *account_names(RIG))
    ]
    theirs = HostAccount("rigwright-y:x:1000:1000::/home/y:/bin/sh", False)
    (step,) = plan_for(host=ready(users=(*there, theirs))).steps
    assert (step.what, step.why) == ("remove user rigwright-x", "5 generations are kept")
