"""A shell of this machine in place of a host, with a connection that breaks on order."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from types import SimpleNamespace
from typing import Any


class ShellChannel:
    """A session of SSH: its input goes to a shell of this machine."""

    def __init__(self, host: ShellHost) -> None:
        self.host = host
        self.status_event = SimpleNamespace(wait=self._wait_for_exit)

    def settimeout(self, seconds: float) -> None:
        """Nothing here waits."""

    def set_combine_stderr(self, together: bool) -> None:
        """Nothing here asks for it."""

    def exec_command(self, command: str) -> None:
        self.streams = "dd of=" in command
        if self.streams:
            self.host.commands.append(command)
        piped = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.process = subprocess.Popen(["sh", "-c", command], **piped)  # type: ignore[call-overload]

    def send(self, part: bytes) -> int:
        if not self.streams:
            self.process.stdin.write(part)
            self.process.stdin.flush()
            return len(part)
        self.host.now += self.host.seconds_a_part
        if self.host.cuts and self.host.sent >= self.host.cuts[0]:
            self.host.cuts.pop(0)
            self.host.connected = False
            raise OSError("Socket is closed")
        self.process.stdin.write(part)
        self.process.stdin.flush()
        self.host.sent += len(part)
        return len(part)

    def sendall(self, data: bytes) -> None:
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def shutdown_write(self) -> None:
        self.process.stdin.close()

    def exit_status_ready(self) -> bool:
        return self._wait_for_exit(0.5) if self.host.connected else False

    def _wait_for_exit(self, seconds: float) -> bool:
        if self.host.silent and self.streams:
            return False
        try:
            self.process.wait(min(seconds, 10))
        except subprocess.TimeoutExpired:
            return False
        return True

    def recv_exit_status(self) -> int:
        told = self.streams and self.host.status is not None
        return self.host.status if told else self.process.returncode  # type: ignore[return-value]

    def recv(self, size: int) -> Any:
        return self.process.stdout.read1(size)

    def recv_stderr(self, size: int) -> Any:
        return self.process.stderr.read1(size)

    def makefile(self, mode: str) -> Any:
        return self.process.stdout

    def makefile_stderr(self, mode: str) -> Any:
        return self.process.stderr

    def close(self) -> None:
        if not self.process.stdin.closed:
            with suppress(OSError):
                self.process.stdin.close()
        # as a session's end does, this ends a process that still writes
        self.process.stdout.close()
        self.process.wait()
        self.process.stderr.close()


class ShellHost:
    """pyinfra's view of a host."""

    name, print_prefix, data = "box", "[box] ", {}

    def __init__(self) -> None:
        self.connector = self.client = self
        self.connected, self.silent = True, False
        self.status: int | None = None
        self.cuts: list[int] = []
        """Bytes after which the connection breaks, in all."""
        self.commands: list[str] = []
        self.sent, self.now, self.seconds_a_part, self.connections = 0, 1000.0, 0.0, 0

    def get_transport(self) -> ShellHost:
        return self

    def is_active(self) -> bool:
        return self.connected

    def open_session(self, timeout: float | None = None) -> ShellChannel:
        return ShellChannel(self)

    def connect(self) -> None:
        self.connections += 1
        self.now += 1
        self.connected = True
