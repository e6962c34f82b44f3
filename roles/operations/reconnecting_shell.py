"""Commands on a host in the middle of an operation, over a connection that may break and is made again."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import gevent
from pyinfra import logger
from pyinfra.api.exceptions import ConnectError

from rigwright.host import script_output
from rigwright.host.script_output import HostOutput
from rigwright.render import render
from rigwright.safe_text import printable_lines
from roles import root_shell
from roles.deploy_lock import find_deploy_lock

PART = 256 * 1024  # bytes that are sent at a time
SILENCE = 60.0  # seconds that a command may say nothing
LOST = 120  # seconds a connection may be gone before the run gives up on a host


class HostLost(Exception):
    """The host cannot be reached any more, or a command of ours fails there."""


class ReconnectingShell:
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
            HostLost: the host stays away, or the command fails.
        """
        given_up = time.monotonic() + self.patience
        while True:
            held = find_deploy_lock(self.host)
            if held and held.lost:
                raise HostLost(f"the deploy lock was lost: {held.lost}")
            try:
                answer = root_shell.run_command(self.host, command, stdin or "", SILENCE)
            except root_shell.RootDenied as error:
                raise HostLost(str(error)) from error
            except root_shell.HostTooSlow as error:
                raise HostLost(f"`{_shorten_command(command)}`: {error}") from error
            except root_shell.ConnectionGone as error:
                self._reconnect(given_up, str(error))
                continue
            if answer.status == 0:
                return answer.lines
            said = (answer.err or answer.out).decode(errors="replace").strip()
            raise HostLost(f"`{_shorten_command(command)}` failed: {printable_lines(said)}")

    def read_facts(self, template: str, schema: script_output.Schema, **values: object) -> HostOutput:
        """The output of a template's script.

        Raises:
            HostLost: the host stays away, the command fails, or it tells something else.
        """
        try:
            return script_output.parse_output(self.run(render(template, **values)), schema)
        except ValueError as error:
            raise HostLost(str(error)) from error

    def append_file(self, source: Path, target: str, report: Callable[[int], None]) -> None:
        """Bring the rest of a file of this machine to one on the host, which has the beginning of it, or nothing.

        Args:
            source: The file.
            target: Its path on the host, in a folder that is there.
            report: Gets the number of bytes that are there.

        Raises:
            HostLost: the host stays away for too long, or cannot write.
        """
        whole, before, given_up = source.stat().st_size, -1, 0.0
        while (there := int(self.run(f"stat -c %s {shlex.quote(target)} 2>/dev/null || echo 0")[0])) != whole:
            try:
                self._stream(source, there if there < whole else 0, target, report)
                return
            except root_shell.HostTooSlow as error:
                raise HostLost(f"sending {source.name}: {error}") from error
            except root_shell.BROKEN as error:
                if there != before:  # it made progress: the text before may have taken longer
                    before, given_up = there, time.monotonic() + self.patience
                self._reconnect(given_up, str(error))

    def _stream(self, source: Path, offset: int, target: str, report: Callable[[int], None]) -> None:
        # At its place, not at the end: data that an earlier connection had on its way may still come in. Without
        # notrunc, dd of coreutils 9.1 empties the file where the place is in its first block.
        place = f"oflag=seek_bytes seek={offset:d} conv=notrunc" if offset else ""
        command = f"umask 022; dd of={shlex.quote(target)} bs=1M iflag=fullblock {place} status=none"
        with closing(root_shell.start_command(self.host, command, LOST)) as session, source.open("rb") as file:
            file.seek(offset)
            allowed = root_shell.TransferAllowance(LOST)
            try:
                while part := file.read(PART):
                    root_shell.send_bytes(session, part, allowed)
                    offset += len(part)
                    report(offset)
                session.shutdown_write()
            except root_shell.HostTooSlow:
                raise
            except OSError:
                if not session.exit_status_ready():
                    raise
            status = root_shell.wait_for_exit(session, LOST)
            with root_shell.close_after(session, LOST):
                said = session.makefile_stderr("rb").read(root_shell.KEPT).decode(errors="replace")
        if status > 0 or (status < 0 and root_shell.is_connected(self.host)):
            raise HostLost(f"{target} cannot be written: {printable_lines(said.strip()) or 'dd was ended'}")
        if status < 0:
            raise EOFError("the session ended")

    def _reconnect(self, given_up: float, why: str) -> None:
        if time.monotonic() > given_up:
            raise HostLost(f"no connection for {self.patience:.0f} s ({why})")
        gevent.sleep(1)
        held = find_deploy_lock(self.host)
        if held:
            held.end_renewals()
        try:
            self.host.connector.connect()
        except ConnectError:
            logger.debug("still no connection to %s", self.host.name)
            return
        if held:
            held.renew()


def _shorten_command(command: str) -> str:
    """The beginning of a command, for messages."""
    return command.splitlines()[0][:60]
