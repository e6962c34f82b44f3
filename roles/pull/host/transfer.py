"""Downloads with bounds: bytes before they are parsed, and seconds for the whole answer."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from urllib.parse import quote, urlsplit

SILENCE_S = 10.0  # seconds without a byte
HEAD_S = 20.0  # seconds for connection and headers
LEAST_RATE = 32 << 10  # bytes a second, of the largest answer that is allowed


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

    def _connect(self) -> http.client.HTTPConnection:
        if self.context:
            return http.client.HTTPSConnection(self.host, self.port, timeout=SILENCE_S, context=self.context)
        return http.client.HTTPConnection(self.host, self.port, timeout=SILENCE_S)

    def fetch(self, path: str, most: int, etag: str = "") -> tuple[bytes | None, str]:
        """Fetch a file; returns its bytes, None for unchanged ones, and its entity tag.

        Args:
            path: The file, below the folder.
            most: Bytes that it may have.
            etag: The entity tag of the bytes that are there.

        Raises:
            TransferFailed: any other answer, too many bytes, or too slow.
        """
        connection = self._connect()
        limit = HEAD_S + most / LEAST_RATE
        watchdog = threading.Timer(limit, _end_connection, [connection])
        watchdog.start()
        try:
            headers = {"If-None-Match": etag} if etag else {}
            connection.request("GET", f"{self.folder}/{quote(path)}", headers={**headers, "Connection": "close"})
            answer = connection.getresponse()
            if answer.status == 304 and etag:
                return None, etag
            if answer.status != 200:
                raise TransferFailed(f"{path}: the server answers {answer.status}")
            if (answer.length or 0) > most:
                raise TransferFailed(f"{path}: {answer.length} bytes are announced, and at most {most} allowed")
            data = answer.read(most + 1)
            if len(data) > most:
                raise TransferFailed(f"{path}: more than {most} bytes")
            if answer.length:
                raise TransferFailed(f"{path}: cut off after {len(data)} bytes")
            return data, (answer.getheader("ETag") or "")[:200]
        except (OSError, http.client.HTTPException, ValueError) as error:
            if not watchdog.is_alive():
                raise TransferFailed(f"{path}: not whole within {limit:.0f} s") from None
            raise TransferFailed(f"{path}: {type(error).__name__}: {str(error)[:200]}") from None
        finally:
            watchdog.cancel()
            connection.close()


def _end_connection(connection: http.client.HTTPConnection) -> None:
    if connection.sock:
        try:
            connection.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            connection.sock.close()
