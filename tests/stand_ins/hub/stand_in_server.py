"""Common parts of stand-ins for servers: they count their requests and bytes, and are slow or fail on order."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from tests.stand_ins.hub.faults import Fault, FaultRule, FaultRules, RecordedRequest

ServerSelf = TypeVar("ServerSelf", bound="StandInServer")


class _TrackingServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.connections: set[socket.socket] = set()
        super().__init__(address, handler)

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Remember the connection: one that is kept alive must not outlive the server."""
        if isinstance(request, socket.socket):
            self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        """Forget it."""
        if isinstance(request, socket.socket):
            self.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients that hang up are part of every test."""


class StandInServer:
    """Servers of one stand-in, while the block runs or until `close`.

    Args:
        address: Of this machine, to listen on.
        handlers: The handlers, and the port of each; 0 for a free one.
        bytes_a_second: How fast all are together; None for as fast as they can.
        certificate: In PEM, with its key: then they speak TLS.
    """

    def __init__(
        self,
        address: str,
        handlers: Mapping[type[BaseHTTPRequestHandler], int],
        *,
        bytes_a_second: int | None = None,
        certificate: Path | None = None,
    ) -> None:
        self.bytes_a_second = bytes_a_second
        self.asked: list[RecordedRequest] = []
        self.sent_bytes = 0
        """Of files, over all servers; headers and descriptions are not counted."""
        self.rules = FaultRules()
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._free_at = 0.0
        self._servers = [
            _TrackingServer((address, port), type("Bound", (handler,), {"serving": self}))
            for handler, port in handlers.items()
        ]
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            for one in self._servers:
                # a client that stands still while it shakes hands must not keep the others out
                one.socket = context.wrap_socket(one.socket, server_side=True, do_handshake_on_connect=False)
        scheme = "https" if certificate else "http"
        self.urls = tuple(f"{scheme}://{address}:{one.server_address[1]}" for one in self._servers)
        self._threads = [
            threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
            for one in self._servers
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self: ServerSelf) -> ServerSelf:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all servers and every connection."""
        self.closing.set()
        self.rules.clear_rules()
        for server, thread in zip(self._servers, self._threads, strict=True):
            server.shutdown()
            thread.join()
            for connection in list(server.connections):
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:  # its own thread was faster
                    continue
            server.server_close()

    def add_fault(
        self, fault: Fault, repository: str | None = None, path: str | None = None, *, times: int | None = None
    ) -> Fault:
        """Let answers suffer from a fault: those of a file, a repository or, without names, all of its part.

        Args:
            fault: One of `tests.stand_ins.hub.faults`.
            repository: Its owner: a hub's repository, an index's project, a channel's folder.
            path: Of which file.
            times: So many suffer; all without it.
        """
        self.rules.add_rule(FaultRule(fault, repository, path, times))
        return fault

    def clear_faults(self) -> None:
        """End all faults, and every answer that stalls."""
        self.rules.clear_rules()

    def record_request(self, asked: RecordedRequest) -> None:
        """Remember a request."""
        with self._lock:
            self.asked.append(asked)

    def throttle_bytes(self, count: int) -> None:
        """Count bytes that go out, and wait until they may."""
        with self._lock:
            # before they go: a client that has them all finds them counted
            self.sent_bytes += count
            if not self.bytes_a_second:
                return
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + count / self.bytes_a_second
            wait = self._free_at - now
        self.closing.wait(wait)
