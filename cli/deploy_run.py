"""A run of deploy.py over hosts, in this process, with an output of our own."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Collection, Mapping
from typing import Any

import click
import pyinfra
from pyinfra.api.config import Config
from pyinfra.api.connect import connect_all, disconnect_all
from pyinfra.api.exceptions import OperationError, PyinfraError
from pyinfra.api.operations import run_ops
from pyinfra.api.state import State, StateStage
from pyinfra.context import ctx_config, ctx_inventory, ctx_state
from pyinfra_cli.exceptions import UnexpectedExternalError
from pyinfra_cli.inventory import make_inventory
from pyinfra_cli.util import load_deploy_file

from cli import signals
from cli.deploy_output import DeployOutput, HostProgress
from cli.exit_codes import HostUnreached, NotAsDeclared
from rigwright.model.rig import Rig
from rigwright.model.roots import Roots
from rigwright.paths import ROOT
from rigwright.problems import printable
from rigwright.serving import observed
from roles import root_shell
from roles.connection_failures import silence_paramiko_log
from roles.deploy_lock import release_deploy_locks
from roles.progress import progress

DEPLOY = ROOT / "deploy.py"
STATE_TIMEOUT_S = 10.0  # seconds within which a host on which something failed has to say what it serves
RERUN_HINT = "run the same command again"


def run_deploy(
    inventory: str, verb: str, rigs: Mapping[str, Rig], data: Mapping[str, object], *, dry: bool, diff: bool
) -> None:
    """Run deploy.py over hosts.

    Args:
        inventory: The file.
        verb: What the run is called in messages.
        rigs: The hosts that are meant, and what they are to be.
        data: As pyinfra's `--data` gives it.
        dry: Say what would be done, and do nothing.
        diff: Show the lines of files that change.

    Raises:
        click.ClickException: the run is refused.
        NotAsDeclared: something failed on a host.
        HostUnreached: a host was not reached.
    """
    output = DeployOutput(rigs)
    _redirect_output(output)
    state = State(check_for_changes=dry)
    signals.exit_on_interrupt(lambda: describe_interruption(state))
    serving: dict[str, str] = {}
    try:
        wrong = _run_stages(state, output, inventory, rigs, data, dry=dry, diff=diff)
        failed = {host for host in state.activated_hosts if wrong or host not in state.active_hosts}
        serving = {host.name: _describe_serving(host, rigs[host.name].roots) for host in failed}
    finally:
        if state.initialised:
            release_deploy_locks()
            disconnect_all(state)
    names = {host.name for host in state.active_hosts} if not wrong else set()
    if dry:
        output.print_dry_changes(state, names)
    else:
        output.print_changes(names)
    _raise_failures(verb, output.hosts, names, serving, wrong, touched=state.current_stage >= StateStage.Execute)


def _redirect_output(output: DeployOutput) -> None:
    """Have what is logged, and how far jobs are, said as lines of ours."""
    warnings.simplefilter("ignore")
    silence_paramiko_log()
    pyinfra.is_cli = True
    pyinfra.logger.setLevel(logging.INFO)
    pyinfra.logger.propagate = False
    pyinfra.logger.addHandler(output)
    progress.use_plain_stdout()
    for stream in (sys.stdout, sys.stderr):
        # a test's has no such setting
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(line_buffering=True)


def _run_stages(
    state: State,
    output: DeployOutput,
    inventory: str,
    names: Collection[str],
    data: Mapping[str, object],
    *,
    dry: bool,
    diff: bool,
) -> str:
    """Connect, prepare and run; returns what ended the run for all hosts, or nothing.

    Raises:
        click.ClickException: the run is refused.
    """
    sys.path.append(".")
    state.cwd = os.getcwd()  # noqa: PTH109 (pyinfra joins it as text)
    config = Config(DIFF=diff)
    config.lock_current_state()
    ctx_state.set(state)
    ctx_config.set(config)
    made = make_inventory(inventory, cwd=state.cwd, override_data=dict(data))
    ctx_inventory.set(made)
    state.init(made, config, initial_limit=[host for host in made if host.name in names])
    state.add_callback_handler(output)
    try:
        state.set_stage(StateStage.Connect)
        connect_all(state)
        state.set_stage(StateStage.Prepare)
        load_deploy_file(state, str(DEPLOY))
        if not dry:
            state.set_stage(StateStage.Execute)
            run_ops(state)
    except OperationError as error:
        return _describe_error(error)
    except PyinfraError as error:
        if not state.active_hosts:
            return ""
        if state.current_stage < StateStage.Execute:
            raise click.ClickException(_describe_error(error)) from None
        return _describe_error(error)
    except UnexpectedExternalError as error:
        return (
            f"{type(error.exception).__name__}: {_describe_error(error.exception)}; with -v the same "
            f"command shows where"
        )
    return ""


def _describe_error(error: Exception) -> str:
    said = [printable(line) for line in str(error).splitlines()]
    return "\n".join(said) or type(error).__name__


def _describe_serving(target: Any, roots: Roots) -> str:
    """What a host serves after something failed on it, in words; empty where it does not say."""
    try:
        script = observed.render_state_query(
            roots.config, roots.software, roots.startup_records, roots.builds, roots.ledger
        )
        found = observed.parse(
            root_shell.run_command(target, script, limit=STATE_TIMEOUT_S, whole=STATE_TIMEOUT_S).lines
        )
    except (ValueError, *root_shell.BROKEN):
        return ""
    if found.current is None:
        return "nothing is served there"
    up = sorted(
        name.removeprefix("rigwright-").removesuffix(".service")
        for name, process in found.processes.items()
        if process.running and name.startswith("rigwright-")
    )
    return f"generation {found.current} is served ({', '.join(up)})" if up else "no instance runs there"


def _raise_failures(
    verb: str,
    hosts: Mapping[str, HostProgress],
    fine: Collection[str],
    serving: Mapping[str, str],
    wrong: str,
    *,
    touched: bool,
) -> None:
    """Say what failed on which host, what is served there, and what to do.

    Raises:
        NotAsDeclared: on a host that was reached.
        HostUnreached: a host was not.
    """
    bad = {name: one for name, one in sorted(hosts.items()) if name not in fine}
    if not bad:
        return
    alone = len(hosts) == 1
    lines = [
        f"{name}: {_describe_failure(one, serving.get(name, ''), wrong, touched, alone)}" for name, one in bad.items()
    ]
    where = f"on {len(bad)} of {len(hosts)} hosts" if len(hosts) > 1 else f"on {next(iter(bad))}"
    text = f"{verb} failed {where}"
    if len(bad) == 1:
        text += f": {lines[0].removeprefix(f'{next(iter(bad))}: ') if alone else lines[0]}"
    else:
        text += "".join(f"\n  {line}" for line in lines)
    raise (HostUnreached if any(one.unreached for one in bad.values()) else NotAsDeclared)(text)


def _describe_failure(one: HostProgress, serving: str, wrong: str, touched: bool, alone: bool) -> str:
    serves = f". {serving[:1].upper()}{serving[1:]}" if serving else ""
    if one.unreached:
        # of several, each was said with its reason as soon as that was known
        why = f"cannot be reached: {one.unreached}" if alone else "cannot be reached"
        return f"{why}. Nothing was done there; {RERUN_HINT} once it answers"
    refused = [line for line in one.errors if line.startswith("refused: ")]
    if refused and not one.step:
        more = f" (and {len(refused) - 1} more, above)" if refused[1:] else ""
        return f"{refused[0]}{more}. Nothing was changed there{serves}. Fix that, then {RERUN_HINT}"
    reason = wrong or (one.errors[-1].strip() if one.errors else "the connection is gone")
    what = f"{one.step}: {reason}" if one.step else reason
    goes_on = f"{RERUN_HINT}: it continues from there" if touched else RERUN_HINT
    return f"{what}{serves}. Fix that, then {goes_on}"


def describe_interruption(state: State) -> str:
    """What is said of a run that Ctrl-C has ended."""
    going = {task.host: task.text for task in progress.tasks if task.detached}
    if going:
        said = "; ".join(f"{host} goes on {_describe_activity(text)}" for host, text in sorted(going.items()))
        return f"\nStopped watching; {said}. The same command watches again.\n"
    if state.current_stage < StateStage.Execute:
        return "\nStopped; nothing was changed.\n"
    return "\nStopped in the middle; the same command continues from there.\n"


def _describe_activity(text: str) -> str:
    first = text.partition(" ")[0]
    return text if first.endswith("ing") else f"with {text}"
