"""What a run over hosts says in place of pyinfra: a line a host and step that changes something, on standard output."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import click
from pyinfra.api.state import BaseStateCallback

from cli import tables
from rigwright.problems import format_count, printable
from roles.connection_failures import describe_connect_error

LONGEST = 2000  # characters of a line that a host has had a part in
PYINFRA_MESSAGES = re.compile(r"/pyinfra(_cli)?/")
FACT, REASON = "could not process fact: ", "ValueError: "
CONNECTING = ("host.py:connect", "client.py:get_host_keys")
"""Where pyinfra says how it connects; what comes of that is said here."""
PREFIXED = re.compile(r"\[([^\]]+)\] +(.*)")
COLOURS = {logging.WARNING: "yellow", logging.ERROR: "red", logging.CRITICAL: "red"}


@dataclass
class HostProgress:
    """What became of one host."""

    unreached: str = ""
    """Why there was no connection."""
    step: str = ""
    """The one that failed."""
    errors: list[str] = field(default_factory=list)
    """What was said of that, as lines."""
    steps: int = 0
    changed: int = 0
    """How many of its steps changed something."""
    ended: float = 0.0
    """When its last step did, as time.monotonic has it."""


class DeployOutput(BaseStateCallback, logging.Handler):
    """Hears what pyinfra and the roles log, and what becomes of each step."""

    def __init__(self, names: Collection[str]) -> None:
        logging.Handler.__init__(self)
        self.hosts = {name: HostProgress() for name in names}
        self.began = time.monotonic()
        self.started: dict[tuple[str, str], float] = {}
        self.took: dict[tuple[str, str], float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Say a record; what pyinfra says of its own course is said otherwise."""
        text, level = record.getMessage(), record.levelno
        if PYINFRA_MESSAGES.search(record.pathname):
            if level < logging.WARNING or f"{record.filename}:{record.funcName}" in CONNECTING:
                return
            if text.startswith("Traceback ") or ": executed " in text:
                return
            # of a function that a step calls it warns, and has the step fail
            level = logging.ERROR
        for line in text.splitlines():
            found = PREFIXED.fullmatch(line)
            name, said = (found[1], found[2]) if found and found[1] in self.hosts else ("", line)
            if FACT in said and name and self.hosts[name].errors:
                continue  # all that its script was asked; the line before has the reason
            said = said.removeprefix(REASON) if PYINFRA_MESSAGES.search(record.pathname) else said
            said = _truncate_text(said)
            if name and level >= logging.ERROR:
                self.hosts[name].errors.append(said)
            print_line(f"{name}: {said}" if name else said, COLOURS.get(level))

    def host_connect_error(self, state: Any, host: Any, error: Any) -> None:  # type: ignore[override]
        """Keep why a host was not reached."""
        self.hosts[host.name].unreached = describe_connect_error(error)
        if len(self.hosts) > 1:  # of one host it is said at the end, which is now
            print_line(f"{host.name}: cannot be reached: {self.hosts[host.name].unreached}", "red")

    def operation_host_start(self, state: Any, host: Any, op_hash: str) -> None:  # type: ignore[override]
        """Note when a step began."""
        self.started[host.name, op_hash] = time.monotonic()
        self.hosts[host.name].errors.clear()

    def operation_host_success(self, state: Any, host: Any, op_hash: str, retry_count: int = 0) -> None:  # type: ignore[override]
        """Note when a step ended."""
        self._step_seconds(host.name, op_hash)

    def operation_host_error(  # type: ignore[override]
        self, state: Any, host: Any, op_hash: str, retry_count: int = 0, max_retries: int = 0
    ) -> None:
        """Say which step has failed."""
        took = self._step_seconds(host.name, op_hash)
        self.hosts[host.name].step = step_name(state, op_hash)
        print_line(f"{host.name}: {step_name(state, op_hash)}: failed ({took:.1f} s)", "red")

    def operation_end(self, state: Any, op_hash: str) -> None:  # type: ignore[override]
        """Say which hosts a step has changed; pyinfra knows it now."""
        for host in sorted(state.active_hosts, key=str):
            if op_hash not in state.ops[host]:
                continue
            one = self.hosts[host.name]
            one.steps += 1
            if state.ops[host][op_hash].operation_meta.did_change():
                one.changed += 1
                print_line(f"{host.name}: {step_name(state, op_hash)} ({self.took[host.name, op_hash]:.1f} s)", "green")

    def _step_seconds(self, name: str, op_hash: str) -> float:
        self.hosts[name].ended = now = time.monotonic()
        self.took[name, op_hash] = now - self.started[name, op_hash]
        return self.took[name, op_hash]

    def print_changes(self, names: Collection[str], changed: str = "changed") -> None:
        """Say how much was done on hosts on which all went well."""
        for name in sorted(names):
            one = self.hosts[name]
            took = (one.ended or time.monotonic()) - self.began
            if one.changed:
                print_line(
                    f"{name}: {one.changed} of {format_count(one.steps, 'step')} {changed} something ({took:.1f} s)"
                )
            else:
                print_line(f"{name}: nothing to do ({format_count(one.steps, 'step')}, {took:.1f} s)")

    def print_dry_changes(self, state: Any, names: Collection[str]) -> None:
        """Say what a run would change, of one that was only prepared."""
        order = state.get_op_order()
        for host in [one for one in state.inventory if one.name in names]:
            ops = [op_hash for op_hash in order if op_hash in state.ops[host]]
            changing = [one for one in ops if state.ops[host][one].operation_meta._maybe_is_change]
            for op_hash in changing:
                print_line(f"{host.name}: would change: {step_name(state, op_hash)}", "green")
            self.hosts[host.name].steps, self.hosts[host.name].changed = len(ops), len(changing)
        self.print_changes(names, "would change")


def step_name(state: Any, op_hash: str) -> str:
    """A step, as the roles call it: `Base: Packages`."""
    return ", ".join(sorted(state.op_meta[op_hash].names)).replace(" | ", ": ")


def print_line(line: str, colour: str | None = None) -> None:
    """Print a line, at once."""
    tables.print_prose(line, fg=colour)


def _truncate_text(text: str) -> str:
    text = printable(click.unstyle(text))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text)} characters)"
