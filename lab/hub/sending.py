"""How a stand-in for a server sends files: whole or in part, with what goes wrong with them."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import BinaryIO

from lab.hub.faults import Asked, Changed, Cut, Damaged, Endless, Fault, IgnoreRange, Length, Part, Stall, Status
from lab.hub.serving import Serving
from lab.hub.stored import PART, Stored, opened, read

# of a rate, so that a slow server sends evenly
STEPS = 20


class Sending(BaseHTTPRequestHandler):
    """One connection."""

    serving: Serving
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:  # noqa: D102 - http.server's name
        bearer = self.headers.get("Authorization", "")
        self.serving.note(Asked(self.command, self.path, self.headers.get("Range"), bool(bearer)))
        self.answer()

    do_HEAD = do_GET

    def answer(self) -> None:
        """Answer what is asked for."""
        raise NotImplementedError

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def suffers(self, part: Part, name: str, path: str | None = None) -> list[Fault]:
        """What goes wrong with this answer; it is counted."""
        faults = self.serving.rules.of(part, name, path)
        for fault in faults:
            if not isinstance(fault, (Cut, Stall)):
                fault.met.set()
        return faults

    def failed(self, faults: list[Fault]) -> bool:
        """Whether an error was the answer."""
        for fault in faults:
            if isinstance(fault, Status):
                self.refuse(fault.code, "", "as it was told", fault.headers)
                return True
        return False

    def send(self, name: str, path: str, stored: Stored, said: dict[str, str]) -> None:
        """A file, or the part that is asked for, with what goes wrong with it."""
        # looking at a file is no answer that could break off: only what sends bytes uses a fault up
        faults = self.suffers("file", name, path) if self.command == "GET" else []
        if self.failed(faults):
            return
        content, tag, size, by = stored.content, stored.tag, stored.size, 0
        for fault in faults:
            if isinstance(fault, Changed):
                other = replace(Stored.of(path, fault.content, 0), lfs=stored.lfs)
                content, tag, size = other.content, other.tag, other.size
            elif isinstance(fault, Damaged):
                content = fault.damage(read(content, 0, size))
                size = len(content)
            elif isinstance(fault, Length):
                by = fault.by
            elif isinstance(fault, Endless):
                self._for_ever(content)
                return
        said = {**said, "ETag": tag, "Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"}
        start, end = 0, size
        code = 200
        if not any(isinstance(fault, IgnoreRange) for fault in faults) and (asked := self._range(size, tag)):
            start, end = asked
            if start >= end:
                self.begin(416, 0, {**said, "Content-Range": f"bytes */{size}"})
                return
            code, said["Content-Range"] = 206, f"bytes {start}-{end - 1}/{size}"
        self.begin(code, end - start + by, said)
        if self.command == "GET":
            self._stream(content, start, end, faults)
        if by:
            self.close_connection = True

    def _for_ever(self, content: bytes | Path) -> None:
        """The file, and then more, until who asked hangs up."""
        self.close_connection = True
        self.send_response(200)
        self.end_headers()
        with suppress(OSError), opened(content) as file:
            self.connection.sendfile(file)
            while not self.serving.closing.is_set():
                self.serving.pace(PART)
                self.connection.sendall(bytes(PART))

    def _range(self, size: int, tag: str) -> tuple[int, int] | None:
        """The first byte that is asked for and the one after the last; None for everything."""
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if not asked or asked[0] == "bytes=-" or self.headers.get("If-Range", tag) != tag:
            return None
        if not asked[1]:
            return max(size - int(asked[2]), 0), size
        return int(asked[1]), min(int(asked[2]) + 1, size) if asked[2] else size

    def _stream(self, content: bytes | Path, start: int, end: int, faults: list[Fault]) -> None:
        breaks = sorted(
            (fault for fault in faults if isinstance(fault, (Cut, Stall))), key=lambda fault: (fault.after, str(fault))
        )
        with opened(content) as file:
            self._in_parts(file, start, end, breaks)

    def _in_parts(self, file: BinaryIO, start: int, end: int, breaks: list[Cut | Stall]) -> None:
        at, rate = start, self.serving.bytes_a_second
        for fault in [*breaks, None]:
            stop = min(start + fault.after, end) if fault else end
            while at < stop and not self.serving.closing.is_set():
                count = min(PART, stop - at, max(rate // STEPS, 1) if rate else PART)
                self.serving.pace(count)
                # by the kernel, past Python: a real hub's servers do not share one interpreter
                at += self.connection.sendfile(file, at, count)
            if fault and stop < end:
                fault.met.set()
                if isinstance(fault, Cut):
                    self.close_connection = True
                    return
                fault.released.wait()
                if fault.dropped:
                    self.close_connection = True
                    return

    def refuse(self, code: int, error: str, text: str, more: dict[str, str] | None = None) -> None:
        """Say what is wrong, as a hub does."""
        said = {**(more or {}), "X-Error-Message": text, **({"X-Error-Code": error} if error else {})}
        body = json.dumps({"error": text}).encode()
        self.begin(code, len(body), {**said, "Content-Type": "application/json"})
        if self.command == "GET":
            self.wfile.write(body)

    def say(self, body: bytes, kind: str) -> None:
        """A text of that media type."""
        self.begin(200, len(body), {"Content-Type": kind})
        if self.command == "GET":
            self.wfile.write(body)

    def begin(self, code: int, length: int, headers: dict[str, str]) -> None:
        """Status and headers, before so many bytes."""
        self.send_response(code)
        for key, value in {**headers, "Content-Length": str(length)}.items():
            self.send_header(key, value)
        self.end_headers()
