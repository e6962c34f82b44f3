"""Looking at hosts: what they say becomes values, and what they say instead becomes one line."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import click
import pytest

from checks.looking import Box, each
from cli.state import _holder, _plain, _use, _word
from tests.unit.samples import rig
from tests.unit.states import process, wanted
from tests.unit.test_served import OUTPUT


def box(lines: list[str], sudo: bool = False) -> tuple[Box, list[str]]:
    """A box whose host answers every command with these lines, and the commands it was given."""
    given: list[str] = []
    channel = SimpleNamespace(
        set_combine_stderr=lambda both: None,
        exec_command=given.append,
        makefile=lambda mode: iter(f"{line}\n".encode() for line in lines),
    )
    transport = SimpleNamespace(open_session=lambda: channel)
    client = SimpleNamespace(get_transport=lambda: transport)
    target = SimpleNamespace(data={"_sudo": sudo}, connector=SimpleNamespace(client=client))
    return Box("box", rig(), target), given


@pytest.mark.parametrize("sudo", [False, True])
def test_a_host_is_looked_at_as_root(sudo: bool) -> None:
    made, given = box(OUTPUT, sudo)
    assert made.served().current == 10
    assert given[0].startswith("sudo -n sh -c " if sudo else "sh -c ")


@pytest.mark.parametrize("look", ["served", "facts"])
@pytest.mark.parametrize(
    ("lines", "end"),
    [(["sudo: a password is required"], "; the host said last: sudo: a password is required"), ([], "")],
    ids=["refused", "nothing"],
)
def test_a_host_that_answers_something_else_is_named_with_its_words(look: str, lines: list[str], end: str) -> None:
    made, _ = box(lines)
    with pytest.raises(click.ClickException) as caught:
        getattr(made, look)()
    assert caught.value.message.startswith(("box: the ", "box: what the host told "))
    assert caught.value.message.endswith(end)


def test_hosts_are_told_in_their_order() -> None:
    found = [box([name])[0] for name in "abc"]
    assert each(found, lambda one: next(one.lines(""))) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("lines", "units"),
    [
        ([], {}),
        (["Id=a", "MemoryCurrent=5", "", "Id=b", "X=y=z"], {"a": "5", "b": None}),
        (["MemoryCurrent=5"], {}),
        (["noise", "Id=a", "MemoryCurrent=[not set]"], {"a": "[not set]"}),
    ],
)
def test_what_units_use_is_read_by_unit(lines: list[str], units: dict[str, Any]) -> None:
    assert {name: values.get("MemoryCurrent") for name, values in _use(lines).items()} == units


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (['{"who": "ops@desk", "since": "noon", "doing": "deploy"}'], "ops@desk since noon: deploy"),
        ([], ""),
        (["{"], ""),
        (["[]"], ""),
        (['{"who": "ops@desk"}'], ""),
    ],
)
def test_who_is_at_work_is_said_when_somebody_is(lines: list[str], text: str) -> None:
    assert _holder(lines) == text


def test_a_state_is_said_in_systemds_words() -> None:
    (unit, _) = wanted().units
    assert _word(None) == "not there"
    assert _word(process(unit.slot)) == "active"
    assert _word(process(unit.slot, state="activating", sub="start-post")) == "activating (start-post)"


@pytest.mark.parametrize(("line", "text"), [("a\tb", "a\tb"), ("\x1b[31mred\x07", "[31mred"), ("é\r", "é")])
def test_a_line_of_a_log_writes_nowhere_else(line: str, text: str) -> None:
    assert _plain(line) == text
