"""A hub of models on this machine: it speaks the hub's protocol to the hub's own client, and fails as it is told.

    with Hub() as hub:
        commit = hub.repository("org/name", {"model.gguf": b"...", "config.json": b"{}"}, licence="mit")
        hub.fault(Cut(100), "org/name", "model.gguf", times=1)
        HfApi(endpoint=hub.url).model_info("org/name", files_metadata=True)

Small files come from the hub itself. Large ones come, as on the hub, from a second server at another port: the hub
leads there by a signed address that runs out.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import TracebackType

from lab.hub.answers import Handler
from lab.hub.faults import Fault, Rule, Rules
from lab.hub.stored import Repository, Stored


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    """With its query; of the second server it begins with /cdn/."""
    range: str | None
    authorised: bool
    """Whether it came with a token."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[Handler]) -> None:
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


class Hub:
    """Both servers while the block runs, or until `close`.

    Args:
        address: Of this machine, to listen on.
        port: The hub's; 0 for a free one.
        lfs_above: Bytes above which every file is a large one.
        bytes_a_second: How fast both servers are together; None for as fast as they can.
        lasts: Seconds until a signed address runs out.
        certificate: In PEM, with its key: then both servers speak TLS.
    """

    def __init__(
        self,
        address: str = "127.0.0.1",
        port: int = 0,
        *,
        lfs_above: int = 10_000,
        bytes_a_second: int | None = None,
        lasts: float = 3600,
        certificate: Path | None = None,
    ) -> None:
        self.lfs_above = lfs_above
        self.bytes_a_second = bytes_a_second
        self.lasts = lasts
        self.repositories: dict[str, Repository] = {}
        self.revoked: set[str] = set()
        """Tokens that are nobody's; all others are somebody's, who may not have been let in."""
        self.asked: list[Asked] = []
        self.sent_bytes = 0
        """Of files, over both servers; headers and descriptions are not counted."""
        self.rules = Rules()
        self.closing = threading.Event()
        self._lock = threading.Lock()
        self._free_at = 0.0
        self._secret = b"a lab's"
        bound = type("Bound", (Handler,), {"hub": self})
        self._servers = [_Server((address, port), bound), _Server((address, 0), type("Cdn", (bound,), {"cdn": True}))]
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            for one in self._servers:
                # a client that stands still while it shakes hands must not keep the others out
                one.socket = context.wrap_socket(one.socket, server_side=True, do_handshake_on_connect=False)
        scheme = "https" if certificate else "http"
        self.url, self.cdn_url = (f"{scheme}://{address}:{one.server_address[1]}" for one in self._servers)
        self._threads = [
            threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
            for one in self._servers
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Hub:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End both servers and every connection."""
        self.closing.set()
        self.rules.clear()
        for server, thread in zip(self._servers, self._threads, strict=True):
            server.shutdown()
            thread.join()
            for connection in list(server.connections):
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:  # its own thread was faster
                    continue
            server.server_close()

    def repository(
        self,
        name: str,
        files: Mapping[str, bytes | Path],
        *,
        branch: str = "main",
        gated: str | bool = False,
        private: bool = False,
        licence: str | None = None,
        token: str | None = None,
    ) -> str:
        """Make a repository, or a new commit of one; returns the commit.

        Args:
            name: `org/name`.
            files: All of the commit's, by path; paths are listed as they are.
            branch: Or tag, that stands for this commit from now on.
            gated: `auto` or `manual` (True) where only who was let in may have the files.
            private: Whether only who was let in sees that it is there.
            licence: As the model card says it.
            token: Who was let in.
        """
        known = self.repositories.setdefault(name, Repository(name))
        known.gated = "manual" if gated is True else gated
        known.private, known.licence, known.token = private, licence, token
        return known.commit({path: Stored.of(path, one, self.lfs_above) for path, one in files.items()}, branch)

    def gone(self, name: str) -> None:
        """Take a repository away."""
        del self.repositories[name]

    def fault(
        self,
        fault: Fault,
        repository: str | None = None,
        path: str | None = None,
        *,
        skip: int = 0,
        times: int | None = None,
    ) -> Fault:
        """Let answers suffer from a fault: those of a file, a repository or, without names, all of its part.

        Args:
            fault: One of `lab.hub.faults`.
            repository: Whose.
            path: Of which file.
            skip: So many answers are right first.
            times: So many suffer then; all without it.
        """
        self.rules.add(Rule(fault, repository, path, skip, times))
        return fault

    def heal(self) -> None:
        """End all faults, and every answer that stalls."""
        self.rules.clear()

    def note(self, asked: Asked) -> None:
        """Remember a request."""
        with self._lock:
            self.asked.append(asked)

    def pace(self, count: int) -> None:
        """Count bytes that go out, and wait until they may."""
        with self._lock:
            # before they go: who has them all finds them counted
            self.sent_bytes += count
            if not self.bytes_a_second:
                return
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + count / self.bytes_a_second
            wait = self._free_at - now
        self.closing.wait(wait)

    def sign(self, path: str, expires: int) -> str:
        """The signature of an address of the second server that runs out then (seconds since 1970)."""
        return hmac.new(self._secret, f"{path} {expires}".encode(), hashlib.sha256).hexdigest()
