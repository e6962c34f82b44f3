"""A run of deploy.py over hosts in this process, and its output: a line for each change."""

from __future__ import annotations

import logging
import os
import re
import sys
import time
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import click
import pyinfra
from pyinfra.api.config import Config
from pyinfra.api.connect import disconnect_all
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.state import BaseStateCallback, State, StateStage
from pyinfra.context import ctx_config, ctx_inventory, ctx_state
from pyinfra_cli.exceptions import UnexpectedExternalError

from cli import exit_codes, tables
from cli.deploy_agreement import DeployAgreement
from cli.deploy_failures import HostProgress, raise_failures
from cli.failed_serving import describe_serving_states
from cli.host_pipelines import HostPipelines, PipelinedState
from cli.run_recap import HostRecap, print_recap
from rigwright.host_selection import format_hosts, group_lines, is_many
from rigwright.model.rig import Rig
from rigwright.plan.separate_roles import describe_selection, select_roles
from rigwright.problems import format_count, printable
from rigwright.project_root import ROOT
from roles.connection_failures import (
    address_of,
    describe_connect_error,
    describe_unreachable_host,
    silence_paramiko_log,
)
from roles.deploy_lock import release_deploy_locks
from roles.host_pool import TooManyHosts, pace_hosts, raise_file_limit
from roles.progress import progress
from roles.pyinfra_inventory import load_pyinfra_inventory
from roles.step_durations import StepDurations, StepSeconds

LONGEST = 2000  # characters of a line that a host has had a part in
PYINFRA_MESSAGES = re.compile(r"/pyinfra(_cli)?/")
FACT, REASON = "could not process fact: ", "ValueError: "
CONNECTING = ("host.py:connect", "client.py:get_host_keys")
"""The logger in which pyinfra reports its connections; Rigwright reports their results."""
PREFIXED = re.compile(r"\[([^\]]+)\] +(.*)")
COLOURS = {logging.WARNING: "yellow", logging.ERROR: "red", logging.CRITICAL: "red"}


LINE_COLUMNS = 80
"""Of the line of one host among many."""
CHECKS = "Checks of what the deploy owns"
"""The last step of a run."""


