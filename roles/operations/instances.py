"""Operations on instances: their keys, their processes, and their removal."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gevent
from pyinfra import host, logger
from pyinfra.api import FactBase, FunctionCommand, QuoteString, StringCommand, operation

from rigwright.serving import DIGEST_VARIABLE, OWNED, STARTED_FROM, UNITS
from roles.operations.files import Entries, Entry
from roles.progress import progress

Commands = Generator[StringCommand | FunctionCommand, None, None]
POLL = 0.3  # seconds between looks at a starting unit
LOG_LINES = 20  # of a unit that does not become ready


@operation()
def credential(path: str, key: str | None) -> Generator[StringCommand, None, None]:
    """Put an API key where systemd reads it, or have the host make one that never leaves it.

    The key travels through standard input: arguments are seen by every process, and by logs.

    + path: the key's file, mode 600
    + key: the key; None keeps the one that is there, or makes 256 random bits
    """
    found = host.get_fact(Entries, paths=[path]).get(path, Entry())
    right = (found.kind, found.mode, found.user) == ("file", "600", "root")
    if right and (key is None or found.sha256 == hashlib.sha256(f"{key}\n".encode()).hexdigest()):
        host.noop(f"{path} holds the key")
        return
    new = QuoteString(f"{path}.rigwright-new")
    settle = ("&& chmod 600", new, "&& chown root:root", new, "&& mv -fT", new, QuoteString(path))
    if key is not None:
        yield StringCommand("umask 077 && cat >", new, *settle, _stdin=[f"{key}\n"])
    elif found.kind == "file":
        yield StringCommand("chmod 600", QuoteString(path), "&& chown root:root", QuoteString(path))
    else:
        yield StringCommand(
            "umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \\n' >", new, "&& echo >>", new, *settle
        )


@dataclass(frozen=True)
class Process:
    """An instance as it runs now."""

    state: str = "inactive"
    digest: str = ""
    """Of the unit that the main process was started from."""
    unit_current: bool = False
    """Whether the unit file is still the one it was started from. A file edited by hand keeps its digest."""
    key_current: bool = False
    """Whether the key it was given is the one on disk."""
    enabled: bool = False
    reload_needed: bool = False


class Running(FactBase[Process]):
    """One instance's process, in one command."""

    default = Process

    def command(self, unit: str, credential: str) -> StringCommand:
        """Six lines: state, digest, unit file, key, enablement, unit files that systemd has not read yet."""
        script = (
            "unit=$1; show() { systemctl show --property=$1 --value $unit; }; "
            "show ActiveState; "
            f"tr '\\0' '\\n' < /proc/$(show MainPID)/environ 2>/dev/null | sed -n 's/^{DIGEST_VARIABLE}=/digest /p' "
            "| grep . || echo digest; "
            f"stat -c '%i %z' {UNITS}/$unit 2>/dev/null | cmp -s - {STARTED_FROM}/$unit && echo current || echo stale; "
            "cmp -s $2 /run/credentials/$unit/api-key && echo current || echo stale; "
            "systemctl is-enabled rigwright.target $unit 2>/dev/null | grep -cx enabled; "
            "systemctl show --property=NeedDaemonReload --value $unit rigwright.target rigwright.slice "
            "| grep -cx yes; true"
        )
        return StringCommand("sh", "-c", QuoteString(script), "running", unit, QuoteString(credential))

    def process(self, output: list[str]) -> Process:
        """Read the six lines."""
        state, digest, unit, key, enabled, unread = output
        started_from = digest.partition(" ")[2]
        return Process(state, started_from, unit == "current", key == "current", enabled == "2", unread != "0")


