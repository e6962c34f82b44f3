"""Rollback: which generation is the one before, and why a host cannot go back to one."""

from dataclasses import replace

import pytest

from rigwright.host.systemd import UnitState
from rigwright.serving.serving_state import ObservedGeneration, ObservedServing
from roles.rollback import describe_rollback_refusal, find_rollback_target
from tests.unit.host_states import host_generation

THREE = (host_generation(1), host_generation(2), host_generation(10))
CHAT = "rigwright-chat.service"
UNKNOWN = (host_generation(1), replace(host_generation(2), unit_files=(CHAT, "rigwright.target")), host_generation(10))
KNOWN = (replace(UNKNOWN[1], unit_states=(UnitState(CHAT, "0" * 64, 8020, frozenset()),)),)
DAMAGED = (host_generation(1), host_generation(2, found="other"), host_generation(10))


@pytest.mark.parametrize(
    ("generations", "current", "number"),
    [
        (THREE, 10, 2),
        (THREE, 2, 1),
        (THREE, 1, None),
        (THREE, None, None),
        (THREE, 11, 10),
        (DAMAGED, 10, 1),
        ((host_generation(2, found="other"), host_generation(10)), 10, None),
        ((), None, None),
        ((host_generation(3),), 3, None),
    ],
)
def test_the_one_before_is_the_newest_unchanged_one_below_the_current(
    generations: tuple[ObservedGeneration, ...], current: int | None, number: int | None
) -> None:
    assert find_rollback_target(ObservedServing(generations=generations, current=current)) == number


@pytest.mark.parametrize(
    ("generations", "number", "text"),
    [
        (THREE, 1, ""),
        (THREE, 10, ""),
        (THREE, 3, "generation 3 does not exist; available: 1, 2, 10"),
        ((), 3, "generation 3 does not exist; available: none"),
        (DAMAGED, 2, "the files of generation 2 were changed since they were written"),
        (UNKNOWN, 2, "the manifest of generation 2 does not describe rigwright-chat.service"),
        (KNOWN, 2, ""),
        (THREE, None, "the current generation has no predecessor (available: 1, 2, 10)"),
        ((), None, "the current generation has no predecessor (available: none)"),
    ],
)
def test_a_host_goes_back_only_to_an_unchanged_generation_that_is_there(
    generations: tuple[ObservedGeneration, ...], number: int | None, text: str
) -> None:
    assert describe_rollback_refusal(ObservedServing(generations=generations, current=10), number, ()) == text
