"""Asks a server of OpenAI's interface for chat completions, many at a time, and times what comes.

Nothing but Python's own library: `python3 -I http_streams.py < ASKED`, where ASKED is `Asked` as JSON: a key is in it,
so it is in no argument. One process and one loop, which takes bytes as they come and reads them when all is over: its
own cost is some 20 microseconds a token.

Prints one line of JSON: `seconds`, from the first request to the last answer, and `requests`, each with `first_s`, to
its first token; `gaps_s`, from a token to the next; `total_s`, to the end of its answer; `tokens`. All in seconds.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import ssl
import sys
import time
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate, pairwise

CONTENT = re.compile(rb'"content" ?: ?"[^"]')
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
CLOSING = re.compile(rb"\r\nconnection: *close\r\n", re.IGNORECASE)
CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked\r\n", re.IGNORECASE)
# The end of an answer in chunks; no event has a carriage return in it.
LAST = b"0\r\n\r\n"
MESSAGE = 2000  # bytes; longer prompts are conversations
TEXT = "a rig of cards and fans, lanes and rails: " * (MESSAGE // 40)


@dataclass(frozen=True)
class ServerAddress:
    """Where a server is, and what it wants to be told."""

    at: str
    """The path of a unix socket, or `address:port`."""
    key: str = ""
    authority: str = ""
    """PEM of the issuer of the server's certificate; TLS is spoken where it is given."""
    name: str = "localhost"
    """The name of the certificate."""


@dataclass(frozen=True)
class StreamRequest:
    """The request."""

    place: ServerAddress
    model: str
    streams: int
    """Connections, each with one request at a time."""
    seconds: float
    """For how long each begins another one; 0 is one request each."""
    tokens: int
    """Of each answer."""
    stream: bool = True
    """Whether answers are to come as they are made."""
    kept: bool = True
    """Whether a connection is used again, as OpenAI's clients do."""
    spread: float = 0.0
    """Seconds over which streams begin, so that they do not ask all at the same moment."""
    pause: float = 0.0
    """Seconds between an answer and the next request."""
    prompt: int = 200
    """Bytes of each prompt, at least."""
    more: str = "{}"
    """Further members of each body, a JSON object."""


def render_body(asked: StreamRequest) -> bytes:
    """One request's body, with a conversation that no other one begins with."""
    messages = [
        {"role": "user", "content": f"{secrets.token_hex(8)} {TEXT[: min(asked.prompt - begun, MESSAGE)]}"}
        for begun in range(0, asked.prompt, MESSAGE)
    ]
    wanted = {"model": asked.model, "max_tokens": asked.tokens, "stream": asked.stream, **json.loads(asked.more)}
    return json.dumps(wanted | {"messages": messages}).encode()


