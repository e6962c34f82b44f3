"""From the serving state of a host to a generation, as far as ports go: ports that are let go of, ports that are held,
and clients that notice."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from rigwright.host.systemd import UnitState
from rigwright.serving.activation import Activation, goal_of, plan_activation
from rigwright.serving.generation import Generation
from rigwright.serving.instance_units import listener_units, port_socket
from rigwright.serving.serving_state import ObservedServing, ObservedUnit
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
from tests.unit.samples import sample_instance
from tests.unit.test_activation import NOBODY_KNOWS, way

(PORT, HOLDER), (PORT_2, HOLDER_2), (PORT_3, HOLDER_3) = (listener_units(port) for port in (8020, 8021, 8022))
AIM = target_generation()
UNIT_STATES = {unit_state.unit: unit_state for unit_state in AIM.unit_states}
RIGHT = {name: running_process(unit_state) for name, unit_state in UNIT_STATES.items()}
SWAPPED = target_generation(two_instance_rig(sample_instance("chat", port=8021), sample_instance("code", port=8020)))
STRAY = UnitState(PORT_3, "0" * 64, 8022, frozenset(), (port_socket(8022),), "rigwright-old.service")
HELD = {port_socket(port).unit: port_socket(port).addresses for port in (8020, 8021, 8022)}
DOWN = ObservedUnit("inactive", "dead", running=False)


def but(*names: str) -> dict[str, frozenset[str]]:
    """Three ports held, but for some."""
    return {name: addresses for name, addresses in HELD.items() if name not in names}


def carrier(one: ObservedUnit, **changes: Any) -> dict[str, Any]:
    """A converged host but for what carries port 8020."""
    return {"processes": {**RIGHT, PORT: one}, **changes}


def stray(one: ObservedUnit) -> dict[str, Any]:
    """A converged host that holds a port more."""
    return {
        "processes": {**RIGHT, PORT_3: one},
        "sockets": HELD,
        "generations": (
            host_generation(1, AIM.digest, unit_states=AIM.unit_states),
            host_generation(2, unit_states=(STRAY,)),
        ),
    }


STATES: dict[str, tuple[dict[str, Any], Activation | None]] = {
    "a service that carries to another instance": (
        carrier(running_process(SWAPPED.listeners[1].unit_state)),
        Activation((), (PORT,)),
    ),
    "a service that nobody knows": (
        carrier(running_process(UNIT_STATES[PORT], started_from=NOBODY_KNOWS)),
        Activation((), (PORT,)),
    ),
    "a service that is down": (carrier(DOWN), Activation((), (PORT,))),
    "a service that has failed": (carrier(replace(DOWN, state="failed", sub="failed")), Activation((), (PORT,))),
    "a service that starts": (
        carrier(running_process(UNIT_STATES[PORT], state="activating", sub="start-post")),
        Activation((), (), (PORT,)),
    ),
    # it has the socket still, and no new one can be made while it has
    "a socket that does not listen": (
        {"sockets": but(HOLDER, HOLDER_3)},
        Activation((), (PORT,), (), (UNIT_STATES[PORT],), listen=(HOLDER,)),
    ),
    "a socket that does not listen, and whose service is down": (
        carrier(DOWN, sockets=but(HOLDER, HOLDER_3)),
        Activation((), (PORT,), listen=(HOLDER,)),
    ),
    "a port that nobody is to hold": (
        stray(running_process(STRAY)),
        Activation((PORT_3,), (), (), (STRAY,), (HOLDER_3,)),
    ),
    "a port that nobody is to hold, and that nobody carries": (stray(DOWN), Activation(release=(HOLDER_3,))),
    "what carries a port that nobody holds": (
        {**stray(running_process(STRAY)), "sockets": but(HOLDER_3)},
        Activation((PORT_3,), (), (), (STRAY,)),
    ),
}


@pytest.mark.parametrize("state", STATES)
def test_the_way_from_a_state_to_the_generation(state: str) -> None:
    changes, expected = STATES[state]
    assert way(converged_state(AIM, **changes), AIM) == expected


def test_instances_that_swap_their_ports_go_on_and_only_what_carries_them_starts_again() -> None:
    assert way(converged_state(AIM), SWAPPED) == Activation((), (PORT_2, PORT))


def test_an_instance_that_moves_lets_go_of_its_port_and_is_not_started_again() -> None:
    after = target_generation(two_instance_rig(sample_instance("chat", port=8022), sample_instance("code", port=8020)))
    assert way(converged_state(AIM), after) == Activation(
        (PORT_2,), (PORT_3, PORT), (), (UNIT_STATES[PORT_2],), (HOLDER_2,), (HOLDER_3,)
    )


def test_without_an_instance_no_port_is_held() -> None:
    done = way(converged_state(AIM), target_generation(two_instance_rig(sample_instance("chat"))))
    assert done == Activation((CODE, PORT_2), (), (), (UNIT_STATES[CODE], UNIT_STATES[PORT_2]), (HOLDER_2,))


PROCESSES = [
    ObservedUnit(state, sub, restarts, running, started_from)
    for (state, sub, running), restarts, started_from in product(
        [
            ("active", "running", True),
            ("activating", "start-post", True),
            ("activating", "auto-restart", False),
            ("deactivating", "stop-sigterm", True),
            ("failed", "failed", False),
            ("inactive", "dead", False),
        ],
        [0, 3],
        [UNIT_STATES[PORT].started_from, SWAPPED.listeners[1].unit_state.started_from, NOBODY_KNOWS, ""],
    )
]


@pytest.mark.parametrize("aim", [AIM, SWAPPED], ids=["as it is", "swapped"])
@pytest.mark.parametrize("engine", [CHAT, CODE])
def test_the_service_of_a_held_port_is_never_stopped(aim: Generation, engine: str) -> None:
    """A client that connects in the meantime would have it started again, and it must not be waited for."""
    for one, other in product(PROCESSES, [RIGHT[engine], DOWN, replace(RIGHT[engine], started_from=NOBODY_KNOWS)]):
        found = converged_state(AIM, processes={**RIGHT, PORT: one, engine: other})
        done = way(found, aim) or Activation()
        assert not {PORT, PORT_2} & {*done.stop, *done.stopped_units}, (one, other)
        assert (done.release, done.listen) == ((), ())


TCP = (UnitState(CHAT, "1" * 64, 8020, frozenset()), UnitState(CODE, "2" * 64, 8021, frozenset()))
"""Of before ports had units: engines listen themselves."""


def on_tcp(**changes: Any) -> ObservedServing:
    host = ObservedServing(
        generations=(host_generation(1, unit_states=TCP),),
        current=1,
        enabled=True,
        links={name: f"{CONFIG}/current/units/{name}" for name in (CHAT, CODE)},
        processes={unit_state.unit: running_process(unit_state) for unit_state in TCP},
    )
    return replace(host, **changes)


def test_an_engine_that_listens_itself_is_gone_before_its_port_is_held() -> None:
    started = (CHAT, CODE, PORT, PORT_2)
    assert way(on_tcp(), AIM) == Activation((CHAT, CODE), started, (), TCP, (), (HOLDER, HOLDER_2))
    # so is one with unknown holdings
    unknown = {unit_state.unit: running_process(unit_state, started_from=NOBODY_KNOWS) for unit_state in TCP}
    found = way(on_tcp(processes=unknown), AIM)
    assert found
    assert (found.stop, found.stopped_units) == ((CHAT, CODE), (CHAT, CODE))
    # and one that does not run holds nothing
    down = dict.fromkeys((CHAT, CODE), DOWN)
    assert way(on_tcp(processes=down), AIM) == Activation((), started, listen=(HOLDER, HOLDER_2))


def test_an_engine_with_an_unneeded_port_is_only_started_again() -> None:
    after = target_generation(two_instance_rig(sample_instance("chat", port=8030), sample_instance("code", port=8031)))
    found = way(on_tcp(), after)
    assert found
    assert (found.stop, found.free) == ((), TCP)


def test_on_the_way_back_ports_are_let_go_of_before_engines_listen_themselves() -> None:
    before = host_generation(1, unit_states=TCP)
    host = converged_state(AIM, 2, generations=(before, host_generation(2, AIM.digest, unit_states=AIM.unit_states)))
    free = tuple(UNIT_STATES[name] for name in (PORT, PORT_2, CHAT, CODE))
    expected = Activation((PORT, PORT_2), (CHAT, CODE), (), free, (HOLDER, HOLDER_2))
    assert plan_activation(host, CONFIG, goal_of(before)) == expected
