"""How a stand-in for a server sends files: whole or in part, with what goes wrong with them."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import BinaryIO

from tests.stand_ins.hub.faults import (
    ChangedContent,
    ConnectionCut,
    DamagedContent,
    EndlessAnswer,
    ErrorStatus,
    Fault,
    IgnoredRange,
    Part,
    RecordedRequest,
    StalledAnswer,
    WrongLength,
)
from tests.stand_ins.hub.repositories import PART, StoredFile, open_content, read_range
from tests.stand_ins.hub.stand_in_server import StandInServer

# of a rate, so that a slow server sends evenly
PARTS_PER_SECOND = 20


class FileRequestHandler(BaseHTTPRequestHandler):
    """One connection."""

    serving: StandInServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        bearer = self.headers.get("Authorization", "")
        self.serving.record_request(RecordedRequest(self.command, self.path, self.headers.get("Range"), bool(bearer)))
        self.answer_request()

    do_HEAD = do_GET

    def answer_request(self) -> None:
        """Answer what is asked for."""
        raise NotImplementedError

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def matching_faults(self, part: Part, name: str, path: str | None = None) -> list[Fault]:
        """The faults of this answer; they are counted."""
        faults = self.serving.rules.matching_faults(part, name, path)
        for fault in faults:
            if not isinstance(fault, (ConnectionCut, StalledAnswer)):
                fault.met.set()
        return faults

    def send_error_fault(self, faults: list[Fault]) -> bool:
        """Whether an error was the answer."""
        for fault in faults:
            if isinstance(fault, ErrorStatus):
                self.send_hub_error(fault.code, "", "as it was told", fault.headers)
                return True
        return False

    def send_stored_file(self, name: str, path: str, stored: StoredFile, said: dict[str, str]) -> None:
        """A file, or the part that is asked for, with what goes wrong with it."""
        # looking at a file is no answer that could break off: only what sends bytes uses a fault up
        faults = self.matching_faults("file", name, path) if self.command == "GET" else []
        if self.send_error_fault(faults):
            return
        content, tag, size, by = stored.content, stored.etag, stored.size, 0
        for fault in faults:
            if isinstance(fault, ChangedContent):
                other = replace(StoredFile.from_content(path, fault.content, 0), lfs=stored.lfs)
                content, tag, size = other.content, other.etag, other.size
            elif isinstance(fault, DamagedContent):
                content = fault.damage(read_range(content, 0, size))
                size = len(content)
            elif isinstance(fault, WrongLength):
                by = fault.by
            elif isinstance(fault, EndlessAnswer):
                self._send_endless(content)
                return
        said = {**said, "ETag": tag, "Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"}
        start, end = 0, size
        code = 200
        if not any(isinstance(fault, IgnoredRange) for fault in faults) and (asked := self._parse_range(size, tag)):
            start, end = asked
            if start >= end:
                self.send_head(416, 0, {**said, "Content-Range": f"bytes */{size}"})
                return
            code, said["Content-Range"] = 206, f"bytes {start}-{end - 1}/{size}"
        self.send_head(code, end - start + by, said)
        if self.command == "GET":
            self._send_content(content, start, end, faults)
        if by:
            self.close_connection = True

    def _send_endless(self, content: bytes | Path) -> None:
        """The file, and then more, until the client hangs up."""
        self.close_connection = True
        self.send_response(200)
        self.end_headers()
        with suppress(OSError), open_content(content) as file:
            self.connection.sendfile(file)
            while not self.serving.closing.is_set():
                self.serving.throttle_bytes(PART)
                self.connection.sendall(bytes(PART))

    def _parse_range(self, size: int, tag: str) -> tuple[int, int] | None:
        """The first byte that is asked for and the one after the last; None for everything."""
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if not asked or asked[0] == "bytes=-" or self.headers.get("If-Range", tag) != tag:
            return None
        if not asked[1]:
            return max(size - int(asked[2]), 0), size
        return int(asked[1]), min(int(asked[2]) + 1, size) if asked[2] else size

    def _send_content(self, content: bytes | Path, start: int, end: int, faults: list[Fault]) -> None:
        breaks = sorted(
            (fault for fault in faults if isinstance(fault, (ConnectionCut, StalledAnswer))),
            key=lambda fault: (fault.after, str(fault)),
        )
        with open_content(content) as file:
            self._send_parts(file, start, end, breaks)

    def _send_parts(self, file: BinaryIO, start: int, end: int, breaks: list[ConnectionCut | StalledAnswer]) -> None:
        at, rate = start, self.serving.bytes_a_second
        for fault in [*breaks, None]:
            stop = min(start + fault.after, end) if fault else end
            while at < stop and not self.serving.closing.is_set():
                count = min(PART, stop - at, max(rate // PARTS_PER_SECOND, 1) if rate else PART)
                self.serving.throttle_bytes(count)
                # by the kernel, past Python: a real hub's servers do not share one interpreter
                at += self.connection.sendfile(file, at, count)
            if fault and stop < end:
                fault.met.set()
                if isinstance(fault, ConnectionCut):
                    self.close_connection = True
                    return
                fault.released.wait()
                if fault.dropped:
                    self.close_connection = True
                    return

    def send_hub_error(self, code: int, error: str, text: str, more: dict[str, str] | None = None) -> None:
        """Say what is wrong, as a hub does."""
        said = {**(more or {}), "X-Error-Message": text, **({"X-Error-Code": error} if error else {})}
        body = json.dumps({"error": text}).encode()
        self.send_head(code, len(body), {**said, "Content-Type": "application/json"})
        if self.command == "GET":
            self.wfile.write(body)

    def send_text(self, body: bytes, kind: str) -> None:
        """A text of that media type."""
        self.send_head(200, len(body), {"Content-Type": kind})
        if self.command == "GET":
            self.wfile.write(body)

    def send_head(self, code: int, length: int, headers: dict[str, str]) -> None:
        """Status and headers, before so many bytes."""
        self.send_response(code)
        for key, value in {**headers, "Content-Length": str(length)}.items():
            self.send_header(key, value)
        self.end_headers()
