"""The least rate of an answer: a server that sends a byte now and then keeps no command waiting.

Python's HTTP client reads until it has as many bytes as are to be had, so a caller notices a slow answer too late: the
rate is measured where bytes come from the socket, those of headers too.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from http.client import HTTPResponse
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection

from roles.weights.host.spec import TransferLimits

# as on hosts, of a source without another one
MIN_BYTES_PER_SECOND = TransferLimits.least
STRETCH_SECONDS = TransferLimits.longest


class TooSlow(TimeoutError):
    """An answer came with less than LEAST bytes a second for SECONDS."""


class AnswerThroughput:
    """The throughput of one answer, measured over stretches of SECONDS; only time waiting for the server counts."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing came yet."""
        self._clock = clock
        self._waited, self._count = 0.0, 0
        self._began = 0.0

    def start_waiting(self) -> None:
        """Bytes are waited for from now on."""
        self._began = self._clock()

    def add_bytes(self, count: int) -> None:
        """So many bytes came, 0 at the end.

        Raises:
            TooSlow: they are too few.
        """
        self._waited += self._clock() - self._began
        self._count += count
        enough = self._count >= MIN_BYTES_PER_SECOND * STRETCH_SECONDS
        if self._waited >= STRETCH_SECONDS and not enough and count:
            raise TooSlow(f"slower than {MIN_BYTES_PER_SECOND / 1024:.0f} KiB/s for {STRETCH_SECONDS} s")
        if enough:
            self._waited, self._count = 0.0, 0


class _MeasuredReader(io.RawIOBase):
    """A reader of a socket."""

    def __init__(self, raw: io.RawIOBase) -> None:
        self.raw, self.throughput = raw, AnswerThroughput()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self.throughput.start_waiting()
        count: int | None = self.raw.readinto(buffer)
        self.throughput.add_bytes(count or 0)
        return count

    def close(self) -> None:
        self.raw.close()
        super().close()


class _Response(HTTPResponse):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.fp = io.BufferedReader(_MeasuredReader(self.fp.detach()))


class _Connection(HTTPConnection):
    response_class = _Response


class _SecureConnection(HTTPSConnection):
    response_class = _Response


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


class MeasuringAdapter(HTTPAdapter):
    """Connections that end with a time-out where an answer is slower than the least rate, through a proxy too."""

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        """Make the connections."""
        super().init_poolmanager(*arguments, **options)
        _use_measured_pools(self.poolmanager)

    def proxy_manager_for(self, *arguments: Any, **options: Any) -> Any:
        """Those to a proxy."""
        made = super().proxy_manager_for(*arguments, **options)
        _use_measured_pools(made)
        return made


def _use_measured_pools(manager: PoolManager) -> None:
    manager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}
