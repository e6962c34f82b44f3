"""A file server that dies in the middle of its first answer."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class HalfServer(ThreadingHTTPServer):
    """Sends half of the content and then nothing, until `go_on` is set; afterwards answers ranges like any server."""

    daemon_threads = True

    def __init__(self, address: str, content: bytes) -> None:
        super().__init__((address, 0), _Handler)
        self.content = content
        self.half_sent = threading.Event()
        self.go_on = threading.Event()
        self.ranges: list[str | None] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{self.server_address[0]}:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: HalfServer

    def do_GET(self) -> None:
        content, asked = self.server.content, self.headers.get("Range")
        self.server.ranges.append(asked)
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(content) - start))
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if not self.server.go_on.is_set():
            self.wfile.write(content[start : len(content) // 2])
            self.wfile.flush()
            self.server.half_sent.set()
            self.server.go_on.wait()
        else:
            self.wfile.write(content[start:])

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
