"""Commands on a host in the middle of an operation, over a connection that may break and is made again."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import gevent
from paramiko import SSHException
from pyinfra import logger
from pyinfra.api import QuoteString, StringCommand
from pyinfra.api.exceptions import ConnectError

from roles.lease import lease_of

PART = 256 * 1024  # bytes that are sent at a time
LOST = 120  # seconds a connection may be gone before the run gives up on a host


class Lost(Exception):
    """The host cannot be reached any more, or a command of ours fails there."""


class Shell:
    """One host's shell, as root."""

    def __init__(self, host: Any, patience: float = LOST) -> None:
        """Take a pyinfra host.

        Args:
            host: The host.
            patience: Seconds that its connection may be gone before it is given up.
        """
        self.host, self.patience = host, patience

    def run(self, command: str, stdin: str | None = None) -> list[str]:
        """Run a command, reconnecting as long as patience lasts; returns its output's lines.

        Raises:
            Lost: the host stays away, or the command fails.
        """
        given_up = time.monotonic() + self.patience
        while True:
            held = lease_of(self.host)
            if held and held.lost:
                raise Lost(f"the lease is gone: {held.lost}")
            try:
                # the run's own sudo setting is not applied by itself in here
                succeeded, output = self.host.run_shell_command(
                    StringCommand("sh", "-c", QuoteString(command)),
                    _sudo=bool(self.host.data.get("_sudo", False)),
                    _stdin=stdin.splitlines(keepends=True) if stdin is not None else None,
                    _timeout=60,
                )
            except (OSError, SSHException, EOFError, TimeoutError, AttributeError) as error:
                self._reconnect(given_up, str(error))
                continue
            if succeeded:
                return list(output.stdout_lines)
            if self._connected():
                raise Lost(f"`{command.splitlines()[0][:60]}` failed: {output.stderr or output.stdout}")
            self._reconnect(given_up, "the session ended")

    def append(self, source: Path, target: str, report: Callable[[int], None]) -> None:
        """Bring the rest of a file of this machine to one on the host, which has the beginning of it, or nothing.

        Args:
            source: The file.
            target: Its path on the host, in a folder that is there.
            report: Is told how many bytes are there.

        Raises:
            Lost: the host stays away for too long, or cannot write.
        """
        whole, before, given_up = source.stat().st_size, -1, 0.0
        while (there := int(self.run(f"stat -c %s {target} 2>/dev/null || echo 0")[0])) != whole:
            try:
                self._stream(source, there if there < whole else 0, target, report)
                return
            except (OSError, SSHException, EOFError, AttributeError) as error:
                if there != before:  # it got on: what was sent before may have taken longer
                    before, given_up = there, time.monotonic() + self.patience
                self._reconnect(given_up, str(error))

    def _stream(self, source: Path, offset: int, target: str, report: Callable[[int], None]) -> None:
        # at its place, not at the end: what an earlier connection had on its way may still come in. Without notrunc, dd
        # of coreutils 9.1 empties the file where the place is in its first block.
        place = f"oflag=seek_bytes seek={offset} conv=notrunc" if offset else ""
        command = f"umask 022; dd of={target} bs=1M iflag=fullblock {place} status=none"
        words = "sudo -n sh" if self.host.data.get("_sudo") else "sh"
        channel = self.host.connector.client.get_transport().open_session()
        channel.settimeout(LOST)
        with closing(channel), source.open("rb") as file:
            channel.exec_command(f"{words} -c {shlex.quote(command)}")
            file.seek(offset)
            try:
                while part := file.read(PART):
                    channel.sendall(part)
                    offset += len(part)
                    report(offset)
                channel.shutdown_write()
            except OSError:
                if not channel.exit_status_ready():
                    raise
            # recv_exit_status alone would wait for ever
            if not channel.status_event.wait(LOST):
                raise TimeoutError("no answer")
            status, said = channel.recv_exit_status(), channel.makefile_stderr("rb").read().decode(errors="replace")
        if status > 0 or (status < 0 and self._connected()):
            raise Lost(f"{target} cannot be written there: {said.strip() or 'dd was ended'}")
        if status < 0:
            raise EOFError("the session ended")

    def _connected(self) -> bool:
        transport = self.host.connector.client.get_transport()
        return transport is not None and transport.is_active()

    def _reconnect(self, given_up: float, why: str) -> None:
        if time.monotonic() > given_up:
            raise Lost(f"no connection for {self.patience:.0f} s ({why})")
        gevent.sleep(1)
        try:
            self.host.connector.connect()
        except ConnectError:
            logger.debug("still no connection to %s", self.host.name)
            return
        if held := lease_of(self.host):
            held.renew()
