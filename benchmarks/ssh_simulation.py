"""A simulation of many hosts: one SSH server, with a port and perhaps a fault for each. It runs no command.

It answers from a recording of a real host, or each command with ANSWER. With a real host it makes the recording.
"""

from __future__ import annotations

import base64
import shlex
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from gevent import monkey

if __name__ == "__main__":
    monkey.patch_all()

import gevent
import paramiko
from gevent.event import Event
from gevent.server import StreamServer
from paramiko.common import AUTH_SUCCESSFUL, OPEN_SUCCEEDED

from benchmarks.ssh_recording import (
    PIECE,
    RecordedCommand,
    Recorder,
    Replay,
    find_scripts,
    is_received,
    load_recording,
    load_texts,
)
from roles.login_shell import END

ANSWER = b"fine\n"
"""The output of each command."""
FAULTS = ("hang-connect", "hang-command", "slow", "close", "wrong-key", "garbage")
"""`hang-connect` sends nothing, `hang-command` takes a command and sends nothing, `slow` sends a byte a second,
`close` ends the connection in a command, `wrong-key` has another host key, `garbage` sends other bytes than SSH."""
NEVER = 3600.0  # seconds


Answer = Callable[[paramiko.Channel, str], None]
"""Answers one command of a connection."""


class SimulatedHost(paramiko.ServerInterface):
    """One connection, which any key may use."""

    def __init__(self, answer: Answer, fault: str = "") -> None:
        self.answer, self.fault = answer, fault
        self.transport: paramiko.Transport | None = None

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        """Accept the key."""
        return AUTH_SUCCESSFUL

    def get_allowed_auths(self, username: str) -> str:
        """Keys only."""
        return "publickey"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        """Accept sessions."""
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        """Answer after the client knows that its command was accepted."""
        gevent.spawn_later(0.001, self.run, channel, command.decode())
        return True

    def run(self, channel: paramiko.Channel, line: str) -> None:
        """Send the answer of a command, or what its fault has instead."""
        with suppress(OSError, EOFError):
            if self.fault == "hang-command":
                return
            if self.fault == "close" and self.transport:
                self.transport.close()
                return
            while self.fault == "slow":
                channel.sendall(b".")
                gevent.sleep(1)
            self.answer(channel, line)


def answer_fine(channel: paramiko.Channel, _line: str) -> None:
    """Answer each command alike."""
    channel.sendall(ANSWER)
    channel.send_exit_status(0)
    channel.close()


class RecordedHost:
    """The answers of a host of another name than the recorded one."""

    def __init__(self, name: str, texts: Mapping[bytes, bytes], recording: Sequence[RecordedCommand]) -> None:
        self.name, self.texts, self.replay = name, texts, Replay(recording)

    def __call__(self, channel: paramiko.Channel, line: str) -> None:
        """Answer as the recorded host has answered; standard error has the commands that it did not get."""
        command, received = self.replay.take(line), bytearray()
        if command is None or any(kind == "eof" for kind, _ in command.steps[:2]):
            # the input says what is asked: answers of another order, or some of them, are asked again when they expire
            while piece := channel.recv(PIECE):
                received += piece
            command = command if command and command.is_input(received) else self.compose(line, bytes(received))
        if command is None:
            print(f"{self.name}: not recorded: {line[:200]!r} {bytes(received[:2000])!r}", file=sys.stderr, flush=True)
            channel.send_exit_status(255)
            channel.close()
            return
        due = b""
        for kind, data in command.answer_with(self.texts):
            if kind == "in":
                due += data
                while not is_received(received, due) and (piece := channel.recv(PIECE)):
                    received += piece
            elif kind == "eof":
                while piece := channel.recv(PIECE):
                    received += piece
            elif kind == "exit":
                channel.send_exit_status(int(data))
            else:
                (channel.sendall if kind == "out" else channel.sendall_stderr)(data)
        if not command.is_input(received):
            print(f"{self.name}: another input than recorded: {line[:200]!r}", file=sys.stderr, flush=True)
        channel.close()

    def compose(self, line: str, received: bytes) -> RecordedCommand | None:
        """The answer of a command that was recorded in others."""
        if scripts := find_scripts(received):
            answers = self.replay.answer_scripts(scripts, self.texts)
            fields = [part for number, one in enumerate(answers or ()) for part in ("3", "answer", str(number), one)]
            out = base64.b64encode("\0".join([*fields, "1", "end", ""]).encode()) if answers else b""
        else:
            script = received.decode().removesuffix(f"\n{END}") or line
            while script.startswith("sh -c "):
                script = shlex.split(script)[2]
            answers = self.replay.answer_scripts([script], self.texts)
            out = f"{answers[0]}\n".encode() if answers else b""
        return RecordedCommand(line, steps=[("in", received), ("out", out), ("exit", b"0")]) if answers else None


