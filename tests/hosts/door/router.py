"""A stand-in of the gateway's router: what it answers is short, and kept."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path

ID = "0123456789abcdef"
KEYS = {"Bearer rw-alice": f"X-Rw-Key: {ID}\r\nX-Rw-Name: alice\r\nX-Rw-Streams: 8\r\n"}


@dataclass
class Router:
    """It knows one key, and takes each model but `unknown` for the only one."""

    folder: Path
    keyed: set[str]
    """Listeners that need keys."""
    reached: list[str] = field(default_factory=list)
    """First line of each request."""
    servers: list[asyncio.AbstractServer] = field(default_factory=list)

    async def start(self) -> None:
        for name in ("light", "heavy"):
            path = self.folder / f"{name}.sock"
            path.unlink(missing_ok=True)
            self.servers.append(await asyncio.start_unix_server(self._serve, str(path), limit=1 << 27, backlog=4096))
            path.chmod(0o666)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                length = re.search(r"content-length: *(\d+)", head, re.I)
                body = await reader.readexactly(int(length[1])) if length else b""
                self.reached.append(head.partition("\r\n")[0])
                writer.write(self._answer(head, body))
                await writer.drain()
        except (OSError, EOFError):
            writer.close()

    def _answer(self, head: str, body: bytes) -> bytes:
        path = head.split(" ")[1]
        if path == "/auth":
            return self._authorize(head)
        if path.startswith("/route/"):
            return self._route(head, body)
        text = json.dumps({"path": path}).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text)

    def _authorize(self, head: str) -> bytes:
        listener = re.search(r"X-Rw-Listener: (\S+)", head)
        assert listener
        if listener[1] not in self.keyed:
            return b"HTTP/1.1 204 No Content\r\nX-Rw-Key: \r\nX-Rw-Name: \r\nX-Rw-Streams: \r\n\r\n"
        sent = re.search(r"\r\nAuthorization: ([^\r]*)", head)
        if sent and sent[1] == "Bearer rw-often":
            refusal = "HTTP/1.1 403 Forbidden\r\nX-Rw-Refusal: rate\r\nX-Rw-Retry: 17\r\nContent-Length: 0\r\n\r\n"
            return refusal.encode()
        if not sent or sent[1] not in KEYS:
            return b"HTTP/1.1 401 Unauthorized\r\nX-Rw-Refusal: key\r\nContent-Length: 0\r\n\r\n"
        return f"HTTP/1.1 204 No Content\r\n{KEYS[sent[1]]}\r\n".encode()

    def _route(self, head: str, body: bytes) -> bytes:
        found = re.search(rb'"model": *("[^"]*")', body)
        if not found or found[1] == b'"unknown"':
            text = json.dumps({"error": {"message": "no", "type": "invalid_request_error", "param": "model"}}).encode()
            return b"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
                len(text),
                text,
            )
        sticky = re.search(r"X-Session-Id: ([^\r]*)", head, re.I)
        lines = [
            "HTTP/1.1 204 No Content",
            "X-Accel-Redirect: @serve",
            "X-Rw-Group: tiny",
            f"X-Rw-Asked: {json.loads(found[1])}",
            f"X-Rw-Model: {found[1].decode()}",
            f"X-Rw-Span: {found.start(1)}-{found.end(1)}",
            f"X-Rw-Sticky: {hashlib.sha256(sticky[1].encode()).hexdigest() if sticky else ''}",
            "X-Rw-Stream: 1",
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()
