"""A file server on a port or a unix socket that misbehaves on order, and remembers its requests."""

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from socketserver import ThreadingUnixStreamServer

from tests.unit.text_handler import TextHandler

AnswerHandler = Callable[["FileServerHandler", int], None]
"""Answers a request for everything from a byte on; 0 where no range was asked for."""


@dataclass
class ServedRequest:
    """One request."""

    path: str
    range: str | None = None
    method: str = "GET"
    authorization: str | None = None
    body: bytes = b""


@dataclass
class LoopbackFileServer:
    """Paths and how they answer, request by request; the last answer stays."""

    url: str = ""
    answers: dict[str, list[AnswerHandler]] = field(default_factory=dict)
    asked: list[ServedRequest] = field(default_factory=list)

    def serve(self, path: str, *answers: AnswerHandler) -> str:
        """Set a path's answers; returns its address."""
        self.answers[path] = list(answers)
        return f"{self.url}/{path}"


class FileServerHandler(TextHandler):
    """Hands each request to the answer that is set for it."""

    files: LoopbackFileServer

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        path = self.path.lstrip("/")
        body = self.read_body()
        self.files.asked.append(ServedRequest(path, asked, self.command, self.headers.get("Authorization"), body))
        answers = self.files.answers.get(path, [error_status(404)])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        answer(self, int(asked.removeprefix("bytes=").partition("-")[0]) if asked else 0)

    do_POST = do_HEAD = do_GET

    def send_body(self, body: bytes) -> None:
        """Send a body where one was asked for."""
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_head(self, code: int, length: int, *headers: tuple[str, str]) -> None:
        """Send status and headers."""
        self.send_response(code)
        for name, value in (("Content-Length", str(length)), *headers):
            self.send_header(name, value)
        self.end_headers()


def complete_file(content: bytes, *headers: tuple[str, str]) -> AnswerHandler:
    """As a good server answers: ranges too, and 416 past the end."""

    def answer(handler: FileServerHandler, start: int) -> None:
        size = len(content)
        if start and start >= size:
            handler.send_head(416, 0, ("Content-Range", f"bytes */{size}"))
        elif start:
            handler.send_head(206, size - start, ("Content-Range", f"bytes {start}-{size - 1}/{size}"), *headers)
        else:
            handler.send_head(200, size, ("Accept-Ranges", "bytes"), *headers)
        handler.send_body(content[start:])

    return answer


def rangeless_file(content: bytes) -> AnswerHandler:
    """Everything with 200, whatever range was asked for."""

    def answer(handler: FileServerHandler, start: int) -> None:
        handler.send_head(200, len(content))
        handler.send_body(content)

    return answer


def truncated_file(content: bytes, after: int, *headers: tuple[str, str]) -> AnswerHandler:
    """Promises everything and closes the connection after some bytes of the file."""

    def answer(handler: FileServerHandler, start: int) -> None:
        size = len(content)
        extra = [("Content-Range", f"bytes {start}-{size - 1}/{size}")] if start else []
        handler.send_head(206 if start else 200, size - start, *extra, *headers)
        handler.wfile.write(content[start:after])
        handler.close_connection = True

    return answer


def slow_file(content: bytes, rate: int) -> AnswerHandler:
    """Sends so many bytes a second, ranges too."""

    def answer(handler: FileServerHandler, start: int) -> None:
        size = len(content)
        extra = [("Content-Range", f"bytes {start}-{size - 1}/{size}")] if start else []
        handler.send_head(206 if start else 200, size - start, *extra)
        with suppress(OSError):  # the other end has given up
            for at in range(start, size, rate // 10):
                handler.wfile.write(content[at : at + rate // 10])
                time.sleep(0.1)

    return answer


def error_status(code: int) -> AnswerHandler:
    """An error."""
    return lambda handler, start: handler.send_head(code, 0)


def redirect_to(to: str, body: bytes = b"") -> AnswerHandler:
    """Points to an address, or elsewhere on the same server."""

    def answer(handler: FileServerHandler, start: int) -> None:
        handler.send_head(302, len(body), ("Location", to if "://" in to else f"/{to}"))
        handler.send_body(body)

    return answer


class FileSocketServer(ThreadingUnixStreamServer):
    """A server on a unix socket."""

    daemon_threads = True
    request_queue_size = 128  # engines take 2048 (uvicorn); of more, connect() fails at once


@contextmanager
def run_file_server(
    socket: Path | None = None, certificate: Path | None = None, address: str = "127.0.0.1"
) -> Iterator[LoopbackFileServer]:
    """A server while the block runs, on a port of an address, with TLS where it has a certificate, or on a socket."""
    files = LoopbackFileServer()
    bound = type("Bound", (FileServerHandler,), {"files": files})
    with FileSocketServer(str(socket), bound) if socket else ThreadingHTTPServer((address, 0), bound) as server:
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
