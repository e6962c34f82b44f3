"""`rigwright rollout`: a deploy of many boxes in batches, which stops at the first box that fails its gate."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

import click

from cli import import_speedups
from cli.deploy_verbs import REBOOT_OPTION
from cli.exit_codes import InvalidRequest, NotAsDeclared
from cli.inventory_loading import INVENTORY_ARGUMENT, load_host_rigs, load_hosts, require_deployable
from cli.option_types import WholeNumber
from cli.prog_name import prog_name
from cli.shell_completion import LIMIT_OPTION
from cli.tables import print_prose
from rigwright.file_lock import FileLockHeld, file_lock
from rigwright.local_files import read_content, write_atomically
from rigwright.problems import format_value
from rigwright.rollout.batch_plan import BatchLimits, RolloutRefused, plan_batches, resolve_batch_size
from rigwright.rollout.state_file import (
    BoxRecord,
    Phase,
    Request,
    RolloutSettings,
    RolloutState,
    UnreadableState,
    describe_box,
    describe_other_inputs,
    load_state,
    lock_path,
    request_path,
    save_state,
    state_path,
)

BATCH = re.compile(r"[1-9][0-9]{0,4}|([1-9][0-9]?|100)%")
REQUEST_BYTES = 64
MOST_BOXES = 10_000


class BatchSize(click.ParamType[str]):
    """A number of boxes, or a share of them."""

    name = "N|%"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse any other text."""
        if not BATCH.fullmatch(value):
            self.fail(
                f"{format_value(value)} is refused: must be a number of boxes, or a share such as 10%", param, ctx
            )
        return value


@click.command()
@INVENTORY_ARGUMENT
@LIMIT_OPTION
@click.option(
    "--canary", type=WholeNumber(0, MOST_BOXES), default=1, show_default=True, help="Boxes of the first batch; 0: none."
)
@click.option(
    "--batch", type=BatchSize(), default="1", show_default=True, help="Boxes of each further batch, or a share."
)
@click.option("--max-unavailable", type=WholeNumber(1, MOST_BOXES), help="Most boxes out of service at the same time.")
@click.option(
    "--soak", type=WholeNumber(0, 10_080), default=0, metavar="MINUTES", help="Wait after each gate, and check again."
)
@click.option(
    "--allow-outage", multiple=True, metavar="MODEL", help="Allow this model's last instance to stop; repeatable."
)
@REBOOT_OPTION
@click.option("--dry", is_flag=True, help="Print the batches without deploying.")
@click.option("--pause", is_flag=True, help="Stop the running rollout after the present boxes.")
@click.option("--resume", is_flag=True, help="Continue a rollout that was paused, stopped or killed.")
@click.option("--abort", is_flag=True, help="End a rollout, and print the state of each box.")
@click.pass_context
def rollout(
    context: click.Context,
    inventory: str,
    limit: str | None,
    canary: int,
    batch: str,
    max_unavailable: int | None,
    soak: int,
    allow_outage: tuple[str, ...],
    reboot: bool,
    dry: bool,
    pause: bool,
    resume: bool,
    abort: bool,
) -> None:
    """Deploy in batches.

    Each box is deployed, checked, asked for a completion and compared with its speed baseline. If one fails, it returns
    to its previous generation and the rollout stops: all further boxes stay as they are. INVENTORY's .rollout.json has
    the state.
    Exit status: 0, all boxes are done. 1, stopped, paused or aborted. 2, the command or a file is refused. 3, a host
    was not reached.
    Example: rigwright rollout fleet.py --canary 1 --batch 10% --soak 5
    """
    _refuse_combinations(context, pause=pause, resume=resume, abort=abort)
    with import_speedups.without_module_locks():
        import pyinfra_cli  # noqa: F401 (it patches the standard library: before an inventory imports anything)
    if pause:
        _request(inventory, "pause")
        print_prose("the rollout stops after the present boxes; `--resume` continues it")
    elif abort:
        _abort(inventory)
    elif resume:
        with _hold_lock(inventory):
            _run(inventory, _load_resumable(inventory))
    else:
        limits = (canary, batch, max_unavailable, allow_outage)
        if dry:
            _plan(inventory, limit, limits, RolloutSettings(reboot=reboot, soak_minutes=soak))
            return
        with _hold_lock(inventory):
            _refuse_unfinished(inventory)
            state = _plan(inventory, limit, limits, RolloutSettings(reboot=reboot, soak_minutes=soak))
            save_state(state_path(inventory), state)
            _run(inventory, state)


def _refuse_combinations(context: click.Context, **actions: bool) -> None:
    """Refuse options next to `--pause`, `--resume` and `--abort`.

    Raises:
        click.UsageError: there are some.
    """
    named = [f"--{name}" for name, value in actions.items() if value]
    source = click.core.ParameterSource.COMMANDLINE
    typed = [one for one in context.params if context.get_parameter_source(one) is source and one != "inventory"]
    if named and len(typed) > 1:
        raise click.UsageError(f"{named[0]} goes with INVENTORY alone: the rollout keeps its options")


