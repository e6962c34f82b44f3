"""Verbs that bring a host's or a model's words to the operator's terminal, of a host or a model that says anything."""

import importlib
import io
import os
import socket
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner
from paramiko import ChannelException

from cli import remote_terminal, ssh
from rigwright.gateway.client_setup import VARIABLE, ClientEndpoint
from roles import deploy_lock, root_shell
from roles.client.host import http_exchange
from tests.unit.test_client_hostile import EVENTS, engine

chat: Any = importlib.import_module("cli.chat")


def test_a_line_without_end_comes_in_parts() -> None:
    long = io.BytesIO(bytes(200_000) + b"\nend\n")
    found = [len(line) for line in root_shell.read_bounded_lines(long)]
    assert (found[-1], max(found), sum(found)) == (4, root_shell.LONGEST, 200_005)
    channel = SimpleNamespace(**spoken(bytes(200_000)), get_transport=None, recv_exit_status=lambda: 0)
    target = SimpleNamespace(data={}, connector=SimpleNamespace(client=carrying(channel)))
    assert max(map(len, root_shell.stream_lines(target, "true"))) == root_shell.LONGEST


def spoken(out: bytes) -> dict[str, Any]:
    """The output of a channel."""
    ignored = ("settimeout", "set_combine_stderr", "exec_command", "sendall", "shutdown_write", "close")
    said = {"makefile": lambda _: io.BytesIO(out), "makefile_stderr": lambda _: io.BytesIO()}
    return dict.fromkeys(ignored, lambda *_: None) | said


def carrying(channel: object) -> Any:
    return SimpleNamespace(get_transport=lambda: SimpleNamespace(open_session=lambda: channel))


def test_run_shows_an_endless_line_in_parts(capsys: pytest.CaptureFixture[str]) -> None:
    box: Any = SimpleNamespace(name="box")
    ssh._print_lines(box, io.BytesIO(b"a" * 200_000), False)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) == root_shell.LONGEST + len("box  ")
    assert sum(line.count("a") for line in lines) == 200_000


def test_an_endless_answer_about_the_lock_is_cut_off() -> None:
    said = io.BytesIO(b"nonsense\n" * 100_000)
    channel: Any = SimpleNamespace(makefile=lambda _: said, makefile_stderr=lambda _: io.BytesIO())
    assert deploy_lock._read_refusal(channel, "", lambda: False)
    assert said.tell() == deploy_lock.LINES * len(b"nonsense\n")


def talking(path: Path, said: bytes, capsys: pytest.CaptureFixture[str]) -> str:
    """The output for a client of a model with this answer."""
    answering = engine(path, lambda taken: taken.sendall(EVENTS + said))
    with answering as place, pytest.raises(click.exceptions.Exit) as ended:
        chat._run_conversation(lambda: http_exchange.TargetConnection(place, 20), "key", "m", "hi")
    assert ended.value.exit_code == 1
    return capsys.readouterr().err


@pytest.mark.parametrize(
    "said",
    [
        *(b"5", b"[]", b'{"choices": 5}', b'{"choices": [5]}', b'{"choices": {"a": 1}}', b"{", b"[" * 100_000),
        *(b'{"choices": [{"delta": 5}]}', b'{"error": "\\u001b[2J"}', b"\xff"),
    ],
)
def test_a_model_that_says_something_else_gives_no_answer(
    tmp_path: Path, said: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    found = talking(tmp_path / "s", b"data: " + said + b"\n\n", capsys)
    assert found.startswith("no answer: ")
    assert "\x1b" not in found


def test_a_model_that_never_ends_is_heard_no_longer_than_an_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat, "MOST", 1 << 20)
    endless = b'data: {"choices": [{"delta": {"content": "a"}}]}\n' * 50_000
    # below what has come of the answer
    assert talking(tmp_path / "s", endless, capsys).startswith("\nno answer: an answer of more than 1 MiB")


@pytest.mark.parametrize("key", ["secret\nsecond", "secret\r", "\u20acsecret"])
def test_a_key_that_is_invalid_is_not_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: str) -> None:
    way = ClientEndpoint("box", "m", "http://127.0.0.1:9/v1", keyed=True, listener="lan")
    monkeypatch.setattr(chat, "find_access_paths", lambda *_: {way: ()})
    (tmp_path / "rig.py").write_text("")
    done = CliRunner().invoke(chat.chat, [str(tmp_path / "rig.py"), "--gateway", "-m", "hi"], env={VARIABLE: key})
    assert done.exit_code == 2
    assert "one line of printable ASCII" in done.output
    assert "secret" not in done.output


def test_a_command_that_reads_no_more_ends_what_is_sent_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"words")
    with os.fdopen(reading) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)

        def gone(part: bytes) -> None:
            raise OSError("Socket is closed")

        remote_terminal._send_input(SimpleNamespace(sendall=gone, shutdown_write=lambda: None))  # type: ignore[arg-type]
    os.close(writing)


def test_a_port_that_takes_no_connection_is_reported_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*_: object) -> None:
        raise ChannelException(2, "Connect failed\x1b[2J")

    transport = SimpleNamespace(open_channel=refused)
    client = SimpleNamespace(get_transport=lambda: transport)
    box: Any = SimpleNamespace(name="box", target=SimpleNamespace(connector=SimpleNamespace(client=client)))
    ours, theirs = socket.socketpair()
    with ours, suppress(OSError):
        ssh._forward_connection(theirs, box, 8020)
        assert ours.recv(1) == b""
    assert capsys.readouterr().err.startswith("box: port 8020 takes no connection: ")


def test_a_conversation_ends_at_ctrl_d(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def end(prompt: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", end)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    chat._run_conversation(lambda: pytest.fail("nothing is asked"), "key", "model", None)
    assert capsys.readouterr().err == "model; an empty line or Ctrl-D ends it\n\n"
