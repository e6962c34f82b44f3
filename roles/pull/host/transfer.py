"""Downloads with bounds: bytes before they are parsed, and seconds for the whole answer."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from contextlib import suppress
from urllib.parse import quote, urlsplit

SILENCE_S = 10.0  # seconds without a byte
HEAD_S = 20.0  # seconds for connection and headers
LEAST_RATE = 32 << 10  # bytes a second, of the largest answer that is allowed
PIECE = 1 << 16


class TransferFailed(Exception):
    """A download that gave nothing."""


class PublishedFolder:
    """The web server's folder."""

    def __init__(self, url: str, certificates: str = "") -> None:
        """Take an address.

        Args:
            url: The folder.
            certificates: A file with further CA certificates; empty for the system's alone.
        """
        parts = urlsplit(url)
        self.host, self.port, self.folder = parts.hostname or "", parts.port, parts.path.rstrip("/")
        self.context = ssl.create_default_context() if parts.scheme == "https" else None
        if self.context and certificates:
            self.context.load_verify_locations(certificates)

    def _connect(self, watchdog: _Watchdog) -> http.client.HTTPConnection:
        """Connect; the watchdog has the socket from its first byte on, for http.client forgets it after the headers."""
        connection = http.client.HTTPConnection(self.host, self.port)
        if self.context:
            connection = http.client.HTTPSConnection(self.host, self.port, context=self.context)
        opened = socket.create_connection((self.host, connection.port), SILENCE_S)
        connection.sock = watchdog.socket = opened
        wrapped = None
        if self.context:
            wrapped = self.context.wrap_socket(opened, server_hostname=self.host, do_handshake_on_connect=False)
            connection.sock = watchdog.socket = wrapped
        if watchdog.is_over:  # it may have ended the socket that was wrapped
            raise TimeoutError
        if wrapped:
            wrapped.do_handshake()
        return connection

    def fetch(self, path: str, most: int, etag: str = "") -> tuple[bytes | None, str]:
        """Fetch a file; returns its bytes, None for unchanged ones, and its entity tag.

        Args:
            path: The file, below the folder.
            most: Bytes that it may have.
            etag: The entity tag of the bytes that are there.

        Raises:
            TransferFailed: any other answer, too many bytes, or too slow.
        """
        limit = HEAD_S + most / LEAST_RATE
        connection = None
        with _Watchdog(limit) as watchdog:
            try:
                connection = self._connect(watchdog)
                headers = {"If-None-Match": etag} if etag else {}
                connection.request("GET", f"{self.folder}/{quote(path)}", headers={**headers, "Connection": "close"})
                answer = connection.getresponse()
                if answer.status == 304 and etag:
                    return None, etag
                if answer.status != 200:
                    raise TransferFailed(f"{path}: the server answers {answer.status}")
                if (answer.length or 0) > most:
                    raise TransferFailed(f"{path}: {answer.length} bytes are announced, and at most {most} allowed")
                data = _read_body(answer, most, watchdog)
                if len(data) > most:
                    raise TransferFailed(f"{path}: more than {most} bytes")
                if answer.length:
                    raise TransferFailed(f"{path}: cut off after {len(data)} bytes")
                return data, (answer.getheader("ETag") or "")[:200]
            except (OSError, http.client.HTTPException, ValueError, TransferFailed) as error:
                if watchdog.is_over:
                    raise TransferFailed(f"{path}: not whole within {limit:.0f} s") from None
                if isinstance(error, TransferFailed):
                    raise
                raise TransferFailed(f"{path}: {type(error).__name__}: {str(error)[:200]}") from None
            finally:
                if connection:
                    connection.close()


class _Watchdog:
    """Ends a connection after a time."""

    def __init__(self, limit: float) -> None:
        self.socket: socket.socket | None = None
        self.end = time.monotonic() + limit
        self._timer = threading.Timer(limit, self._end_connection)

    def __enter__(self) -> _Watchdog:
        self._timer.start()
        return self

    def __exit__(self, *words: object) -> None:
        self._timer.cancel()
        if self.socket:
            self.socket.close()

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() >= self.end

    def _end_connection(self) -> None:
        if self.socket:
            with suppress(OSError):
                # TLS's own shutdown would change the state of the reader
                socket.socket.shutdown(self.socket, socket.SHUT_RDWR)


def _read_body(answer: http.client.HTTPResponse, most: int, watchdog: _Watchdog) -> bytes:
    """The body, at most about a piece more than allowed, as long as there is time."""
    data = bytearray()
    while len(data) <= most and not watchdog.is_over:
        piece = answer.read1(PIECE)
        if not piece:
            return bytes(data)
        data += piece
    if watchdog.is_over:
        raise TimeoutError
    return bytes(data)
