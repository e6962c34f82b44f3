"""Conditions of a measurement: temperatures of cards, and the start of an engine."""

from typing import Any

import pytest

from bench import speed_protocol
from bench.speed_protocol import InvalidConditions
from roles.root_shell import RootCommandResult


def answers(monkeypatch: pytest.MonkeyPatch, **said: RootCommandResult) -> None:
    def run(_: object, script: str) -> RootCommandResult:
        return next(answer for word, answer in said.items() if word.replace("_", "-") in script)

    monkeypatch.setattr(speed_protocol.root_shell, "run_command", run)


def test_temperatures_are_of_the_cards_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    out = b"00000000:01:00.0, 61\n00000000:02:00.0, [N/A]\n00000000:03:00.0, 70\n"
    answers(monkeypatch, nvidia_smi=RootCommandResult(0, out, b""))
    box: Any = type("Box", (), {"target": None})
    assert speed_protocol.read_temperatures(box, ["0000:03:00.0", "0000:02:00.0", "0000:09:00.0"]) == (
        70.0,
        None,
        None,
    )
    assert speed_protocol.read_temperatures(box, []) == ()
    answers(monkeypatch, nvidia_smi=RootCommandResult(9, b"", b"boom"))
    assert speed_protocol.read_temperatures(box, ["0000:03:00.0"]) == (None,)


@pytest.mark.parametrize(
    ("out", "words"),
    [
        (b"0123456789abcdef0123456789abcdef\nbeef\n", ""),
        (b"\nbeef\n", "does not run"),
        (b"0123456789abcdef0123456789abcdef\n", "does not run"),
        (b"0123456789abcdef0123456789abcdef\ndead\n", "was not started from what the inventory declares"),
        (b"x; rm\nbeef\n", "does not run"),
    ],
)
def test_a_start_is_distinguished_from_others_where_it_is_of_what_is_declared(monkeypatch, out, words):
    answers(monkeypatch, systemctl=RootCommandResult(0, out, b""))
    box: Any = type("Box", (), {"target": None})
    if words:
        with pytest.raises(InvalidConditions, match=words):
            speed_protocol._start_identity(box, "rigwright-chat.service", "beef")
    else:
        assert len(speed_protocol._start_identity(box, "rigwright-chat.service", "beef")) == 12
