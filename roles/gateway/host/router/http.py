"""HTTP/1.1 as one trusted neighbour speaks it, nginx: what it would not send is refused, and everything is bounded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

MOST_HEAD = 64 << 10
"""Bytes of a request's line and headers: nginx takes 32 KiB of a client unless told otherwise, and adds its own."""
MOST_HEADERS = 200
MOST_CHUNK_LINE = 64

_LINE = re.compile(rb"([A-Z]{1,16}) (/[\x21-\x7e]*) HTTP/1\.([01])")
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_LENGTH = re.compile(r"[0-9]{1,15}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})")
_SAFE = re.compile(r"[\x20-\x7e]*")

REASONS = {
    200: "OK",
    204: "No Content",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Malformed(Exception):
    """What came is no request; the connection is of no more use."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True)
class Request:
    """One request."""

    method: str
    target: str
    """Path and query, as they came: printable ASCII."""
    headers: Mapping[str, tuple[str, ...]]
    """By name in lower case."""
    body: bytes | bytearray = b""
    keeps: bool = True
    """Whether the connection is used again."""

    def header(self, name: str) -> str | None:
        """A header's value.

        Args:
            name: in lower case.

        Raises:
            Malformed: it came twice, which two readers may understand in two ways.
        """
        values = self.headers.get(name, ())
        if len(values) > 1:
            raise Malformed(400, f"the header {name} came more than once")
        return values[0] if values else None


@dataclass(frozen=True)
class Answer:
    """One answer."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def encoded(self, *, keeps: bool = True, bare: bool = False) -> bytes:
        """The bytes to send.

        Args:
            keeps: whether the connection stays open.
            bare: without the body: what was asked is how the answer would look.

        Raises:
            ValueError: a header holds more than printable ASCII.
        """
        lines = [f"HTTP/1.1 {self.status} {REASONS[self.status]}"]
        for name, value in self.headers:
            if not _SAFE.fullmatch(value):
                raise ValueError(f"{name} is not printable")
            lines.append(f"{name}: {value}")
        if self.status != 204:
            lines.append(f"Content-Length: {len(self.body)}")
        if not keeps:
            lines.append("Connection: close")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii") + (b"" if bare else self.body)


@dataclass
class Reader:
    """Makes requests from the bytes of one connection."""

    most: int
    """Bytes of a body."""
    buffer: bytearray = field(default_factory=bytearray)
    head: Request | None = None
    """Of the request whose body is awaited."""
    length: int | None = None
    """Bytes of that body; None: it comes in chunks."""
    chunks: bytearray = field(default_factory=bytearray)
    left: int = -1
    """Bytes that are missing of a chunk, its line's end included; -1: between two."""

    def add(self, data: bytes) -> None:
        """Take what came."""
        self.buffer += data

    @property
    def within(self) -> bool:
        """Whether a part of a request is there."""
        return self.head is not None or bool(self.buffer)

    def begin(self) -> int | None:
        """How many bytes the body of the request may have whose head is there; None: it is not there yet.

        Raises:
            Malformed: what is there is no head, or its body would be too large.
        """
        if self.head is None:
            end = self.buffer.find(b"\r\n\r\n", 0, MOST_HEAD + 4)
            if end < 0:
                if len(self.buffer) > MOST_HEAD:
                    raise Malformed(431, f"the headers take more than {MOST_HEAD} bytes")
                return None
            self.head = _head(bytes(self.buffer[:end]))
            del self.buffer[: end + 4]
            self.length = _length(self.head)
            if self.length is not None and self.length > self.most:
                raise Malformed(413, f"the body is larger than {self.most} bytes")
        return self.most if self.length is None else self.length

    def finish(self) -> Request | None:
        """The request that was begun; None: its body is not whole yet.

        Raises:
            Malformed: the chunks of its body are none, or too large together.
        """
        if self.head is None:
            return None
        if self.length is None:
            if not self._unchunked():
                return None
            body, self.chunks = self.chunks, bytearray()
        elif len(self.buffer) < self.length:
            return None
        elif len(self.buffer) == self.length:
            # a large body is not copied
            body, self.buffer = self.buffer, bytearray()
        else:
            body = self.buffer[: self.length]
            del self.buffer[: self.length]
        head, self.head = self.head, None
        return Request(head.method, head.target, head.headers, body, head.keeps)

    def _unchunked(self) -> bool:
        """Take all chunks that are there; whether the last one was."""
        at = 0
        try:
            while True:
                if self.left < 0:
                    end = self.buffer.find(b"\r\n", at, at + MOST_CHUNK_LINE)
                    if end < 0:
                        if len(self.buffer) - at >= MOST_CHUNK_LINE:
                            raise Malformed(400, "a chunk's length is missing")
                        return False
                    found = _CHUNK.fullmatch(self.buffer, at, end)
                    if found is None:
                        raise Malformed(400, "a chunk's length is not a number")
                    size = int(found[1], 16)
                    if len(self.chunks) + size > self.most:
                        raise Malformed(413, f"the body is larger than {self.most} bytes")
                    if not size:
                        # the empty line that ends the last chunk; trailers are refused
                        if len(self.buffer) < end + 4:
                            return False
                        if self.buffer[end + 2 : end + 4] != b"\r\n":
                            raise Malformed(400, "trailers follow the body")
                        at = end + 4
                        return True
                    self.left = size + 2
                    at = end + 2
                part = self.buffer[at : at + self.left]
                at += len(part)
                self.left -= len(part)
                # the last two bytes are the line's end, of which one may be here and one not
                self.chunks += part
                if self.left:
                    return False
                if self.chunks[-2:] != b"\r\n":
                    raise Malformed(400, "a chunk has not the length that it says")
                del self.chunks[-2:]
                self.left = -1
        finally:
            del self.buffer[:at]


def _head(head: bytes) -> Request:
    first, *rest = head.split(b"\r\n")
    line = _LINE.fullmatch(first)
    if line is None:
        raise Malformed(400, "the first line is not an HTTP/1 request")
    if len(rest) > MOST_HEADERS:
        raise Malformed(431, f"there are more than {MOST_HEADERS} headers")
    headers: dict[str, tuple[str, ...]] = {}
    for one in rest:
        name, colon, value = one.partition(b":")
        if not colon or not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise Malformed(400, "a line is not a header")
        key = name.decode("ascii").lower()
        headers[key] = (*headers.get(key, ()), value.decode("latin-1").strip(" \t"))
    request = Request(line[1].decode("ascii"), line[2].decode("ascii"), headers)
    said = (request.header("connection") or "").lower()
    keeps = said == "keep-alive" if line[3] == b"0" else said != "close"
    return Request(request.method, request.target, headers, b"", keeps)


def _length(head: Request) -> int | None:
    """Bytes of the body that follows; None: it comes in chunks."""
    coding, length = head.header("transfer-encoding"), head.header("content-length")
    if coding is not None:
        if coding.lower() != "chunked" or length is not None:
            raise Malformed(400, "how long the body is, is said in no way or in two")
        return None
    if length is None:
        return 0
    if not _LENGTH.fullmatch(length):
        raise Malformed(400, "the body's length is not a number")
    return int(length)
