"""One HTTP request over a connection of its own, and all that comes, with the moment at which it did.

The server that answers may have been taken over: its data is bounded, and passed on as it is.
"""

from __future__ import annotations

import http.client
import json
import math
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

PIECE = 1 << 16  # bytes
PIECES = 1 << 16  # of an answer, or events of one: each takes more room than its bytes
PAUSE = 0.5  # seconds before a busy server is asked again
# Python's flag for a certificate of the operator's own that is trusted by itself (OpenSSL's X509_V_FLAG_PARTIAL_CHAIN)
PARTIAL_CHAIN = 0x80000


@dataclass(frozen=True)
class RequestTarget:
    """The server that is asked."""

    at: str
    """The path of a unix socket, or ADDRESS:PORT."""
    key: str = ""
    authority: str = ""
    """PEM of the issuer of the certificate; TLS is spoken where it is given."""
    tls_name: str = ""


class DeadlineReads:
    """Bounds the time of all reads of a socket: a server that sends a byte now and then would be read for ever."""

    limit = until = math.inf

    def recv_into(self, *given: Any) -> int:
        """As a socket has it.

        Raises:
            TimeoutError: the moment has come.
        """
        left = min(self.limit, self.until - time.perf_counter())
        if left <= 0:
            raise TimeoutError("timed out")
        self.settimeout(left)  # type: ignore[attr-defined] # beside a socket's class
        return super().recv_into(*given)  # type: ignore[misc, no-any-return]


class PlainSocket(DeadlineReads, socket.socket):
    """One without TLS."""


class TargetConnection(http.client.HTTPConnection):
    """Reaches a place.

    No name is looked up: the first look-up of a process loads Python's tables of names, and a socket has none.
    """

    def __init__(self, place: RequestTarget, limit: float, whole: float | None = None) -> None:
        """Nothing is opened yet.

        Args:
            place: The server that is asked.
            limit: Seconds without a byte.
            whole: Seconds for everything; those without a byte where there are none.
        """
        super().__init__("localhost", timeout=limit)
        self.place, self.limit = place, limit
        self.until = time.perf_counter() + (limit if whole is None else whole)

    def connect(self) -> None:
        """Connect, as a client that waits for tokens does."""
        at = self.place.at
        address, _, port = at.rpartition(":")
        address = address.strip("[]")
        family = socket.AF_UNIX if at.startswith("/") else socket.AF_INET6 if ":" in address else socket.AF_INET
        self.sock: Any = PlainSocket(family)
        self.sock.settimeout(self.limit)
        self.sock.limit, self.sock.until = self.limit, self.until
        if family == socket.AF_UNIX:
            self.sock.connect(at)
            return
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.connect((address, int(port)))
        if self.place.authority:
            import ssl  # takes its time, and few need it

            context = ssl.create_default_context(cadata=self.place.authority)
            context.verify_flags |= PARTIAL_CHAIN
            context.sslsocket_class = type("Spoken", (DeadlineReads, ssl.SSLSocket), {})
            self.sock = context.wrap_socket(self.sock, server_hostname=self.place.tls_name)
            self.sock.limit, self.sock.until = self.limit, self.until


def request_with_retries(place: RequestTarget, asked: dict[str, Any]) -> dict[str, object]:
    """Make one request; a busy server (`again`, statuses) is asked again.

    Returns the members of rigwright.operate.chat_reply.Reply.
    """
    began = time.perf_counter()
    until = began + asked["limit"]
    tries = 0
    while True:
        found = request_once(place, asked, until)
        if found["status"] not in asked["again"] or time.perf_counter() + PAUSE >= until:
            return found | {"refused": tries, "waited_s": round(time.perf_counter() - began, 6)}
        tries += 1
        time.sleep(PAUSE)


def request_once(place: RequestTarget, asked: dict[str, Any], until: float) -> dict[str, object]:
    """Make one request once."""
    found: dict[str, object] = {"status": 0, "error": "", "type": "", "body": "", "events": [], "first_s": None}
    pieces: list[tuple[float, bytes]] = []
    started = time.perf_counter()
    connection = TargetConnection(place, max(0.01, until - started))
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
        while piece := receive_piece(answer):
            pieces.append((time.perf_counter() - started, piece))
            taken += len(piece)
            if taken > asked["most"]:
                found["error"] = f"an answer of more than {asked['most']} bytes"
                break
            if len(pieces) > PIECES:
                found["error"] = f"an answer in more than {PIECES} pieces"
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
        told = [[round(at, 6), text] for at, text in islice(parse_events(pieces), PIECES + 1)]
        if len(told) > PIECES:
            found["error"] = found["error"] or f"an answer of more than {PIECES} events"
        found["events"] = told[:PIECES]
    else:
        found["body"] = b"".join(piece for _, piece in pieces)[: asked["most"]].decode(errors="replace")
    return found


def receive_piece(answer: http.client.HTTPResponse) -> bytes:
    """Some more of an answer; nothing at its end.

    Raises:
        TimeoutError: nothing comes in time.
        http.client.IncompleteRead: it ends before it is whole.
    """
    # Python 3.13 closes the connection with the last byte of an answer with a Content-Length
    if answer.isclosed():
        return b""
    piece = answer.read1(PIECE)
    # read1 takes the end of the connection for that of an answer with a Content-Length
    if not piece and answer.length:
        raise http.client.IncompleteRead(b"")
    return piece


def parse_events(pieces: list[tuple[float, bytes]]) -> Iterator[tuple[float, str]]:
    """The text after `data:`, with the time when its line was whole; comments and empty lines are left out."""
    begun: list[bytes] = []
    for at, piece in pieces:
        first, *more = piece.split(b"\n")
        begun.append(first)
        for part in more:
            # joined once: a line may be all there is, in a piece a byte
            kind, colon, value = b"".join(begun).rstrip(b"\r").partition(b":")
            begun = [part]
            if kind == b"data" and colon:
                yield at, value.strip().decode(errors="replace")
