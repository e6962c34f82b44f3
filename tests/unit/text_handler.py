"""Answers of stand-ins for servers, over TCP and unix sockets."""

import json
from http.server import BaseHTTPRequestHandler
from typing import Any


class TextHandler(BaseHTTPRequestHandler):
    """A handler that answers one text and logs nothing."""

    def send_text(self, status: int, text: str = "", kind: str = "") -> None:
        """Send an answer."""
        self.send_response(status)
        if kind:
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def read_body(self) -> bytes:
        """The request's body."""
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def read_json(self) -> Any:
        """The request's body in JSON."""
        return json.loads(self.read_body())

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def address_string(self) -> str:
        """The client of a unix socket has no address."""
        return "client"
