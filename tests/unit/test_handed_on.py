"""What one operation on generations has seen, the next one believes: once, for a moment, and of its own host only."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rigwright.serving.live import Served
from roles.operations import generations


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    world = SimpleNamespace(name="box", now=100.0, looks=0)

    def look(rig: object) -> Served:
        world.looks += 1
        return Served(current=world.looks)

    monkeypatch.setattr(generations, "host", world)
    monkeypatch.setattr(generations, "look", look)
    monkeypatch.setattr(generations, "_seen", {})
    monkeypatch.setattr(generations.time, "monotonic", lambda: world.now)
    return world


def seen() -> int | None:
    return generations._left(None).current  # type: ignore[arg-type]


def test_what_was_just_seen_is_believed_once(world: SimpleNamespace) -> None:
    generations._leave(Served(current=7))
    assert [seen(), seen()] == [7, 1]


def test_what_was_seen_long_ago_is_looked_at_again(world: SimpleNamespace) -> None:
    generations._leave(Served(current=7))
    world.now += generations.FRESH + 0.1
    assert seen() == 1


def test_another_host_is_looked_at(world: SimpleNamespace) -> None:
    generations._leave(Served(current=7))
    world.name = "other"
    assert seen() == 1
