"""Clients that send given bytes."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Secured:
    """The result of a request by TLS."""

    status: int
    protocol: str | None
    """That was agreed upon for what is in it."""
    session: ssl.SSLSession | None
    resumed: bool


def posting(text: bytes, *headers: str, path: str = "/v1/chat/completions") -> bytes:
    """A request's bytes, after which the connection ends."""
    lines = [f"POST {path} HTTP/1.1", "Host: box", "Connection: close", "Content-Type: application/json"]
    lines += [f"Content-Length: {len(text)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + text


async def read_answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: bytes
) -> tuple[int, dict[str, str], bytes]:
    came = b""

    async def send() -> None:
        for start in range(0, len(text), 1 << 20):
            writer.write(text[start : start + (1 << 20)])
            await writer.drain()

    sending = asyncio.ensure_future(send())
    try:
        while part := await reader.read(1 << 16):
            came += part
    except ConnectionError:
        pass
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        writer.close()
    if not came.startswith(b"HTTP/1.1 "):
        return 0, {}, came
    head, _, body = came.partition(b"\r\n\r\n")
    first, *rest = head.decode("latin-1").split("\r\n")
    headers = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in rest}
    if headers.get("transfer-encoding") == "chunked":
        body, whole = join_chunks(body)
        headers["cut"] = "" if whole else "off"
    return int(first.split(" ")[1]), headers, body


def join_chunks(chunks: bytes) -> tuple[bytes, bool]:
    """The contents of chunks, and whether the last one came."""
    body = b""
    while chunks:
        size, _, rest = chunks.partition(b"\r\n")
        if not int(size, 16):
            return body, True
        body += rest[: int(size, 16)]
        chunks = rest[int(size, 16) + 2 :]
    return body, False


def secured(port: int, text: bytes, context: ssl.SSLContext, before: ssl.SSLSession | None = None) -> Secured:
    """Send bytes by TLS, going on with a session of before if that is allowed."""
    plain = socket.create_connection(("127.0.0.1", port), 10)
    with context.wrap_socket(plain, server_hostname="127.0.0.1", session=before) as spoken:
        spoken.sendall(text)
        came = spoken.recv(1 << 16)
        protocol = spoken.selected_alpn_protocol()
        return Secured(int(came.split(b" ")[1]), protocol, spoken.session, bool(spoken.session_reused))


def own_address() -> str:
    """One of this host's that is not of loopback: another client for the gateway."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        # no packet is sent
        asking.connect(("192.0.2.1", 9))
        return str(asking.getsockname()[0])


class Stream:
    """A request whose answer is read as it comes."""

    def __init__(
        self,
        port: int,
        asked: Mapping[str, object],
        *headers: str,
        tls: ssl.SSLContext | None = None,
        path: str = "/v1/chat/completions",
    ) -> None:
        self.port = port
        self.tls = tls
        self.text = posting(json.dumps(asked).encode(), *headers, path=path)
        self.came = b""

    async def __aenter__(self) -> Stream:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self.tls)
        self.writer.write(self.text)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()

    async def _more(self) -> bool:
        try:
            part = await asyncio.wait_for(self.reader.read(1 << 16), 80)
        except ConnectionError:
            part = b""
        self.came += part
        return bool(part)

    async def until(self, words: bytes, times: int = 1) -> None:
        """Read until these have come, so many times."""
        while self.came.count(words) < times:
            assert await self._more(), f"it ended before {words!r}: {self.came!r}"

    async def end(self) -> None:
        """Read until nothing more comes."""
        while await self._more():
            pass

    async def whose(self) -> str:
        """Which engine answers."""
        await self.until(b" 1 ")
        return "one" if b'"one 1 ' in self.came else "two"

    @property
    def status(self) -> int:
        return int(self.came.split(b" ", 2)[1])

    @property
    def is_complete(self) -> bool:
        """Whether its end is there, and not only no more of it."""
        return self.came.endswith(b"0\r\n\r\n")
