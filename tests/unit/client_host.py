"""A host for clients: a shell of this machine, whose `systemd-run` starts its command at once."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ssh_host import ShellChannel, ShellHost

# the part of systemd-run's arguments that a job sees: its credential
SYSTEMD_RUN = """\
#!/bin/sh
while [ "$1" != -- ]; do
  case $1 in --property=LoadCredential=api-key:*)
    mkdir -p {folder}/credentials
    key=${{1#--property=LoadCredential=api-key:}}
    # a host of a test's own has it in its folder
    [ ! -e "{folder}$key" ] || key={folder}$key
    cp "$key" {folder}/credentials/api-key || exit 243
    export CREDENTIALS_DIRECTORY={folder}/credentials
  ;; esac
  echo "$1" >> {folder}/options
  shift
done
shift
echo $$ > {folder}/pid
exec "$@"
"""
SYSTEMCTL = """\
#!/bin/sh
[ ! -e {folder}/pid ] || kill "$(cat {folder}/pid)" 2>/dev/null
echo "$@" >> {folder}/systemctl
"""


class ClientSession(ShellChannel):
    """One whose command reads its input at once, and ends with it, whatever that has started."""

    def exec_command(self, command: str) -> None:
        self.streams = False
        piped = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        self.process = subprocess.Popen(["sh", "-c", command], start_new_session=True, **piped)  # type: ignore[call-overload]

    def send(self, part: bytes) -> int:
        try:
            self.process.stdin.write(part)
            self.process.stdin.flush()
        except ValueError:
            raise OSError("Socket is closed") from None
        return len(part)

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class ClientHost(ShellHost):
    """The host."""

    def open_session(self, timeout: float | None = None) -> Any:
        return ClientSession(self)


def make_client_host(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ClientHost:
    """A host whose jobs leave their traces in a folder."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    for name, text in (("systemd-run", SYSTEMD_RUN), ("systemctl", SYSTEMCTL)):
        (programs / name).write_text(text.format(folder=folder))
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return ClientHost()
