"""Looking at hosts: their output becomes values, and other output becomes one line."""

import fcntl
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from checks.connections import ConnectedHost, map_hosts
from cli.logs import _strip_controls
from cli.status import _process_state
from rigwright.host import deploy_lock_state
from rigwright.host.deploy_lock_state import LockHolder
from rigwright.render import render
from rigwright.serving import serving_state
from rigwright.serving.serving_state import UnitUsage
from roles import root_shell
from tests.unit.channel_records import channel_lines
from tests.unit.host_states import running_process, target_generation
from tests.unit.rendered_scripts import write_stand_in
from tests.unit.samples import sample_rig
from tests.unit.test_serving_state import OUTPUT


def box(monkeypatch: pytest.MonkeyPatch, lines: list[str], complaint: str = "") -> ConnectedHost:
    """A box whose host answers every command with these lines."""
    answer = root_shell.RootCommandResult(0, "\n".join(lines).encode(), complaint.encode())
    monkeypatch.setattr(root_shell, "run_command", lambda *_: answer)
    return ConnectedHost("box", sample_rig(), SimpleNamespace(data={}))


def test_a_host_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    assert box(monkeypatch, OUTPUT).read_serving_state().current == 10


@pytest.mark.parametrize("look", ["read_facts", "read_weight_inventory", "read_lock_holder", "read_resource_usage"])
@pytest.mark.parametrize(
    ("complaint", "end"),
    [
        ("sudo: a password is required\n", "; it said: sudo: a password is required"),
        ("\x1b[2J", "[2J"),
        ("", "reported nothing"),
    ],
    ids=["refused", "steering", "nothing"],
)
def test_a_host_that_answers_something_else_is_named_with_its_words(monkeypatch, look, complaint, end):
    made = box(monkeypatch, [], complaint)
    with pytest.raises(click.ClickException) as caught:
        getattr(made, look)()
    assert caught.value.message.startswith("box: ")
    assert caught.value.message.endswith(end)
    assert "\x1b" not in caught.value.message


def test_a_connection_that_is_gone_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> root_shell.RootCommandResult:
        raise root_shell.ConnectionGone("Socket is closed")

    made = box(monkeypatch, [])
    monkeypatch.setattr(root_shell, "run_command", gone)
    with pytest.raises(click.ClickException, match="box: the connection was lost: Socket is closed"):
        made.read_facts()


def test_hosts_are_reported_in_their_order() -> None:
    found = [ConnectedHost(name, sample_rig(), None) for name in "abc"]
    assert map_hosts(found, lambda one: one.name) == ["a", "b", "c"]


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
                "rigwright-a.service": UnitUsage("Sun 2026-11-01 12:00:00 UTC", 5, 2.5),
                "rigwright-b.service": UnitUsage("", None),
            },
        ),
        ("", {}),
        ("MemoryCurrent=5\n", {}),
    ],
)
def test_usage_is_read_by_unit(tmp_path: Path, blocks: str, found: dict[str, UnitUsage]) -> None:
    (tmp_path / "blocks").write_text(blocks)
    write_stand_in(tmp_path / "bin", "systemctl", f"cat {tmp_path}/blocks")
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    command = ["sh", "-c", render("look/use.sh.j2")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert serving_state.parse_unit_usage(done.stdout.splitlines()) == found


def test_the_holder_of_the_deploy_lock_is_named(tmp_path: Path) -> None:
    script = render("deploy_lock/holder.sh.j2", deploy_lock=str(tmp_path / "lease"))

    def look() -> LockHolder | None:
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
        return deploy_lock_state.parse_lock_holder(done.stdout.splitlines())

    assert look() is None
    path = tmp_path / "lease"
    path.write_text('{"who": "ops@desk", "pid": 7, "since": "noon", "doing": "deploy of \\\\new"}\n')
    assert look() is None
    with path.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert look() == LockHolder("ops@desk", "7", "noon", "deploy of \\new")
        path.write_text("somebody's\n")
        assert look() == LockHolder()


def test_a_state_is_reported_in_systemds_words() -> None:
    (unit, _) = target_generation().units
    assert _process_state(None) == "not there"
    assert _process_state(running_process(unit.unit_state)) == "active"
    assert (
        _process_state(running_process(unit.unit_state, state="activating", sub="start-post"))
        == "activating (start-post)"
    )


@pytest.mark.parametrize(("line", "text"), [("a\tb", "a\tb"), ("\x1b[31mred\x07", "[31mred"), ("é\r", "é")])
def test_a_line_of_a_log_writes_nowhere_else(line: str, text: str) -> None:
    assert _strip_controls(line) == text


def test_looks_that_are_taken_ahead_are_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[str] = []

    def run(_: object, command: str, stdin: str = "", *__: float) -> root_shell.RootCommandResult:
        commands.append(command)
        if not stdin:
            return root_shell.RootCommandResult(0, "\n".join(OUTPUT).encode(), b"")
        told = channel_lines(("answer", "0", "\n".join(OUTPUT)), ("answer", "2", "\n".join(channel_lines())))
        return root_shell.RootCommandResult(0, "\n".join(told).encode(), b"")

    made = box(monkeypatch, OUTPUT)
    monkeypatch.setattr(root_shell, "run_command", run)
    ahead = made.prefetch("served", "facts", "use")
    assert (ahead.read_serving_state().current, ahead.read_resource_usage(), len(commands)) == (10, {}, 1)
    # a failed part there is asked by itself, and says why
    with pytest.raises(click.ClickException, match=r"box: .*which was not asked for"):
        ahead.read_facts()
    assert len(commands) == 2


def test_a_host_that_answers_nothing_to_many_looks_is_asked_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    assert box(monkeypatch, OUTPUT).prefetch("served", "use").read_serving_state().current == 10
