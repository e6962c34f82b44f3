"""Commands as root on a connected host."""

from __future__ import annotations

import shlex
from typing import Any

LIMIT = 3600.0  # seconds without a byte from a command: a load on a CPU takes long, forever is too long


class Failed(Exception):
    """A command that fails on the host, in its own words."""


class Remote:
    """A connected host's shell."""

    def __init__(self, target: Any) -> None:
        self.target = target

    def run(self, script: str, stdin: str = "") -> str:
        """Run a shell script; returns what it printed on standard output.

        Raises:
            Failed: its exit status is not 0.
            OSError: the connection is gone, or silent for LIMIT seconds.
            paramiko.SSHException: the connection is gone.
        """
        channel = self.target.connector.client.get_transport().open_session()
        channel.settimeout(LIMIT)
        shell = "sudo -n sh" if self.target.data.get("_sudo") else "sh"
        channel.exec_command(f"{shell} -c {shlex.quote(script)}")
        channel.sendall(stdin.encode())
        channel.shutdown_write()
        # one stream after the other: a command says less on the second one than the connection has room for
        said: str = channel.makefile("rb").read().decode(errors="replace")
        complaint: str = channel.makefile_stderr("rb").read().decode(errors="replace").strip()
        status = channel.recv_exit_status()
        if status:
            raise Failed(complaint or said.strip()[-1000:] or f"exit status {status}")
        return said
