"""Operations on instances: their keys, their processes, and their removal."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gevent
from pyinfra import host, logger, state
from pyinfra.api import FactBase, FunctionCommand, QuoteString, StringCommand, operation

from rigwright.serving import DIGEST_VARIABLE, OWNED, STARTED_FROM, UNITS
from roles.operations.files import Entries, Entry
from roles.operations.shell import Lost, Shell
from roles.progress import progress

Commands = Generator[StringCommand | FunctionCommand, None, None]
POLL = 0.3  # seconds between looks at a starting unit
STOPPING = 60  # seconds that an old process may take to end before the new one starts
LOG_LINES = 20  # of a unit that does not become ready
# A power cut can leave a file without its content, and llama-server takes an empty key file for "no key needed".
EMPTY = {hashlib.sha256(text).hexdigest() for text in (b"", b"\n")}


@operation()
def credential(path: str, key: str | None) -> Generator[StringCommand, None, None]:
    """Put an API key where systemd reads it, or have the host make one that never leaves it.

    The key travels through standard input: arguments are seen by every process, and by logs.

    + path: the key's file, mode 600
    + key: the key; None keeps the one that is there, or makes 256 random bits
    """
    found = host.get_fact(Entries, paths=[path]).get(path, Entry())
    there = found.kind == "file" and found.sha256 not in EMPTY
    right = there and (found.mode, found.user) == ("600", "root")
    if right and (key is None or found.sha256 == hashlib.sha256(f"{key}\n".encode()).hexdigest()):
        host.noop(f"{path} holds the key")
        return
    new = QuoteString(f"{path}.rigwright-new")
    settle = ("&& chmod 600", new, "&& chown root:root", new, "&& sync -d", new, "&& mv -fT", new, QuoteString(path))
    if key is not None:
        yield StringCommand("umask 077 && cat >", new, *settle, _stdin=[f"{key}\n"])
    elif there:
        yield StringCommand("chmod 600", QuoteString(path), "&& chown root:root", QuoteString(path))
    else:
        made = "umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \\n' >"
        yield StringCommand(made, new, "&& echo >>", new, *settle)


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
        active, digest, unit, key, enabled, unread = output
        started_from = digest.partition(" ")[2]
        return Process(active, started_from, unit == "current", key == "current", enabled == "2", unread != "0")


@operation()
def running(unit: str, digest: str, credential: str, timeout: int) -> Commands:
    """Have an instance run from its unit as it is on disk, with its present key, now and after a reboot.

    Compares the running process with what is wanted, never with what an earlier operation changed: a run that died
    between writing a unit and restarting it is finished by the next one. An instance that is still loading, after a
    reboot for example, is waited for and not started again.

    + unit: the unit's name
    + digest: the digest inside the unit
    + credential: the API key's file
    + timeout: seconds until it must be ready
    """
    wanted = Process("active", digest, unit_current=True, key_current=True, enabled=True, reload_needed=False)
    loading = replace(wanted, state="activating")
    deadline = time.monotonic() + timeout
    found = host.get_fact(Running, unit=unit, credential=credential)
    while found == loading and state.is_executing and time.monotonic() < deadline:
        gevent.sleep(POLL)
        found = host.get_fact(Running, unit=unit, credential=credential)
    if found == wanted or (found == loading and not state.is_executing):
        host.noop(f"{unit} runs as it should")
        return
    yield StringCommand("systemctl daemon-reload && systemctl --quiet enable rigwright.target", QuoteString(unit))
    if replace(found, enabled=True, reload_needed=False) != wanted:
        # the target alone: with what it wants, it would start instances whose turn comes later
        target = "systemctl start --job-mode=ignore-dependencies rigwright.target"
        yield StringCommand(f"systemctl reset-failed {unit} 2>/dev/null; {target}")
        yield StringCommand(f"systemctl restart --no-block {unit}")
        yield FunctionCommand(_await_ready, (unit, timeout + STOPPING), {})


def _await_ready(state: Any, host: Any, unit: str, timeout: int) -> bool:
    """Watch a unit until systemd calls it active, which its unit does after the first completion."""
    shell = Shell(host).run
    properties = " ".join(f"--property={name}" for name in ("ActiveState", "SubState", "NRestarts", "Job"))
    deadline = time.monotonic() + timeout
    try:
        with progress.task(host.name, unit) as task:
            while time.monotonic() < deadline:
                shown = dict(line.split("=", 1) for line in shell(f"systemctl show {properties} {unit}"))
                queued = shown.get("Job", "0") not in ("", "0")
                # until the restart is done with the old process, what is seen may be that one's state
                if shown["ActiveState"] == "active" and not queued:
                    return True
                if shown["ActiveState"] == "failed" or shown["SubState"] == "auto-restart" or shown["NRestarts"] != "0":
                    break
                task.label(f"{unit} is {shown['SubState']}")
                gevent.sleep(POLL)
        logger.error(f"{host.print_prefix}{unit} did not become ready; its last log lines:")
        for line in shell(f"journalctl --no-pager --output=cat --lines={LOG_LINES} --unit={unit}"):
            logger.error(f"{host.print_prefix}  {line}")
    except Lost as error:
        logger.error(f"{host.print_prefix}{error}")
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

    One that does not stop is left as it is, and the operation fails.

    + declared: names of the instances that stay
    + credentials: the folder of API keys
    """
    gone = [name for name in host.get_fact(Owned, credentials=credentials) if name not in declared]
    if not gone:
        host.noop("no instance but the declared ones")
    for name in gone:
        unit = QuoteString(f"rigwright-{name}.service")
        yield StringCommand(
            *("{ systemctl stop", unit, "2>/dev/null || ! systemctl --quiet is-active", unit, "; }"),
            *("&& { systemctl --quiet disable", unit, "2>/dev/null || true; }"),
            *(
                "&& rm -f",
                QuoteString(f"{credentials}/{name}.api-key"),
                QuoteString(f"{UNITS}/rigwright-{name}.service"),
            ),
            *("&& systemctl daemon-reload && { systemctl reset-failed", unit, "2>/dev/null || true; }"),
        )