class DeployOutput(BaseStateCallback, logging.Handler):
    """Output of a run: log records of pyinfra and the roles, and the result of each step."""

    def __init__(self, names: Collection[str]) -> None:
        logging.Handler.__init__(self)
        self.hosts = {name: HostProgress() for name in names}
        self.began = time.monotonic()
        self.took: dict[tuple[str, str], StepSeconds] = {}
        """Host and step -> seconds of its parts."""
        self.changed: dict[str, list[str]] = {}
        """Host of many -> steps that have changed something there, not printed yet."""
        self.notes: list[tuple[str, str]] = []
        """Host of many and a note about it, not printed yet."""
        self.durations = StepDurations.load()
        self.recorded = StepDurations()
        progress.begin_run(names)

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record; pyinfra's lines about its own course are printed otherwise."""
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
            # each round of a run begins with the same notes
            if name and level == logging.INFO and record.filename == "preflight.py":
                if said in self.hosts[name].notes:
                    continue
                self.hosts[name].notes.add(said)
            if name and level >= logging.ERROR:
                self.hosts[name].errors.append(said)
                if is_many(self.hosts):
                    continue  # at the end, by cause
            if name and record.filename == "preflight.py" and is_many(self.hosts):
                self.notes.append((name, said))
                continue
            print_line(f"{name}: {said}" if name else said, COLOURS.get(level))

    def host_connect_error(self, state: Any, host: Any, error: Any) -> None:  # type: ignore[override]
        """Keep why a host was not reached."""
        self.hosts[host.name].unreached = describe_connect_error(error, address_of(host))
        # of one host it is printed at the end, which is now; of many, by cause
        if len(self.hosts) > 1 and not is_many(self.hosts):
            print_line(f"{host.name}: {describe_unreachable_host(self.hosts[host.name].unreached)}", "red")

    def estimate_host(self, state: Any, host: Any) -> None:
        """Give a host's row the steps that lie before it."""
        steps = [step_name(state, op_hash) for op_hash in host.op_hash_order]
        progress.estimate_run(host.name, [*steps, CHECKS], self.durations)

    @contextmanager
    def show_checks(self, hosts: Collection[Any]) -> Iterator[None]:
        """Show the checks at the end of a run as a step of each host."""
        for host in hosts:
            progress.start_step(host.name, CHECKS)
        yield
        for host in hosts:
            self.recorded.add(CHECKS, host.name, progress.end_step(host.name))

    def operation_host_start(self, state: Any, host: Any, op_hash: str) -> None:  # type: ignore[override]
        """Begin a step in its host's row."""
        progress.start_step(host.name, step_name(state, op_hash))
        self.hosts[host.name].errors.clear()

    def operation_host_success(self, state: Any, host: Any, op_hash: str, retry_count: int = 0) -> None:  # type: ignore[override]
        """End a step."""
        self._end_step(host.name, op_hash)

    def operation_host_error(  # type: ignore[override]
        self, state: Any, host: Any, op_hash: str, retry_count: int = 0, max_retries: int = 0
    ) -> None:
        """Print which step has failed."""
        self._end_step(host.name, op_hash)
        self.hosts[host.name].step = step = step_name(state, op_hash)
        progress.fail_host(host.name)
        if not is_many(self.hosts):
            print_line(f"{host.name}: {step}: failed ({self._seconds(host.name, op_hash):.1f} s)", "red")

    def end_operation(self, state: Any, host: Any, op_hash: str) -> None:
        """Record what a step has changed on a host; print it where no row shows it."""
        step, one = step_name(state, op_hash), self.hosts[host.name]
        one.steps += 1
        if not state.ops[host][op_hash].operation_meta.did_change():
            return
        one.changed += 1
        self.recorded.add(step, host.name, self.took[host.name, op_hash])
        if is_many(self.hosts):
            self.changed.setdefault(host.name, []).append(step)
        elif not progress.live or len(self.hosts) == 1:
            print_line(f"{host.name}: {step} ({self._seconds(host.name, op_hash):.1f} s)", "green")

    def end_host(self, name: str) -> None:
        """Print the steps that have changed something on one of many hosts, as soon as it has ended."""
        if steps := self.changed.pop(name, None):
            print_line(fit_steps(name, steps), "green")

    def print_notes(self) -> None:
        """Print the notes about many hosts, each once with its hosts."""
        for text, names in group_lines(self.notes).items():
            print_line(f"{format_hosts(names)}: {text}")
        self.notes = []

    def _end_step(self, name: str, op_hash: str) -> None:
        self.hosts[name].ended = time.monotonic()
        self.took[name, op_hash] = progress.end_step(name)

    def _seconds(self, name: str, op_hash: str) -> float:
        return sum(self.took[name, op_hash].values())

    def recap(self, name: str, *, failed: bool = False) -> HostRecap:
        """The recap of the run on a host."""
        one, row = self.hosts[name], progress.rows[name]
        done = "changed" if one.changed or one.repaired else "unchanged"
        return HostRecap(
            name,
            "not reached" if one.unreached else "failed" if failed else done,
            one.changed,
            one.steps,
            (one.ended or time.monotonic()) - self.began,
            len(one.repaired),
            row.services,
            row.fetched,
            one.checks_passed,
            len(one.remains),
        )

    def find_changed(self, state: Any, hosts: Collection[Any], *, dry: bool) -> set[str]:
        """Names of hosts on which a step changed something, or would."""
        if not dry:
            return {host.name for host in hosts if self.hosts[host.name].changed}
        ops = {host: state.ops[host].values() for host in hosts}
        return {host.name for host, made in ops.items() if any(one.operation_meta._maybe_is_change for one in made)}

    def print_dry_changes(self, state: Any, names: Collection[str]) -> None:
        """Say what a run would change, of one that was only prepared."""
        order = state.get_op_order()
        for host in [one for one in state.inventory if one.name in names]:
            ops = [op_hash for op_hash in order if op_hash in state.ops[host]]
            changing = [one for one in ops if state.ops[host][one].operation_meta._maybe_is_change]
            for op_hash in changing:
                print_line(f"{host.name}: would change: {step_name(state, op_hash)}", "green")
            for line in self.hosts[host.name].repaired:
                print_line(f"{host.name}: would repair: {line}", "green")
            self.hosts[host.name].steps, self.hosts[host.name].changed = len(ops), len(changing)
        print_recap([self.recap(name) for name in names if not self.hosts[name].remains], "would change")


def step_name(state: Any, op_hash: str) -> str:
    """A step, as the roles call it: `Base: Packages`."""
    return ", ".join(sorted(state.op_meta[op_hash].names)).replace(" | ", ": ")


def fit_steps(name: str, steps: Sequence[str]) -> str:
    """The steps of a host on one line, without those that it has no room for."""
    for number in range(len(steps), 0, -1):
        more = f" and {len(steps) - number} more" if number < len(steps) else ""
        if len(line := f"{name}: {', '.join(steps[:number])}{more}") <= LINE_COLUMNS:
            return line
    return f"{name}: {format_count(len(steps), 'step')} changed something"


def print_line(line: str, colour: str | None = None) -> None:
    """Print a line, at once."""
    tables.print_prose(line, fg=colour)


def _truncate_text(text: str) -> str:
    text = printable(click.unstyle(text))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text)} characters)"


DEPLOY = ROOT / "deploy.py"


