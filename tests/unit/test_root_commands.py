"""Commands as root: one way, with what they said and how they ended."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import paramiko
import pytest

from rigwright.project_root import ROOT
from rigwright.safe_text import printable_lines
from roles import root_shell
from roles.operations import reconnecting_shell
from roles.root_shell import ConnectionGone, HostTooSlow, RootCommandFailed, RootCommandResult, RootDenied, RootShell
from tests.unit.rendered_scripts import write_stand_in
from tests.unit.ssh_host import ShellHost
from tests.unit.ssh_server import run_sshd

REFUSED = "sudo: a password is required"
# as pyinfra does when its own command line is imported, after any other imports
LATE = """
from roles import root_shell
import pyinfra_cli.main
from tests.unit.ssh_host import ShellHost
print(*root_shell.run_command(ShellHost(), "echo done", limit=300).lines)
"""


def test_both_outputs_and_the_status_come_back_at_any_length() -> None:
    answer = root_shell.run_command(ShellHost(), "cat; head -c 3000000 /dev/zero >&2; echo bye >&2; exit 7", "a\nb c\n")
    assert (answer.status, answer.lines, answer.complaint) == (7, ["a", "b c"], f"{chr(0) * 3000000}bye")


def test_it_answers_at_once_although_threads_became_greenlets_since() -> None:
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.stdout == "done\n", done.stderr


def test_a_command_that_reads_nothing_of_what_it_is_given_still_answers() -> None:
    assert root_shell.run_command(ShellHost(), "exec <&-; echo done").lines == ["done"]


def test_a_command_gets_the_rest_after_its_first_line() -> None:
    answer = root_shell.run_command(
        ShellHost(), "read one; echo $one!; cat", "a\n", rest=lambda line: f"{line.decode()}?\n"
    )
    assert answer.lines == ["a!?"]


def test_output_of_a_login_does_not_lead_to_the_rest() -> None:
    command = "echo welcome; printf 'last login: '; read one; echo $one!; cat"
    answer = root_shell.run_command(
        ShellHost(), command, "a\n", rest=lambda line: f"{line.decode()}?\n" if b"a!" in line else None
    )
    assert answer.lines == ["last login: a!?"]


def test_lines_are_heard_before_a_command_ends() -> None:
    heard: list[tuple[bytes, bool]] = []
    fifo = "read one; echo a; read more; printf 'b\\nc\\nlast'"
    began = time.monotonic()
    answer = root_shell.run_command(
        ShellHost(),
        f"echo first; {fifo}; sleep 0.5",
        "",
        rest=lambda line: "1\n2\n",
        heard=lambda line: heard.append((line, time.monotonic() - began < 0.5)),
    )
    assert heard == [(b"a", True), (b"b", True), (b"c", True)]
    assert answer.lines == ["a", "b", "c", "last"]


def test_a_lost_rest_is_reported_and_the_command_ends() -> None:
    def rest(line: bytes) -> str:
        raise ValueError(line.decode())

    with pytest.raises(ValueError, match="one"):
        root_shell.run_command(ShellHost(), "echo one; cat", rest=rest)


def test_a_command_that_ends_before_its_first_line_gets_nothing_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert root_shell.run_command(ShellHost(), "printf half; exit 3", rest=lambda line: 1 / 0).status == 3  # type: ignore[return-value]
    write_stand_in(tmp_path, "sudo", f'echo "{REFUSED}" >&2; exit 1')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    host = ShellHost()
    host.data = {"_sudo": True}
    with pytest.raises(RootDenied, match=REFUSED):
        root_shell.run_command(host, "true", rest=lambda line: 1 / 0)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("command", "bounds", "said"),
    [
        ("head -c 3000000 /dev/zero", {"most": 2 << 20}, "an answer longer than 2 MiB"),
        ("head -c 3000000 /dev/zero", {"most": 2 << 20, "rest": str}, "an answer longer than 2 MiB"),
        ("for one in $(seq 30); do echo $one; sleep 0.05; done", {"whole": 0.3}, "endless"),
    ],
)
def test_an_answer_that_has_no_end_is_read_to_none(command: str, bounds: dict[str, Any], said: str) -> None:
    with pytest.raises(ConnectionGone, match=said):
        root_shell.run_command(ShellHost(), command, **bounds)


DRIBBLES = "for one in $(seq 200); do printf x; sleep 0.05; done"


@pytest.fixture
def dribbling(tmp_path: Path) -> Iterator[Any]:
    """A host behind a real connection."""
    with run_sshd(tmp_path / "sshd") as server, paramiko.SSHClient() as client:
        client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
        client.connect("127.0.0.1", server.port, "root", key_filename=str(server.folder / "key"))
        yield SimpleNamespace(data={}, name="box", connector=SimpleNamespace(client=client))


def test_a_host_that_sends_a_byte_at_a_time_is_given_up_within_its_limit(dribbling: Any) -> None:
    began = time.monotonic()
    with pytest.raises(HostTooSlow, match=r"slower than 1024 bytes/s: \d+ bytes in .* given up"):
        root_shell.run_command(dribbling, DRIBBLES, limit=0.5)
    assert time.monotonic() - began < 3
    assert (
        root_shell.run_command(
            dribbling, f"head -c {40 * root_shell.LEAST} /dev/zero; sleep 0.3; echo; sleep 0.3", limit=0.5
        ).status
        == 0
    )


def test_the_step_of_a_deploy_is_reported_of_a_slow_host(dribbling: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnecting_shell, "SILENCE", 0.5)
    monkeypatch.setattr(reconnecting_shell, "find_deploy_lock", lambda _: None)
    began = time.monotonic()
    with pytest.raises(reconnecting_shell.HostLost, match=r"^`for one in .*`: slower than 1024 bytes/s"):
        reconnecting_shell.ReconnectingShell(dribbling).run(DRIBBLES)
    assert time.monotonic() - began < 3


def test_a_host_that_takes_what_it_is_sent_a_byte_at_a_time_is_given_up() -> None:
    taken: list[bytes] = []
    channel: Any = SimpleNamespace(send=lambda left: taken.append(bytes(left[:1])) or time.sleep(0.01) or 1)
    with pytest.raises(HostTooSlow):
        root_shell.send_bytes(channel, b"x" * 10_000, root_shell.TransferAllowance(0.1))
    assert 1 < len(taken) < 100


def test_a_host_that_never_takes_a_command_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_shell, "OPENING", 0.1)
    closed = threading.Event()

    def taken(command: str) -> None:
        assert closed.wait(10)
        raise paramiko.SSHException("Channel closed.")

    nothing = dict.fromkeys(("settimeout", "set_combine_stderr"), lambda *_: None)
    channel = SimpleNamespace(exec_command=taken, close=closed.set, **nothing)
    opened = SimpleNamespace(open_session=lambda: channel)
    target = SimpleNamespace(data={}, connector=SimpleNamespace(client=SimpleNamespace(get_transport=lambda: opened)))
    with pytest.raises(ConnectionGone, match="Channel closed"):
        root_shell.run_command(target, "true")


@pytest.mark.parametrize("sudo", [False, True])
def test_root_comes_through_sudo_where_the_data_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sudo: bool
) -> None:
    write_stand_in(tmp_path, "sudo", 'echo "sudo $1"; shift; exec "$@"')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    host = ShellHost()
    host.data = {"_sudo": sudo}
    assert root_shell.run_command(host, "echo 'it''s \"$0\"'").lines == [*(["sudo -n"] if sudo else []), 'its "$0"']


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (f'echo "{REFUSED}" >&2; exit 1', REFUSED),
        (f'echo lecture >&2; echo "{REFUSED}" >&2; exit 1', REFUSED),
        ('echo "sudo: Ein Passwort ist notwendig" >&2; exit 1', "sudo: Ein Passwort ist notwendig"),
        ('echo "sh: 1: sudo: not found" >&2; exit 127', "sh: 1: sudo: not found"),
        ('printf "sudo: %s\\033[2J\n" "$*" >&2; exit 1', "sudo: -n sh -c " + "x" * 185),
    ],
)
def test_a_login_that_does_not_become_root_says_so_shortly(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, words: str
) -> None:
    write_stand_in(tmp_path, "sudo", script)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    host = ShellHost()
    host.data = {"_sudo": True, "ssh_user": "ops"}
    with pytest.raises(RootDenied) as caught:
        root_shell.run_command(host, "x" * 100_000)
    assert caught.value.denial == f"cannot become root ({words})"
    remedy = "on the box, as root: echo 'ops ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/rigwright"
    remedy = "install sudo on the box, or log in as root" if words.endswith("not found") else remedy
    assert str(caught.value) == f"{caught.value.denial}: {remedy}"


def test_a_command_that_fails_as_root_is_no_refusal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write_stand_in(tmp_path, "sudo", 'shift; exec "$@"')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    host = ShellHost()
    host.data = {"_sudo": True}
    assert root_shell.run_command(host, "echo no >&2; exit 3").status == 3
    assert root_shell.run_command(host, "echo yes; echo 'sudo: so' >&2; exit 3").status == 3


def test_a_command_that_has_to_succeed_fails_in_its_own_words() -> None:
    assert RootShell(ShellHost()).run("echo yes") == "yes\n"
    for command, words in {"echo no >&2; false": "no", "echo no; false": "no", "exit 3": "exit status 3"}.items():
        with pytest.raises(RootCommandFailed, match=f"^{words}$"):
            RootShell(ShellHost()).run(command)


def test_a_host_without_a_connection_is_gone() -> None:
    target = SimpleNamespace(data={}, connector=SimpleNamespace(client=None))
    with pytest.raises(ConnectionGone):
        root_shell.run_command(target, "true")


def test_a_session_that_ends_with_its_connection_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    host = ShellHost()
    monkeypatch.setattr(root_shell, "wait_for_exit", lambda *_: -1)
    assert root_shell.run_command(host, "true") == RootCommandResult(-1, b"", b"")
    host.connected = False
    with pytest.raises(ConnectionGone, match="the session ended"):
        root_shell.run_command(host, "true")


def test_a_hosts_words_move_no_cursor() -> None:
    assert printable_lines("one\x1b[2J\ntwo\x9b") == "one\\x1b[2J\ntwo\\x9b"