@operation()
def running(
    unit: str, digest: str, credential: str, timeout: int
) -> Generator[StringCommand | FunctionCommand, None, None]:
    """Have an instance run from its unit as it is on disk, with its present key, now and after a reboot.

    Compares the running process with what is wanted, never with what an earlier operation changed: a run that died
    between writing a unit and restarting it is finished by the next one.

    + unit: the unit's name
    + digest: the digest inside the unit
    + credential: the API key's file
    + timeout: seconds until it must be ready
    """
    found = host.get_fact(Running, unit=unit, credential=credential)
    wanted = Process("active", digest, unit_current=True, key_current=True, enabled=True, reload_needed=False)
    if found == wanted:
        host.noop(f"{unit} runs as it should")
        return
    yield StringCommand("systemctl daemon-reload && systemctl --quiet enable rigwright.target", QuoteString(unit))
    if replace(found, enabled=True, reload_needed=False) != wanted:
        # restarting the target would restart every instance
        start = f"systemctl reset-failed {unit} 2>/dev/null; systemctl start --no-block rigwright.target"
        yield StringCommand(f"{start} && systemctl restart --no-block {unit}")
        yield FunctionCommand(_await_ready, (unit, timeout), {})


def _await_ready(state: Any, host: Any, unit: str, timeout: int) -> bool:
    """Watch a unit until systemd calls it active, which its unit does after the first completion."""
    look = f"systemctl show --property=ActiveState --property=SubState --property=NRestarts {unit}"
    sudo = bool(host.data.get("_sudo", False))
    deadline = time.monotonic() + timeout
    with progress.task(host.name, unit) as task:
        while time.monotonic() < deadline:
            _, output = host.run_shell_command(StringCommand(look), _sudo=sudo)
            shown = dict(line.split("=", 1) for line in output.stdout_lines)
            if shown["ActiveState"] == "active":
                return True
            if shown["ActiveState"] == "failed" or shown["SubState"] == "auto-restart" or int(shown["NRestarts"]) > 0:
                break
            task.label(f"{unit} is {shown['SubState']}")
            gevent.sleep(POLL)
    logger.error(f"{host.print_prefix}{unit} did not become ready; its last log lines:")
    _, output = host.run_shell_command(
        StringCommand(f"journalctl --no-pager --output=cat --lines={LOG_LINES} --unit={unit}"), _sudo=sudo
    )
    for line in output.stdout_lines:
        logger.error(f"{host.print_prefix}  {line}")
    return False


class Owned(FactBase[list[str]]):
    """Names of the instances whose unit files or keys we have written."""

    default = list

    def command(self, credentials: str) -> StringCommand:
        """Unit files by their first line, keys by their folder."""
        script = (
            f"cd {UNITS} && for f in rigwright-*.service; do "
            '[ -f "$f" ] && [ "$(head -n 1 "$f")" = "$1" ] && basename "${f#rigwright-}" .service; done; '
            'for f in "$2"/*.api-key; do [ -f "$f" ] && basename "$f" .api-key; done; true'
        )
        return StringCommand("sh", "-c", QuoteString(script), "owned", QuoteString(OWNED), QuoteString(credentials))

    def process(self, output: list[str]) -> list[str]:
        """Each name once."""
        return sorted(set(output))


@operation()
def removed(declared: Sequence[str], credentials: str) -> Generator[StringCommand, None, None]:
    """Stop and remove instances that we wrote and the inventory no longer declares: unit, key, port.

    + declared: names of the instances that stay
    + credentials: the folder of API keys
    """
    gone = [name for name in host.get_fact(Owned, credentials=credentials) if name not in declared]
    if not gone:
        host.noop("no instance but the declared ones")
    for name in gone:
        unit = QuoteString(f"rigwright-{name}.service")
        yield StringCommand(
            *(
                "systemctl --quiet disable --now",
                unit,
                "2>/dev/null; rm -f",
                QuoteString(f"{credentials}/{name}.api-key"),
            ),
            *("&& rm -f", QuoteString(f"{UNITS}/rigwright-{name}.service")),
            *("&& systemctl daemon-reload && { systemctl reset-failed", unit, "2>/dev/null || true; }"),
        )
