"""The ledger under random events, with kills at each step: rules that always hold."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from roles.residency.host.state import ASLEEP, LEAVING, InstanceSpec
from tests.unit.simulated_box import CARD, GIB, SimulatedBox, box

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
