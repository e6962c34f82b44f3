"""Looking at hosts: what they say becomes values, and what they say instead becomes one line."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from checks.looking import Box, each
from cli.state import _plain
from cli.status import _word
from rigwright.host import deploy_lock
from rigwright.host.deploy_lock import Holder
from rigwright.render import render
from rigwright.serving import use
from rigwright.serving.use import Use
from roles import root
from tests.unit.samples import rig
from tests.unit.scripts import stand_in
from tests.unit.states import process, wanted
from tests.unit.telling import telling
from tests.unit.test_served import OUTPUT


def box(monkeypatch: pytest.MonkeyPatch, lines: list[str], complaint: str = "") -> Box:
    """A box whose host answers every command with these lines."""
    answer = root.Answer(0, "\n".join(lines).encode(), complaint.encode())
    monkeypatch.setattr(root, "run", lambda *_: answer)
    return Box("box", rig(), SimpleNamespace(data={}))


def test_a_host_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    assert box(monkeypatch, OUTPUT).served().current == 10


@pytest.mark.parametrize("look", ["facts", "stored", "holder", "use"])
@pytest.mark.parametrize(
    ("complaint", "end"),
    [
        ("sudo: a password is required\n", "; it said: sudo: a password is required"),
        ("\x1b[2J", "[2J"),
        ("", "reported nothing"),
    ],
    ids=["refused", "steering", "nothing"],
)
def test_a_host_that_answers_something_else_is_named_with_its_words(
    monkeypatch: pytest.MonkeyPatch, look: str, complaint: str, end: str
) -> None:
    made = box(monkeypatch, [], complaint)
    with pytest.raises(click.ClickException) as caught:
        getattr(made, look)()
    assert caught.value.message.startswith("box: ")
    assert caught.value.message.endswith(end)
    assert "\x1b" not in caught.value.message


def test_a_connection_that_is_gone_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> root.Answer:
        raise root.Gone("Socket is closed")

    made = box(monkeypatch, [])
    monkeypatch.setattr(root, "run", gone)
    with pytest.raises(click.ClickException, match="box: the connection was lost: Socket is closed"):
        made.facts()


def test_hosts_are_told_in_their_order() -> None:
    found = [Box(name, rig(), None) for name in "abc"]
    assert each(found, lambda one: one.name) == ["a", "b", "c"]


BLOCKS = """\
Id=rigwright-a.service
ActiveEnterTimestamp=Sun 2026-11-01 12:00:00 UTC
ActiveEnterTimestampMonotonic=14500000
InactiveExitTimestampMonotonic=12000000
MemoryCurrent=5

Id=rigwright-b.service
ActiveEnterTimestamp=
ActiveEnterTimestampMonotonic=0
InactiveExitTimestampMonotonic=13000000
MemoryCurrent=[not set]
"""


@pytest.mark.parametrize(
    ("blocks", "found"),
    [
        (
            BLOCKS,
            {
                "rigwright-a.service": Use("Sun 2026-11-01 12:00:00 UTC", 5, 2.5),
                "rigwright-b.service": Use("", None),
            },
        ),
        ("", {}),
        ("MemoryCurrent=5\n", {}),
    ],
)
def test_what_units_use_is_read_by_unit(tmp_path: Path, blocks: str, found: dict[str, Use]) -> None:
    (tmp_path / "blocks").write_text(blocks)
    stand_in(tmp_path / "bin", "systemctl", f"cat {tmp_path}/blocks")
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    command = ["sh", "-c", render("look/use.sh.j2")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert use.parse(done.stdout.splitlines()) == found


def test_who_is_at_work_is_said_when_somebody_is(tmp_path: Path) -> None:
    script = render("deploy_lock/holder.sh.j2", deploy_lock=str(tmp_path / "lease"))

    def look() -> Holder | None:
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
        return deploy_lock.parse(done.stdout.splitlines())

    assert look() is None
    path = tmp_path / "lease"
    path.write_text('{"who": "ops@desk", "pid": 7, "since": "noon", "doing": "deploy of \\\\new"}\n')
    assert look() is None
    with path.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert look() == Holder("ops@desk", "7", "noon", "deploy of \\new")
        path.write_text("somebody's\n")
        assert look() == Holder()


def test_a_state_is_said_in_systemds_words() -> None:
    (unit, _) = wanted().units
    assert _word(None) == "not there"
    assert _word(process(unit.unit_state)) == "active"
    assert _word(process(unit.unit_state, state="activating", sub="start-post")) == "activating (start-post)"


@pytest.mark.parametrize(("line", "text"), [("a\tb", "a\tb"), ("\x1b[31mred\x07", "[31mred"), ("é\r", "é")])
def test_a_line_of_a_log_writes_nowhere_else(line: str, text: str) -> None:
    assert _plain(line) == text


def test_looks_that_are_taken_ahead_are_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[str] = []

    def run(_: object, command: str, stdin: str = "", *__: float) -> root.Answer:
        commands.append(command)
        if not stdin:
            return root.Answer(0, "\n".join(OUTPUT).encode(), b"")
        told = telling(("answer", "0", "\n".join(OUTPUT)), ("answer", "2", "\n".join(telling())))
        return root.Answer(0, "\n".join(told).encode(), b"")

    made = box(monkeypatch, OUTPUT)
    monkeypatch.setattr(root, "run", run)
    ahead = made.ahead("served", "facts", "use")
    assert (ahead.served().current, ahead.use(), len(commands)) == (10, {}, 1)
    # what has failed there is asked alone, and says why
    with pytest.raises(click.ClickException, match=r"box: .*which was not asked for"):
        ahead.facts()
    assert len(commands) == 2


def test_a_host_that_answers_nothing_to_many_looks_is_asked_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    assert box(monkeypatch, OUTPUT).ahead("served", "use").served().current == 10