class StreamConnection(asyncio.Protocol):
    """A connection; `ask` makes one request."""

    def __init__(self) -> None:
        """One that is not open yet."""
        self.pieces: list[tuple[float, bytes]] = []
        self.closes = False
        """Whether the answer says that there is none after it."""
        self._done: asyncio.Future[None] | None = None
        self._head = self._end = b""
        self._left: int | None = None
        """Bytes that the answer still has; -1 where it ends as it says itself, None before that is known."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """The server has closed it."""
        self.closes = True
        if self._done and not self._done.done():
            self._done.set_exception(exc or ConnectionError("the server closes before its answer has ended"))

    def data_received(self, data: bytes) -> None:
        """Take note of when it came, and whether the answer has ended with it."""
        self.pieces.append((time.perf_counter(), data))
        if self._left is None:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            head, data = self._head[: end + 2], self._head[end + 4 :]
            self.closes = CLOSING.search(head) is not None
            length = LENGTH.search(head)
            self._left = -1 if CHUNKED.search(head) else int(length[1]) if length else 0
        if self._left >= 0:
            self._left -= len(data)
        else:
            # it may come in parts
            self._end = (self._end + data[-len(LAST) :])[-len(LAST) :]
        over = self._end == LAST if self._left == -1 else self._left <= 0
        if over and self._done and not self._done.done():
            self._done.set_result(None)

    async def ask(self, request: bytes) -> list[tuple[float, bytes]]:
        """Make one request; returns what came, and when.

        Raises:
            OSError: the connection ends before the answer does.
        """
        self.pieces, self._head, self._end, self._left = [], b"", b"", None
        self._done = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        await self._done
        return self.pieces


async def _open_connection(asked: StreamRequest, context: ssl.SSLContext | None) -> StreamConnection:
    loop, place = asyncio.get_running_loop(), asked.place
    if place.at.startswith("/"):
        return (await loop.create_unix_connection(StreamConnection, place.at))[1]
    address, _, port = place.at.rpartition(":")
    named = place.name if context else None
    return (await loop.create_connection(StreamConnection, address, int(port), ssl=context, server_hostname=named))[1]


async def _run_stream(
    asked: StreamRequest, number: int, context: ssl.SSLContext | None, until: float
) -> list[tuple[float, list[tuple[float, bytes]]]]:
    """Requests of one stream: when each began, and what came."""
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {asked.place.name}\r\nContent-Type: application/json\r\n"
    head += f"Authorization: Bearer {asked.place.key}\r\n" if asked.place.key else ""
    head += "" if asked.kept else "Connection: close\r\n"
    await asyncio.sleep(asked.spread * number / asked.streams)
    made: list[tuple[float, list[tuple[float, bytes]]]] = []
    wire = None
    while not made or time.perf_counter() < until:
        content = render_body(asked)
        request = f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content
        # a connection is part of the first request of a stream alone
        started = time.perf_counter()
        pieces: list[tuple[float, bytes]] = []
        try:
            if wire:
                pieces = await wire.ask(request)
        except OSError:
            # llama.cpp says that it keeps a connection, and ends it after a stream: clients ask again, as OpenAI's do
            if wire and wire.pieces:
                raise
        if not pieces:
            wire = await _open_connection(asked, context)
            pieces = await wire.ask(request)
        made.append((started, pieces))
        # a server may have ended it with its answer, as engines do after some
        await asyncio.sleep(asked.pause)
        if wire and (not asked.kept or wire.closes):
            wire.transport.close()
            wire = None
    if wire:
        wire.transport.close()
    return made


def read_times(asked: StreamRequest, started: float, pieces: list[tuple[float, bytes]]) -> dict[str, object]:
    """One request's times.

    Raises:
        ValueError: the server refuses, or has answered less than it was asked for.
    """
    text = b"".join(piece for _, piece in pieces)
    if not text.startswith(b"HTTP/1.1 200 "):
        raise ValueError(f"the server sent {text[:500].decode(errors='replace')!r}")
    ends = list(accumulate(len(piece) for _, piece in pieces))
    times = [pieces[bisect_right(ends, found.start())][0] for found in CONTENT.finditer(text)]
    # some of an engine's tokens are no text yet, and come with the next one: of words by chance, one in eight and more
    if not times or (asked.stream and len(times) < asked.tokens / 2):
        raise ValueError(f"an answer of {len(times)} tokens where {asked.tokens} were asked for: {text[-300:]!r}")
    return {
        "first_s": times[0] - started,
        "gaps_s": [later - earlier for earlier, later in pairwise(times)],
        "total_s": pieces[-1][0] - started,
        # as many as were asked for, of engines that end no answer earlier: how many came alone is chance
        "tokens": asked.tokens,
    }


async def run_streams(asked: StreamRequest) -> dict[str, object]:
    """Make all requests.

    Raises:
        OSError: no connection, or none any more.
        ValueError: as `read_times`.
    """
    context = ssl.create_default_context(cadata=authority) if (authority := asked.place.authority) else None
    started = time.perf_counter()
    until = started + asked.seconds
    streams = await asyncio.gather(*(_run_stream(asked, number, context, until) for number in range(asked.streams)))
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "requests": [read_times(asked, *one) for made in streams for one in made]}


def main() -> None:
    """Run what is asked for; exit status 1 and a line on standard error where that fails."""
    told = json.load(sys.stdin)
    asked = StreamRequest(**(told | {"place": ServerAddress(**told["place"])}))
    try:
        print(json.dumps(asyncio.run(run_streams(asked))))
    except (OSError, ValueError) as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
