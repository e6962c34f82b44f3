"""A simulation of many hosts: one SSH server, with a port and perhaps a fault for each. It runs no command."""

from __future__ import annotations

import socket
import sys
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

ANSWER = b"fine\n"
"""The output of each command."""
FAULTS = ("hang-connect", "hang-command", "slow", "close", "wrong-key", "garbage")
"""`hang-connect` sends nothing, `hang-command` takes a command and sends nothing, `slow` sends a byte a second,
`close` ends the connection in a command, `wrong-key` has another host key, `garbage` sends other bytes than SSH."""
NEVER = 3600.0  # seconds


class SimulatedHost(paramiko.ServerInterface):
    """One connection, which any key may use."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
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
        gevent.spawn_later(0.001, self.answer, channel)
        return True

    def answer(self, channel: paramiko.Channel) -> None:
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
            channel.sendall(ANSWER)
            channel.send_exit_status(0)
            channel.close()


def serve_host(fault: str, key: paramiko.PKey, sock: socket.socket, _client: object) -> None:
    """Serve one connection of a host with this fault, or none."""
    if fault == "hang-connect":
        gevent.sleep(NEVER)
    if fault == "garbage":
        sock.sendall(b"\x00\xff" * 4096)
        return
    transport = paramiko.Transport(sock)
    transport.add_server_key(key)
    host = SimulatedHost(fault)
    host.transport = transport
    with suppress(EOFError, OSError, paramiko.SSHException):
        # without an event it would ask ten times a second whether it has begun
        transport.start_server(event=(begun := Event()), server=host)
        begun.wait(NEVER)
        transport.join()


def serve_hosts(folder: Path) -> None:
    """Serve hosts; their ports are printed first.

    Args:
        folder: The folder with `key`, `other` and `faults`: a line for each host, empty for one without.
    """
    key, other = (paramiko.ECDSAKey.from_private_key_file(str(folder / name)) for name in ("key", "other"))
    ports = []
    for fault in (folder / "faults").read_text().split("\n"):
        handle = partial(serve_host, fault, other if fault == "wrong-key" else key)
        server = StreamServer(("127.0.0.1", 0), handle)
        server.start()
        ports.append(server.server_port)
    print(*ports, flush=True)
    Event().wait()


if __name__ == "__main__":
    serve_hosts(Path(sys.argv[1]))
