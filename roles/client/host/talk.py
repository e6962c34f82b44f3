"""One HTTP request over a connection of its own, and all that comes, with the moment at which it did.

Who answers may have been taken over: what comes is bounded, and passed on as it is.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

PIECE = 1 << 16  # bytes
PAUSE = 0.5  # seconds before somebody who said that he was busy is asked again
# Python's flag for a certificate of the operator's own that is trusted by itself (OpenSSL's X509_V_FLAG_PARTIAL_CHAIN)
PARTIAL_CHAIN = 0x80000


@dataclass(frozen=True)
class Place:
    """Who is asked."""

    at: str
    """The path of a unix socket, or ADDRESS:PORT."""
    key: str = ""
    authority: str = ""
    """PEM of who has signed the certificate; TLS is spoken where it is given."""
    tls_name: str = ""


class Connection(http.client.HTTPConnection):
    """Reaches a place.

    No name is looked up: the first look-up of a process loads Python's tables of names, and a socket has none.
    """

    def __init__(self, place: Place, limit: float) -> None:
        super().__init__("localhost", timeout=limit)
        self.place, self.limit = place, limit
        self.raw: socket.socket | None = None
        """The connection itself: http.client lets go of one that is not used again."""

    def connect(self) -> None:
        """Connect, as a client that waits for tokens does."""
        at = self.place.at
        address, _, port = at.rpartition(":")
        address = address.strip("[]")
        family = socket.AF_UNIX if at.startswith("/") else socket.AF_INET6 if ":" in address else socket.AF_INET
        self.sock = self.raw = socket.socket(family)
        self.sock.settimeout(self.limit)
        if family == socket.AF_UNIX:
            self.sock.connect(at)
            return
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.connect((address, int(port)))
        if self.place.authority:
            import ssl  # takes its time, and few need it

            context = ssl.create_default_context(cadata=self.place.authority)
            context.verify_flags |= PARTIAL_CHAIN
            self.sock = context.wrap_socket(self.sock, server_hostname=self.place.tls_name)
            self.raw = self.sock


def ask(place: Place, asked: dict[str, Any]) -> dict[str, object]:
    """Make one request; who says that he is busy (`again`, statuses) is asked again.

    Returns the members of rigwright.operate.reply.Reply.
    """
    began = time.perf_counter()
    until = began + asked["limit"]
    tries = 0
    while True:
        found = once(place, asked, until)
        if found["status"] not in asked["again"] or time.perf_counter() + PAUSE >= until:
            return found | {"refused": tries, "waited_s": round(time.perf_counter() - began, 6)}
        tries += 1
        time.sleep(PAUSE)


def once(place: Place, asked: dict[str, Any], until: float) -> dict[str, object]:
    """Make one request once."""
    found: dict[str, object] = {"status": 0, "error": "", "type": "", "body": "", "events": [], "first_s": None}
    pieces: list[tuple[float, bytes]] = []
    started = time.perf_counter()
    connection = Connection(place, max(0.01, until - started))
    try:
        headers = {"Connection": "close"} | ({"Authorization": f"Bearer {place.key}"} if place.key else {})
        body = asked["body"]
        if body is None:
            connection.request("GET", asked["path"], headers=headers)
        else:
            headers["Content-Type"] = "application/json"
            connection.request("POST", asked["path"], json.dumps(body).encode(), headers)
        answer = connection.getresponse()
        found["status"] = answer.status
        found["type"] = (answer.getheader("Content-Type") or "")[:100]
        taken = 0
        while piece := receive(connection, answer, until):
            pieces.append((time.perf_counter() - started, piece))
            taken += len(piece)
            if taken > asked["most"]:
                found["error"] = f"an answer of more than {asked['most']} bytes"
                break
    except TimeoutError:
        found["error"] = "no answer in time" if not pieces else "the answer did not end in time"
    except http.client.IncompleteRead:
        found["error"] = "the answer breaks off"
    except (OSError, ValueError, http.client.HTTPException) as error:
        found["error"] = str(getattr(error, "strerror", "") or error or type(error).__name__)[:300]
    finally:
        connection.close()
    found["total_s"] = round(time.perf_counter() - started, 6)
    if pieces:
        found["first_s"] = round(pieces[0][0], 6)
    if str(found["type"]).startswith("text/event-stream"):
        found["events"] = [[round(at, 6), text] for at, text in events(pieces)]
    else:
        found["body"] = b"".join(piece for _, piece in pieces)[: asked["most"]].decode(errors="replace")
    return found


def receive(connection: Connection, answer: http.client.HTTPResponse, until: float) -> bytes:
    """Some more of an answer; nothing at its end.

    Raises:
        TimeoutError: nothing comes until then.
        http.client.IncompleteRead: it ends before it is whole.
    """
    # Python 3.13 closes the connection with the last byte of an answer whose length was said
    if answer.isclosed():
        return b""
    left = until - time.perf_counter()
    if left <= 0:
        raise TimeoutError
    if connection.raw:
        connection.raw.settimeout(left)
    piece = answer.read1(PIECE)
    # read1 takes the end of the connection for that of an answer whose length was said
    if not piece and answer.length:
        raise http.client.IncompleteRead(b"")
    return piece


def events(pieces: list[tuple[float, bytes]]) -> Iterator[tuple[float, str]]:
    """What follows `data:`, with when its line was whole; comments and empty lines are left out."""
    begun = b""
    for at, piece in pieces:
        *whole, begun = (begun + piece).split(b"\n")
        for line in whole:
            kind, colon, value = line.rstrip(b"\r").partition(b":")
            if kind == b"data" and colon:
                yield at, value.strip().decode(errors="replace")
