"""HTTP requests to any server: the answer is bounded, and never run or trusted."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import socket
import time
from collections.abc import Callable
from typing import Any

NOBODY = 65534
HEAD = 64 << 10  # bytes of an answer's lines before its body
LATE = "no answer in time"
STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})[ \r\n]")


class NoUsableAnswer(Exception):
    """Nothing came that can be used."""


class BoundedStream:
    """The data of a connection, for as long as it is waited for."""

    def __init__(self, connection: socket.socket, until: float) -> None:
        self.connection, self.until, self.kept = connection, until, b""

    def more(self) -> bool:
        """Wait for some more; False at its end."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise NoUsableAnswer(LATE)
        self.connection.settimeout(left)
        piece = self.connection.recv(1 << 16)
        self.kept += piece
        return bool(piece)

    def line(self) -> bytes:
        """The next line, without its end."""
        while b"\n" not in self.kept:
            if len(self.kept) > HEAD or not self.more():
                raise NoUsableAnswer("an answer that breaks off" if self.kept else "no answer")
        line, _, self.kept = self.kept.partition(b"\n")
        return line.rstrip(b"\r")

    def take(self, most: int) -> bytes:
        """So many bytes, fewer at its end."""
        while len(self.kept) < most and self.more():
            pass
        taken, self.kept = self.kept[:most], self.kept[most:]
        return taken


def body(stream: BoundedStream, headers: dict[str, str], most: int) -> bytes:
    """The body after the headers, at most so many bytes of it."""
    if headers.get("transfer-encoding", "").lower() != "chunked":
        length = headers.get("content-length", "")
        return stream.take(min(most, int(length)) if length.isdecimal() and len(length) < 19 else most)
    found = b""
    while len(found) < most:
        size = stream.line().partition(b";")[0].strip()
        if not re.fullmatch(rb"[0-9A-Fa-f]{1,8}", size) or not int(size, 16):
            break
        found += stream.take(min(int(size, 16), most - len(found)))
        if len(found) < most:
            stream.line()
    return found


def opened(ask: dict[str, Any], until: float) -> tuple[socket.socket, str]:
    """A connection, and with TLS the certificate that is shown, in base64."""
    at = ask["at"]
    address, _, port = at.rpartition(":")
    address = address.strip("[]")
    family = socket.AF_UNIX if at.startswith("/") else socket.AF_INET6 if ":" in address else socket.AF_INET
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.settimeout(ask["connect"])
        if ask["source"]:
            connection.bind((ask["source"], 0))
        connection.connect(at if family == socket.AF_UNIX else (address, int(port)))
        connection.settimeout(max(0.01, until - time.monotonic()))
        if not ask["tls"]:
            return connection, ""
        import ssl  # takes its time, and few need it

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        spoken = context.wrap_socket(connection)
        return spoken, base64.b64encode(spoken.getpeercert(True) or b"").decode()
    except BaseException:
        connection.close()
        raise


def answer(ask: dict[str, Any], key: str) -> dict[str, object]:
    """The answer to one request."""
    until = time.monotonic() + ask["limit"]
    found: dict[str, object] = {"status": 0, "body": "", "sha256": "", "headers": {}, "certificate": "", "error": ""}
    try:
        connection, found["certificate"] = opened(ask, until)
        with connection:
            host = "localhost" if ask["at"].startswith("/") else ask["at"]
            lines = [f"{ask['method']} {ask['path']} HTTP/1.1", f"Host: {host}", "Connection: close"]
            lines += [*ask["headers"], *([f"Authorization: Bearer {key}"] if key else [])]
            sent = ask["body"].encode()
            if sent:
                lines += ["Content-Type: application/json", f"Content-Length: {len(sent)}"]
            with contextlib.suppress(ConnectionError):  # a server that refuses may do so before all is sent
                connection.sendall("".join(f"{line}\r\n" for line in [*lines, ""]).encode() + sent)
            stream = BoundedStream(connection, until)
            status = None
            while status is None or status[1].startswith(b"1"):
                status = STATUS.match(stream.line() + b"\n")
                if status is None:
                    raise NoUsableAnswer("an answer that is not HTTP")
                headers: dict[str, str] = {}
                while line := stream.line():
                    name, _, value = line.decode("latin-1").partition(":")
                    headers[name.strip().lower()] = value.strip()
                    if len(headers) > 200:
                        raise NoUsableAnswer("an answer without end")
            found["headers"] = {name: headers[name] for name in ask["told"] if name in headers}
            content = body(stream, headers, ask["most"])
            found["sha256"] = hashlib.sha256(content).hexdigest()
            found["body"] = content[: ask["shown"]].decode(errors="replace")
            found["status"] = int(status[1])
    except NoUsableAnswer as error:
        found["error"] = str(error)
    except TimeoutError:
        found["error"] = LATE
    except (OSError, ValueError) as error:
        found["error"] = str(getattr(error, "strerror", "") or error or type(error).__name__)
    return found


def apart(group: int, work: Callable[[int], None]) -> tuple[int, int]:
    """Begin some work in a process of user `nobody`, with one group; returns it and where its answer comes from.

    Args:
        group: The group's id.
        work: Is given where its answer goes to.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    try:
        os.close(reading)
        os.setgroups([])
        os.setresgid(group, group, group)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        work(writing)
    finally:
        os._exit(0)


def write(to: int, value: object) -> None:
    """Write a value as a line of JSON."""
    left = memoryview(json.dumps(value).encode() + b"\n")
    while left:
        left = left[os.write(to, left) :]
