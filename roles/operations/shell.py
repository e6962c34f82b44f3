"""Commands on a host in the middle of an operation, over a connection that may break and is made again."""

from __future__ import annotations

import time
from typing import Any

import gevent
from paramiko import SSHException
from pyinfra import logger
from pyinfra.api import QuoteString, StringCommand
from pyinfra.api.exceptions import ConnectError

from roles.lease import lease_of

LOST = 120  # seconds a connection may be gone before the run gives up on a host


class Lost(Exception):
    """The host cannot be reached any more, or a command of ours fails there."""


class Shell:
    """One host's shell, as root."""

    def __init__(self, host: Any) -> None:
        self.host = host

    def run(self, command: str, stdin: str | None = None) -> list[str]:
        """Run a command, reconnecting for up to LOST seconds; returns its output's lines.

        Raises:
            Lost: the host stays away, or the command fails.
        """
        given_up = time.monotonic() + LOST
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

    def _connected(self) -> bool:
        transport = self.host.connector.client.get_transport()
        return transport is not None and transport.is_active()

    def _reconnect(self, given_up: float, why: str) -> None:
        if time.monotonic() > given_up:
            raise Lost(f"no connection for {LOST} s ({why})")
        gevent.sleep(1)
        try:
            self.host.connector.connect()
        except ConnectError:
            logger.debug("still no connection to %s", self.host.name)
            return
        if held := lease_of(self.host):
            held.renew()