@dataclass(frozen=True)
class Held:
    """What a running instance holds: its port and its cards, by index."""

    port: int
    cards: frozenset[int]

    def blocks(self, other: Held) -> bool:
        """Whether both cannot run at once."""
        return self.port == other.port or bool(self.cards & other.cards)


class Holding(FactBase[dict[str, Held]]):
    """What each running instance of ours holds, by unit, from its process."""

    default = dict

    def command(self) -> StringCommand:
        """One line a unit: name, port, cards."""
        script = (
            "systemctl list-units --plain --no-legend 'rigwright-*.service' | while read -r unit _; do "
            "pid=$(systemctl show --property=MainPID --value $unit); [ $pid != 0 ] || continue; "
            "port=$(tr '\\0' '\\n' < /proc/$pid/cmdline | sed -n '/^--port$/{n;p}'); "
            "cards=$(tr '\\0' '\\n' < /proc/$pid/environ | sed -n 's/^CUDA_VISIBLE_DEVICES=//p'); "
            'echo "$unit ${port:-0} $cards"; done'
        )
        return StringCommand("sh", "-c", QuoteString(script))

    def process(self, output: list[str]) -> dict[str, Held]:
        """Read the lines."""
        found = {}
        for line in output:
            unit, port, cards = line.split(" ")
            found[unit] = Held(int(port), frozenset(int(index) for index in cards.split(",") if index))
        return found


@operation()
def room(declared: Mapping[str, Held]) -> Generator[StringCommand, None, None]:
    """Stop running instances that hold a port or a card which another declared instance is to have.

    Two that swap would wait for each other for ever; everything else is restarted in place.

    + declared: unit -> what it is to hold
    """
    found = host.get_fact(Holding)
    in_the_way = sorted(
        unit
        for unit, held in found.items()
        if held != declared.get(unit) and any(held.blocks(other) for name, other in declared.items() if name != unit)
    )
    if not in_the_way:
        host.noop("no instance is in another one's way")
    for unit in in_the_way:
        yield StringCommand("systemctl stop", QuoteString(unit))
