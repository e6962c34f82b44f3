"""Rollback: which generation is the one before, and why a host cannot go back to one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rigwright.host.unit_states import UnitState
from rigwright.serving.live import Kept, Served
from roles.rollback import earlier, refusal
from tests.unit.states import kept

THREE = (kept(1), kept(2), kept(10))
CHAT = "rigwright-chat.service"
UNKNOWN = (kept(1), replace(kept(2), unit_files=(CHAT, "rigwright.target")), kept(10))
KNOWN = (replace(UNKNOWN[1], unit_states=(UnitState(CHAT, "0" * 64, 8020, frozenset()),)),)
DAMAGED = (kept(1), kept(2, found="other"), kept(10))


@pytest.mark.parametrize(
    ("generations", "current", "number"),
    [
        (THREE, 10, 2),
        (THREE, 2, 1),
        (THREE, 1, None),
        (THREE, None, None),
        (THREE, 11, 10),
        (DAMAGED, 10, 1),
        ((kept(2, found="other"), kept(10)), 10, None),
        ((), None, None),
        ((kept(3),), 3, None),
    ],
)
def test_the_one_before_is_the_newest_unchanged_one_below_the_current(
    generations: tuple[Kept, ...], current: int | None, number: int | None
) -> None:
    assert earlier(Served(generations=generations, current=current)) == number


@pytest.mark.parametrize(
    ("generations", "number", "text"),
    [
        (THREE, 1, ""),
        (THREE, 10, ""),
        (THREE, 3, "there is no generation 3; available: 1, 2, 10"),
        ((), 3, "there is no generation 3; available: none"),
        (DAMAGED, 2, "the files of generation 2 were changed since they were written"),
        (UNKNOWN, 2, "the manifest of generation 2 does not describe rigwright-chat.service"),
        (KNOWN, 2, ""),
        (THREE, None, "there is no generation before the current one (available: 1, 2, 10)"),
        ((), None, "there is no generation before the current one (available: none)"),
    ],
)
def test_a_host_goes_back_only_to_an_unchanged_generation_that_is_there(
    generations: tuple[Kept, ...], number: int | None, text: str
) -> None:
    assert refusal(Served(generations=generations, current=10), number, ()) == text
