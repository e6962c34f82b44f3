"""A file server on a port or a unix socket that misbehaves as it is told, and remembers what it was asked."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import ThreadingUnixStreamServer

Answer = Callable[["Handler", int], None]
"""Answers a request for everything from a byte on; 0 where no range was asked for."""


@dataclass
class Asked:
    """One request."""

    path: str
    range: str | None = None
    method: str = "GET"
    authorization: str | None = None
    body: bytes = b""


@dataclass
class FileServer:
    """Paths and how they answer, request by request; the last answer stays."""

    url: str = ""
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)

    def serve(self, path: str, *answers: Answer) -> str:
        """Set a path's answers; returns its address."""
        self.answers[path] = list(answers)
        return f"{self.url}/{path}"


class Handler(BaseHTTPRequestHandler):
    """Hands each request to the answer that is set for it."""

    files: FileServer

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        path = self.path.lstrip("/")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.files.asked.append(Asked(path, asked, self.command, self.headers.get("Authorization"), body))
        answers = self.files.answers.get(path, [status(404)])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        answer(self, int(asked.removeprefix("bytes=").partition("-")[0]) if asked else 0)

    do_POST = do_HEAD = do_GET

    def send(self, body: bytes) -> None:
        """Send a body where one was asked for."""
        if self.command != "HEAD":
            self.wfile.write(body)

    def begin(self, code: int, length: int, *headers: tuple[str, str]) -> None:
        """Send status and headers."""
        self.send_response(code)
        for name, value in (("Content-Length", str(length)), *headers):
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def whole(content: bytes, *headers: tuple[str, str]) -> Answer:
    """As a good server answers: ranges too, and 416 past the end."""

    def answer(handler: Handler, start: int) -> None:
        size = len(content)
        if start and start >= size:
            handler.begin(416, 0, ("Content-Range", f"bytes */{size}"))
        elif start:
            handler.begin(206, size - start, ("Content-Range", f"bytes {start}-{size - 1}/{size}"), *headers)
        else:
            handler.begin(200, size, ("Accept-Ranges", "bytes"), *headers)
        handler.send(content[start:])

    return answer


def without_ranges(content: bytes) -> Answer:
    """Everything with 200, whatever range was asked for."""

    def answer(handler: Handler, start: int) -> None:
        handler.begin(200, len(content))
        handler.send(content)

    return answer


def cut(content: bytes, after: int, *headers: tuple[str, str]) -> Answer:
    """Promises everything and closes the connection after some bytes of the file."""

    def answer(handler: Handler, start: int) -> None:
        size = len(content)
        extra = [("Content-Range", f"bytes {start}-{size - 1}/{size}")] if start else []
        handler.begin(206 if start else 200, size - start, *extra, *headers)
        handler.wfile.write(content[start:after])
        handler.close_connection = True

    return answer


def slow(content: bytes, rate: int) -> Answer:
    """Sends so many bytes a second, ranges too."""

    def answer(handler: Handler, start: int) -> None:
        size = len(content)
        extra = [("Content-Range", f"bytes {start}-{size - 1}/{size}")] if start else []
        handler.begin(206 if start else 200, size - start, *extra)
        with suppress(OSError):  # the other end has given up
            for at in range(start, size, rate // 10):
                handler.wfile.write(content[at : at + rate // 10])
                time.sleep(0.1)

    return answer


def status(code: int) -> Answer:
    """An error."""
    return lambda handler, start: handler.begin(code, 0)


def redirect(to: str, body: bytes = b"") -> Answer:
    """Points to an address, or elsewhere on the same server."""

    def answer(handler: Handler, start: int) -> None:
        handler.begin(302, len(body), ("Location", to if "://" in to else f"/{to}"))
        handler.send(body)

    return answer


class OnSocket(ThreadingUnixStreamServer):
    """A server on a unix socket."""

    daemon_threads = True
    request_queue_size = 128  # engines take 2048 (uvicorn); of more, connect() fails at once


@contextmanager
def file_server(
    socket: Path | None = None, certificate: Path | None = None, address: str = "127.0.0.1"
) -> Iterator[FileServer]:
    """A server while the block runs, on a port of an address, with TLS where it has a certificate, or on a socket."""
    files = FileServer()
    bound = type("Bound", (Handler,), {"files": files})
    with OnSocket(str(socket), bound) if socket else ThreadingHTTPServer((address, 0), bound) as server:
        files.url = "http://localhost" if socket else f"http://{address}:{server.server_address[1]}"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
            files.url = files.url.replace("http:", "https:")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield files
        finally:
            server.shutdown()
            thread.join()
