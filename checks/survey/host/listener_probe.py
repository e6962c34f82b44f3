"""Asks a listener as an outside client would, with the connection left open."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import socket
import threading
import time
from typing import Any

from checks.survey.host import bounded_http, network_sockets

PATIENCE = 1.5  # seconds for an answer
FIRST = 0.04  # seconds in which a server that speaks first does so
MOST = 1 << 16  # bytes of an answer that are read
EVERY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (what others listen on)
LINES = (b"GET /v1/models HTTP/1.1", b"Host: localhost", b"Accept: */*", b"", b"")


class OpenConnection:
    """A listener's answer, with the connection left open."""

    def __init__(self, at: str) -> None:
        self.at = at
        self.connection: socket.socket | None = None
        self.said = b""


def reached(at: str) -> tuple[str, int]:
    """Where the host itself finds a listener."""
    address, _, port = at.rpartition(":")
    address = address.strip("[]")
    return EVERY.get(address, address), int(port)


def ask(held: OpenConnection, tls: bool = False) -> None:
    """Ask a listener for models, unless it speaks first, by TLS where it wants that."""
    address, port = reached(held.at)
    until = time.monotonic() + PATIENCE
    with contextlib.suppress(OSError, ValueError):
        connection = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        held.connection, held.said = connection, b""
        connection.settimeout(0.5)
        # an address that several networks may have is one of an interface
        scope = network_sockets.scope(address)
        connection.connect((address, port, 0, scope) if scope else (address, port))
        if tls:
            import ssl  # takes its time, and few need it

            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            connection.settimeout(PATIENCE)
            held.connection = connection = context.wrap_socket(connection)
        elif select.select([connection], [], [], FIRST)[0]:
            return
        connection.sendall(b"\r\n".join(LINES))
        while len(held.said) < MOST and not is_answer_complete(held.said):
            left = until - time.monotonic()
            if left <= 0:
                break
            connection.settimeout(left)
            piece = connection.recv(MOST)
            held.said += piece
            if not piece:
                break
    if not tls and (
        held.said.startswith(b"\x15\x03") or b"HTTPS" in held.said[:2000] or b"HTTP request was sent" in held.said
    ):
        if held.connection:
            held.connection.close()
        ask(held, tls=True)


def is_answer_complete(said: bytes) -> bool:
    """Whether nothing more of an answer will come."""
    head, gap, body = said.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *([0-9]{1,9})", head)
    return bool(gap) and (len(body) >= int(length[1]) if length else body.endswith(b"0\r\n\r\n"))


class StrangerRequests:
    """A process of user `nobody` that asks, and keeps its connections until it is let go."""

    def __init__(self, places: list[str]) -> None:
        self.letting, self.going = os.pipe()
        self.pid, self.reading = bounded_http.apart(bounded_http.NOBODY, self._work(places))

    def _work(self, places: list[str]) -> Any:
        def work(writing: int) -> None:
            os.close(self.going)
            held = [OpenConnection(at) for at in places]
            threads = [threading.Thread(target=ask, args=(one,), daemon=True) for one in held]
            for thread in threads:
                thread.start()
            until = time.monotonic() + 2 * PATIENCE + 1
            for thread in threads:
                thread.join(max(0.0, until - time.monotonic()))
            bounded_http.write(writing, {one.at: one.said[:MOST].decode("latin-1") for one in held})
            os.read(self.letting, 1)

        return work

    def answers(self) -> dict[str, str]:
        """The answers; the connections are open still.

        Raises:
            RuntimeError: the asking process was ended, which every process of user `nobody` can do: there is no answer.
        """
        said = b""
        while not said.endswith(b"\n"):
            piece = os.read(self.reading, 1 << 20)
            if not piece:
                raise RuntimeError("the process that asks other listeners has died")
            said += piece
        found: dict[str, str] = json.loads(said)
        return found

    def end(self) -> None:
        """Have the connections closed."""
        os.close(self.going)
        os.close(self.letting)
        os.close(self.reading)
        os.waitpid(self.pid, 0)