def serve_host(
    make_answer: Callable[[], Answer], fault: str, key: paramiko.PKey, sock: socket.socket, _client: object
) -> None:
    """Serve one connection of a host with this fault, or none."""
    if fault == "hang-connect":
        gevent.sleep(NEVER)
    if fault == "garbage":
        sock.sendall(b"\x00\xff" * 4096)
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    transport = paramiko.Transport(sock)
    transport.add_server_key(key)
    host = SimulatedHost(make_answer(), fault)
    host.transport = transport
    with suppress(EOFError, OSError, paramiko.SSHException):
        # without an event it would ask ten times a second whether it has begun
        transport.start_server(event=(begun := Event()), server=host)
        begun.wait(NEVER)
        transport.join()


class ConnectionCount:
    """The largest number of connections at the same time, kept in a file."""

    def __init__(self, file: Path) -> None:
        self.file, self.open, self.peak = file, 0, 0

    def count(self, serve: Callable[[socket.socket, object], None], sock: socket.socket, client: object) -> None:
        """Serve a connection, and count it until its end."""
        self.open += 1
        if self.open > self.peak:
            self.peak = self.open
            self.file.write_text(str(self.peak))
        try:
            serve(sock, client)
        finally:
            self.open -= 1


def name_host(number: int) -> str:
    """The name of a simulated host."""
    return f"n{number:04}"


def serve_hosts(folder: Path) -> None:
    """Serve hosts; their ports are printed first.

    Args:
        folder: The folder with `key`, `other` and `faults`: a line for each host, empty for one without. With
            `recording`, hosts answer from it. Gets `connections`: the largest number of them at the same time.
    """
    key, other = (paramiko.ECDSAKey.from_private_key_file(str(folder / name)) for name in ("key", "other"))
    file = folder / "recording"
    recording = load_recording(file) if file.exists() else None
    texts = load_texts(folder / "texts") if recording else {}
    counter = ConnectionCount(folder / "connections")
    ports = []
    for number, fault in enumerate((folder / "faults").read_text().split("\n"), 1):
        name = name_host(number)
        make = (
            (lambda: answer_fine) if recording is None else partial(RecordedHost, name, texts.get(name, {}), recording)
        )
        handle = partial(serve_host, make, fault, other if fault == "wrong-key" else key)
        server = StreamServer(("127.0.0.1", 0), partial(counter.count, handle), backlog=16)
        server.start()
        ports.append(server.server_port)
    print(*ports, flush=True)
    Event().wait()


def record_host(folder: Path, address: str, host_key: str) -> None:
    """Serve one host that passes commands on to a real one; its port is printed first. SIGTERM writes the recording.

    Args:
        folder: The folder with `key`, and with `login`, the key of root there; gets `recording`.
        address: The address of the real host.
        host_key: Its public key, as known_hosts has it.
    """
    upstream = paramiko.SSHClient()
    kind, text = host_key.split()[:2]
    upstream.get_host_keys().add(address, kind, paramiko.PKey.from_type_string(kind, base64.b64decode(text)))
    upstream.connect(
        address, username="root", key_filename=str(folder / "login"), look_for_keys=False, allow_agent=False
    )
    recorder = Recorder(upstream)
    key = paramiko.ECDSAKey.from_private_key_file(str(folder / "key"))
    server = StreamServer(("127.0.0.1", 0), partial(serve_host, lambda: recorder.run, "", key))
    server.start()
    ended = Event()
    gevent.signal_handler(signal.SIGTERM, ended.set)
    print(server.server_port, flush=True)
    ended.wait()
    recorder.save(folder / "recording")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        record_host(Path(sys.argv[1]), *sys.argv[2:])
    else:
        serve_hosts(Path(sys.argv[1]))
