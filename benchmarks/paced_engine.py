"""A stand-in for an engine, which streams at a fixed pace and computes nothing: `python3 -I paced_engine.py SOCKET`.

A real engine takes all cores that it gets, so what is put in front of it is measured together with what it lacks then.
This one answers OpenAI's completions and chat completions, over HTTP/1.1 on a unix socket, with `max_tokens` words: the
first after FIRST seconds, each further one INTERVAL seconds, or the request's `interval_ms`, after the one before it,
by the clock: one that is late makes no other one late. A request without a stream is answered at once.
"""

from __future__ import annotations

import asyncio
import re
import sys

FIRST, INTERVAL = 0.02, 0.04
# Options are looked for at both ends of a body: reading megabytes of it is not what is measured.
END = 4096
OPTION = {name: re.compile(rb'"%s" ?: ?(\d+|true)' % name.encode()) for name in ("max_tokens", "stream", "interval_ms")}
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
CLOSING = re.compile(rb"\r\nconnection: *close\r\n", re.IGNORECASE)
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
LAST = b"0\r\n\r\n"


def _event(choices: bytes, more: bytes = b"") -> bytes:
    made = b'"object":"chat.completion.chunk","created":1,"model":"paced"'
    text = b'data: {"id":"paced",' + made + b',"choices":[' + choices + b"]" + more + b"}\n\n"
    return b"%x\r\n%s\r\n" % (len(text), text)


def _choice(delta: bytes, reason: bytes) -> bytes:
    return b'{"index":0,"delta":' + delta + b',"finish_reason":' + reason + b"}"


TOKEN = _event(_choice(b'{"role":"assistant","content":" word"}', b"null"))


def _usage(tokens: int) -> bytes:
    return b'"usage":{"prompt_tokens":1,"completion_tokens":%d,"total_tokens":%d}' % (tokens, tokens + 1)


def end(tokens: int) -> bytes:
    """The end of a stream after its last token."""
    done = b"data: [DONE]\n\n"
    events = _event(_choice(b"{}", b'"length"')) + _event(b"", b"," + _usage(tokens))
    return events + b"%x\r\n%s\r\n" % (len(done), done) + LAST


def complete_answer(tokens: int) -> bytes:
    """An answer that is not streamed."""
    message = b'"message":{"role":"assistant","content":"' + b" word" * tokens + b'"}'
    made = b'{"id":"paced","object":"chat.completion","created":1,"model":"paced",'
    body = made + b'"choices":[{"index":0,' + message + b',"finish_reason":"length"}],' + _usage(tokens) + b"}"
    return WHOLE % (len(body), body)


class Engine(asyncio.Protocol):
    """One connection, of one request after the other."""

    def __init__(self) -> None:
        """One that nothing has come from."""
        self._come = bytearray()
        self._wanted = 0
        """Bytes of the request that is under way, head and body; 0 while its head is not there."""
        self._next: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has closed its connection."""
        if self._next:
            self._next.cancel()

    def data_received(self, data: bytes) -> None:
        """Answer once a request is whole."""
        self._come += data
        if not self._wanted:
            head = self._come.find(b"\r\n\r\n")
            if head < 0:
                return
            length = LENGTH.search(self._come, 0, head + 2)
            self._wanted = head + 4 + (int(length[1]) if length else 0)
        if len(self._come) >= self._wanted:
            self._answer()

    def _answer(self) -> None:
        head = self._come.index(b"\r\n\r\n") + 4
        body = bytes(self._come[head : head + END]) + b" " + bytes(self._come[max(head, self._wanted - END) :])
        self._closing = CLOSING.search(self._come, 0, head) is not None
        del self._come[:]
        self._wanted = 0
        asked = {name: found[1] for name, pattern in OPTION.items() if (found := pattern.search(body))}
        tokens = int(asked.get("max_tokens", b"1"))
        if asked.get("stream") != b"true":
            self._transport.write(complete_answer(tokens))
            return self._end()
        interval = int(asked["interval_ms"]) / 1000 if "interval_ms" in asked else INTERVAL
        self._transport.write(STREAM)
        loop = asyncio.get_running_loop()
        started = loop.time() + FIRST

        def say(number: int) -> None:
            if number < tokens:
                self._transport.write(TOKEN)
                self._next = loop.call_at(started + (number + 1) * interval, say, number + 1)
            else:
                self._transport.write(end(tokens))
                self._end()

        self._next = loop.call_at(started, say, 0)
        return None

    def _end(self) -> None:
        if self._closing:
            self._transport.close()


async def main(path: str) -> None:
    """Serve until it is stopped."""
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(Engine, path, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