def run_deploy(
    inventory: str, verb: str, rigs: Mapping[str, Rig], data: Mapping[str, object], *, dry: bool, diff: bool
) -> None:
    """Run deploy.py over hosts.

    Args:
        inventory: The file.
        verb: The name of the run in messages.
        rigs: The hosts that are meant, and what they are to be.
        data: As pyinfra's `--data` gives it.
        dry: Say what would be done, and do nothing.
        diff: Show the lines of files that change.

    Raises:
        click.ClickException: the run is refused.
        NotAsDeclared: something failed on a host.
        HostUnreached: a host was not reached.
    """
    try:
        raise_file_limit(len(rigs))
    except TooManyHosts as error:
        raise click.ClickException(f"{inventory}: {error}") from None
    output = DeployOutput(rigs)
    _redirect_output(output)
    if only := str(data.get("only", "")):
        print_line(describe_selection(only, select_roles(only)))
    # a run of some roles, or of a switch, is no complete deploy: its checks would fail for the rest
    is_complete = verb in ("deploy", "upgrade") and not {"switch", "only"} & {*data}
    agreement = DeployAgreement(rigs, dry, print_line) if is_complete else None
    names, again = {*rigs}, {*rigs}
    serving: dict[str, str] = {}
    try:
        while again:
            state = PipelinedState(check_for_changes=dry)
            exit_codes.exit_on_interrupt(partial(describe_interruption, state))
            rerun: list[str] = []
            try:
                _run_hosts(state, output, inventory, {name: rigs[name] for name in again}, data, diff=diff)
                failed = {host for host in state.activated_hosts if host not in state.active_hosts}
                serving |= describe_serving_states(failed, {name: rig.roots for name, rig in rigs.items()})
                if agreement:
                    hosts = sorted(state.active_hosts, key=str)
                    with output.show_checks(hosts):
                        rerun = agreement.settle(hosts, output.find_changed(state, hosts, dry=dry))
                    if not dry and state.current_stage >= StateStage.Execute:
                        # a host that was refused has no failed step: nothing of it is changed
                        began = [one for one in sorted(failed, key=str) if output.hosts[one.name].step]
                        rerun += agreement.repair_failed(began)
            finally:
                if state.initialised:
                    release_deploy_locks()
                    disconnect_all(state)
            again -= {host.name for host in state.active_hosts}
            names -= again - {*rerun}
            again = {*rerun}
            for name in again:
                output.hosts[name].steps, output.hosts[name].step = 0, ""
                serving.pop(name, None)
    finally:
        progress.end_run()
        output.recorded.save()
        # a further run of this process has its own
        pyinfra.logger.removeHandler(output)
    for name, result in (agreement.results if agreement else {}).items():
        one = output.hosts[name]
        one.repaired, one.remains, one.checks_passed = result.repaired, result.remains, result.checks_passed
    output.print_notes()
    if dry:
        output.print_dry_changes(state, names)
    names -= {name for name, one in output.hosts.items() if one.remains}
    if not dry:
        print_recap([output.recap(name, failed=name not in names) for name in rigs])
    raise_failures(verb, output.hosts, names, serving, touched=state.current_stage >= StateStage.Execute)


def _redirect_output(output: DeployOutput) -> None:
    """Have what is logged, and how far jobs are, said as lines of ours."""
    warnings.simplefilter("ignore")
    silence_paramiko_log()
    pyinfra.is_cli = True
    pyinfra.logger.setLevel(logging.INFO)
    pyinfra.logger.propagate = False
    pyinfra.logger.addHandler(output)
    for stream in (sys.stdout, sys.stderr):
        # a test's has no such setting
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(line_buffering=True)


def _run_hosts(
    state: PipelinedState,
    output: DeployOutput,
    inventory: str,
    rigs: Mapping[str, Rig],
    data: Mapping[str, object],
    *,
    diff: bool,
) -> None:
    """Connect to hosts, prepare their steps and take them.

    Raises:
        click.ClickException: the run is refused, on its only host.
    """
    sys.path.append(".")
    state.cwd = os.getcwd()  # noqa: PTH109 (pyinfra joins it as text)
    config = Config(DIFF=diff)
    config.lock_current_state()
    ctx_state.set(state)
    ctx_config.set(config)
    made = load_pyinfra_inventory(inventory, data)
    ctx_inventory.set(made)
    state.init(made, config, initial_limit=[host for host in made if host.name in rigs])
    state.callback_handlers.append(output)
    pace_hosts(state)
    errors = HostPipelines(state, str(DEPLOY), rigs, output).run()
    for name, error in errors.items():
        if len(rigs) == 1 and isinstance(error, PyinfraError) and not state.executing:
            raise click.ClickException(_describe_error(error)) from None
        output.hosts[name].errors.append(_describe_error(error))


def _describe_error(error: Exception) -> str:
    cause = error.exception if isinstance(error, UnexpectedExternalError) else error
    kind = type(cause).__name__
    text = "\n".join(printable(line) for line in str(cause).splitlines())
    if isinstance(error, PyinfraError):
        return text or kind
    words = f"{kind}: {text}" if text else kind
    return f"{words}; with -v the same command shows where"


def describe_interruption(state: State) -> str:
    """The message of a run that Ctrl-C has ended."""
    going = {task.host: task.text for task in progress.tasks if task.detached}
    if going:
        said = "; ".join(f"the job on {host} continues ({text})" for host, text in sorted(going.items()))
        return f"\nStopped watching; {said}. The same command watches again.\n"
    if state.current_stage < StateStage.Execute:
        return "\nStopped; nothing was changed.\n"
    return "\nStopped in the middle; the same command continues from there.\n"