def _plan(
    inventory: str, limit: str | None, limits: tuple[int, str, int | None, Collection[str]], settings: RolloutSettings
) -> RolloutState:
    """Look at all boxes, print the batches, and return the state to begin with.

    Raises:
        click.ClickException: the rollout is refused.
    """
    from cli.rollout_plan import digest_inputs, print_batches, survey_boxes

    rigs = load_host_rigs(load_hosts(inventory, None))
    targets = {name: require_deployable(rigs[name]) for name in load_hosts(inventory, limit)}
    canary, batch, most, outages = limits
    boxes = survey_boxes(inventory, targets, reboot=settings.reboot)
    sizes = BatchLimits(canary, resolve_batch_size(batch, len(targets)), most, frozenset(outages))
    try:
        batches = plan_batches(boxes, targets, sizes)
    except RolloutRefused as error:
        raise InvalidRequest("\n".join(error.reasons)) from None
    print_batches(batches, settings.soak_minutes)
    generations = {box.name: box.generation for box in boxes}
    inventory_digest, supply = digest_inputs(inventory, {name: rig.digest for name, rig in rigs.items()})
    return RolloutState(
        started=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        inventory_digest=inventory_digest,
        supply_digest=supply,
        settings=settings,
        batches=tuple(one.boxes for one in batches),
        boxes={name: BoxRecord(generation=generations[name]) for name in targets},
    )


def _load_state(inventory: str) -> RolloutState | None:
    try:
        return load_state(state_path(inventory))
    except UnreadableState as error:
        raise InvalidRequest(str(error)) from None


def _refuse_unfinished(inventory: str) -> None:
    state = _load_state(inventory)
    if state and not state.is_ended:
        phase = "was cut off" if state.phase == "running" else f"is {state.phase}"
        raise InvalidRequest(
            f"the rollout of {state.started} {phase}: `{_command(inventory, '--resume')}` continues it, "
            f"`{_command(inventory, '--abort')}` ends it"
        )


def _load_resumable(inventory: str) -> RolloutState:
    from cli.rollout_plan import digest_inputs

    state = _load_state(inventory)
    if state is None or state.is_ended:
        phase = f"the last one is {state.phase}" if state else f"there is no {state_path(inventory).name}"
        raise InvalidRequest(f"no rollout to resume: {phase}")
    supplies = {name: rig.digest for name, rig in load_host_rigs(load_hosts(inventory, None)).items()}
    if changed := describe_other_inputs(state, *digest_inputs(inventory, supplies)):
        raise InvalidRequest(
            f"refused: {changed}. Undo the change, or end that rollout with `{_command(inventory, '--abort')}` and "
            "start another one"
        )
    return state


@contextmanager
def _hold_lock(inventory: str, patience: float | None = 0.0) -> Iterator[None]:
    """Be the only controller of this inventory's rollout.

    Raises:
        InvalidRequest: another process is.
    """
    try:
        with file_lock(lock_path(inventory), f"rollout of {Path(inventory).name}", patience):
            yield
    except FileLockHeld as error:
        raise InvalidRequest(f"refused: another rollout is running: {error}; --pause stops it") from None


def _request(inventory: str, word: str) -> bool:
    """Ask the running controller; whether there is one.

    Raises:
        InvalidRequest: `pause` without a running controller.
    """
    try:
        with file_lock(lock_path(inventory), "look for a rollout", 0.0):
            pass
    except FileLockHeld:
        write_atomically(request_path(inventory), f"{word}\n", private=True)
        return True
    if word == "pause":
        raise InvalidRequest("no rollout is running")
    return False


def _read_request(path: Path) -> Request:
    """The request for the running controller; any other content is ignored."""
    try:
        word = read_content(path, REQUEST_BYTES).strip()
    except ValueError:
        return ""
    return "pause" if word == b"pause" else "abort" if word == b"abort" else ""


def _abort(inventory: str) -> None:
    if (state := _load_state(inventory)) is None or state.is_ended:
        raise InvalidRequest("no rollout to abort")
    _request(inventory, "abort")
    with _hold_lock(inventory, None):
        request_path(inventory).unlink(missing_ok=True)
        state = _load_state(inventory) or state
        if state.phase != "finished":
            state = state.with_phase("aborted")
            save_state(state_path(inventory), state)
    _print_boxes(state)
    print_prose(f"the rollout is {state.phase}; nothing is rolled back: `{prog_name()} rollback` does that")


def _run(inventory: str, state: RolloutState) -> None:
    """Run a rollout, print the recap, and raise unless it is finished."""
    from cli.exit_codes import exit_on_interrupt
    from cli.rollout_run import RolloutRun
    from cli.rollout_steps import BoxSteps, describe_interrupted_rollout

    path = request_path(inventory)
    path.unlink(missing_ok=True)
    exit_on_interrupt(describe_interrupted_rollout)
    run = RolloutRun(state_path(inventory), state, BoxSteps(inventory), print_prose, lambda: _read_request(path))
    phase = run.run()
    path.unlink(missing_ok=True)
    click.echo()
    _print_boxes(run.state)
    if message := _describe_end(inventory, run.state, phase):
        raise NotAsDeclared(message)


def _print_boxes(state: RolloutState) -> None:
    for batch in state.batches:
        for name in batch:
            print_prose(describe_box(name, state.boxes[name]))


def _describe_end(inventory: str, state: RolloutState, phase: Phase) -> str:
    """Why a rollout is not finished, and the command that continues; empty if it is."""
    if phase == "finished":
        return ""
    resume, again = f"`{_command(inventory, '--resume')}`", f"`{_command(inventory)}`"
    if phase == "paused":
        return f"rollout paused; {resume} continues it"
    if phase == "aborted":
        return f"rollout aborted; {again} starts another one"
    failed = state.find_box("failed", "restored")
    waiting = state.find_box("waiting")
    untouched = f"; untouched: {', '.join(waiting)}" if waiting else ""
    return (
        f"rollout stopped: {', '.join(failed)} failed the gate{untouched}\n"
        f"  With the cause fixed on the box: {resume}. With another inventory or lock: "
        f"`{_command(inventory, '--abort')}`, then {again}"
    )


def _command(inventory: str, *words: str) -> str:
    return shlex.join([prog_name(), "rollout", inventory, *words])
