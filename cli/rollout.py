"""`rigwright rollout`: a change of many boxes in batches, which stops at the first box that fails its gate."""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass

import click

from cli import import_speedups
from cli.deploy_verbs import REBOOT_OPTION
from cli.exit_codes import InvalidRequest, NotAsDeclared
from cli.inventory_loading import INVENTORY_ARGUMENT, load_host_rigs, load_hosts, require_deployable
from cli.option_types import WholeNumber
from cli.rollout_control import (
    describe_foreign_rollout,
    find_late_refusal,
    hold_rollout_lock,
    load_resumable,
    read_request,
    refuse_unfinished,
    rollout_command,
    send_request,
)
from cli.shell_completion import LIMIT_OPTION
from cli.tables import print_prose
from rigwright.host_selection import format_hosts
from rigwright.model.maintenance_window import parse_window
from rigwright.problems import CausedError, format_value
from rigwright.rollout.batch_plan import BatchLimits, RolloutRefused, plan_batches, resolve_batch_size
from rigwright.rollout.shared_build import choose_builders, list_receivers, place_builders_first
from rigwright.rollout.state_file import (
    BoxRecord,
    Phase,
    RolloutAction,
    RolloutSettings,
    RolloutState,
    describe_box,
    request_path,
    state_path,
)

BATCH = re.compile(r"[1-9][0-9]{0,4}|([1-9][0-9]?|100)%")
MOST_BOXES = 10_000
MOST_WINDOWS = 100
WINDOW_HELP = 'Begin batches at these times only: "Sat 02:00-05:00 Europe/Berlin"; repeatable.'


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


def _parse_windows(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    wrong = []
    for value in values:
        try:
            parse_window(value)
        except CausedError as error:
            cause = f"{error.cause}; " if error.cause else ""
            wrong.append(f"{format_value(value)} is refused: {cause}must be {error}")
    if len(values) > MOST_WINDOWS:
        wrong.append(f"{len(values)} windows: at most {MOST_WINDOWS}")
    if wrong:
        raise click.BadParameter("\n".join(wrong))
    return values


@dataclass(frozen=True)
class RolloutOrder:
    """A rollout as the command line names it."""

    inventory: str
    limit: str | None
    canary: int
    batch: str
    max_unavailable: int | None
    allowed_outages: Collection[str]
    settings: RolloutSettings


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
@click.option("--window", "windows", multiple=True, metavar="TIMES", callback=_parse_windows, help=WINDOW_HELP)
@click.option("--upgrade-driver", is_flag=True, help="Also move the NVIDIA driver, as in deploy; needs --reboot.")
@click.option("--rollback", is_flag=True, help="Return each box to its previous generation instead.")
@click.option("--driver", is_flag=True, help="With --rollback: the NVIDIA driver instead; needs --reboot.")
@click.option("--to", type=WholeNumber(1, 10**9), help="With --rollback: the generation's number.")
@REBOOT_OPTION
@click.option("--share-builds", is_flag=True, help="Copy an engine that two boxes have compiled alike to the others.")
@click.option("--dry", is_flag=True, help="Print the batches without deploying.")
@click.option("--pause", is_flag=True, help="Stop the running rollout after the present boxes.")
@click.option("--resume", is_flag=True, help="Continue a rollout that was paused, stopped or killed.")
@click.option("--abort", is_flag=True, help="End a rollout, and print the state of each box.")
@click.option(
    "--replace-controller", default="", metavar="NAME", help="The controller that ended; with --resume or --abort."
)
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
    windows: tuple[str, ...],
    upgrade_driver: bool,
    rollback: bool,
    driver: bool,
    to: int | None,
    reboot: bool,
    share_builds: bool,
    dry: bool,
    pause: bool,
    resume: bool,
    abort: bool,
    replace_controller: str,
) -> None:
    """Deploy in batches.

    Each box leaves rotation, is deployed, and passes a gate. At the first failure that box rolls back and the rollout
    stops.
    Exit status: 0, all boxes are done. 1, stopped, paused or aborted. 2, the command or a file is refused. 3, a host
    was not reached.
    Example: rigwright rollout fleet.py --batch 10% --soak 5
    """
    _refuse_combinations(context, pause=pause, resume=resume, abort=abort)
    if share_builds and rollback:
        raise click.UsageError("--rollback conflicts with --share-builds: it compiles nothing")
    _refuse_driver_combinations(rollback=rollback, to=to, driver=driver, upgrade=upgrade_driver, reboot=reboot)
    with import_speedups.without_module_locks():
        import pyinfra_cli  # noqa: F401 (it patches the standard library: before an inventory imports anything)
    if pause:
        send_request(inventory, "pause")
        print_prose("the rollout stops after the present boxes; `--resume` continues it")
    elif abort:
        from cli.rollout_abort import abort_rollout

        if state := abort_rollout(inventory, replace_controller):
            _print_boxes(state)
    elif resume:
        with hold_rollout_lock(inventory):
            _run(inventory, load_resumable(inventory), replace_controller)
    else:
        back: RolloutAction = "driver rollback" if driver else "rollback"
        action: RolloutAction = back if rollback else "upgrade" if upgrade_driver else "deploy"
        settings = RolloutSettings(
            action=action, to=to, windows=windows, reboot=reboot, share_builds=share_builds, soak_minutes=soak
        )
        order = RolloutOrder(inventory, limit, canary, batch, max_unavailable, allow_outage, settings)
        if dry:
            _plan(order)
            return
        with hold_rollout_lock(inventory):
            refuse_unfinished(inventory)
            _run(inventory, _plan(order))


def _refuse_driver_combinations(*, rollback: bool, to: int | None, driver: bool, upgrade: bool, reboot: bool) -> None:
    if to and not rollback:
        raise click.UsageError("--to needs --rollback")
    if driver and not rollback:
        raise click.UsageError("--driver needs --rollback; --upgrade-driver moves drivers forward")
    if to and driver:
        raise click.UsageError("--to takes a generation's number and conflicts with --driver")
    if rollback and upgrade:
        raise click.UsageError("--rollback conflicts with --upgrade-driver")
    if rollback and reboot and not driver:
        raise click.UsageError("--reboot needs --driver: another generation needs no reboot")
    if (upgrade or driver) and not reboot:
        name = "--driver" if driver else "--upgrade-driver"
        raise click.UsageError(f"{name} needs --reboot: another driver works after a reboot")


def _refuse_combinations(context: click.Context, **actions: bool) -> None:
    """Refuse options next to `--pause`, `--resume` and `--abort`, except for `--replace-controller`.

    Raises:
        click.UsageError: there are some.
    """
    named = [f"--{name}" for name, value in actions.items() if value]
    source = click.core.ParameterSource.COMMANDLINE
    typed = [one for one in context.params if context.get_parameter_source(one) is source and one != "inventory"]
    consents = "replace_controller" in typed
    if consents and (not named or actions["pause"]):
        raise click.UsageError("--replace-controller needs --resume or --abort")
    if named and len(typed) > 1 + consents:
        raise click.UsageError(f"{named[0]} goes with INVENTORY alone: the rollout keeps its options")


def _plan(order: RolloutOrder) -> RolloutState:
    """Look at all boxes, print the batches, and return the state to begin with.

    Raises:
        click.ClickException: the rollout is refused.
    """
    from cli.rollout_builds import without_copies
    from cli.rollout_plan import digest_inputs, print_batches, print_builders, survey_boxes
    from rigwright.rollout.box_marker import format_moment, read_clock

    rigs = load_host_rigs(load_hosts(order.inventory, None))
    targets = {name: rigs[name] for name in load_hosts(order.inventory, order.limit)}
    if order.settings.action in ("deploy", "upgrade"):  # a rollback installs nothing from lock or bundle
        for rig in targets.values():
            require_deployable(rig)
    boxes = survey_boxes(order.inventory, targets, order.settings)
    size = resolve_batch_size(order.batch, len(targets))
    soak, outages = order.settings.soak_minutes, frozenset(order.allowed_outages)
    sizes = BatchLimits(order.canary, size, order.max_unavailable, outages, soak)
    if order.settings.share_builds:
        boxes = without_copies(order.inventory, boxes)
    builders = choose_builders(boxes, targets) if order.settings.share_builds else {}
    receivers = list_receivers([box for box in boxes if box.name in targets], builders)
    boxes = place_builders_first(boxes, builders)
    try:
        batches = plan_batches(boxes, targets, sizes, read_clock())
    except RolloutRefused as error:
        raise InvalidRequest("\n".join(error.reasons)) from None
    print_batches(batches, soak)
    print_builders(receivers, builders)
    windows = {name: rig.maintenance_windows for name, rig in targets.items() if rig.maintenance_windows}
    if windows and order.settings.windows:
        print_prose(f"--window replaces the maintenance windows of {format_hosts(windows)}")
    drivers = {box.name: box.drivers for box in boxes if box.name in targets and box.drivers}
    for name, (installed, previous) in drivers.items():
        print_prose(f"{name}: driver {installed} -> {previous}, by a reboot")
    generations = {box.name: box.generation for box in boxes}
    inventory_digest, supply = digest_inputs(order.inventory, {name: rig.digest for name, rig in rigs.items()})
    return RolloutState(
        identifier=secrets.token_hex(6),
        started=format_moment(read_clock()),
        inventory_digest=inventory_digest,
        supply_digest=supply,
        settings=order.settings.model_copy(
            update={"max_unavailable": order.max_unavailable, "allowed_outages": tuple(sorted(outages))}
        ),
        windows=windows,
        builders={tree: builders[tree] for tree, names in receivers.items() if names},
        batches=tuple(one.boxes for one in batches),
        boxes={
            name: BoxRecord(generation=generations[name], driver=drivers[name][1] if name in drivers else None)
            for name in targets
        },
    )


def _run(inventory: str, state: RolloutState, replaced: str = "") -> None:
    """Run a rollout, print the recap, and raise unless it is finished."""
    from cli.exit_codes import exit_on_interrupt
    from cli.rollout_run import ForeignRollout, RolloutRun
    from cli.rollout_steps import BoxSteps, describe_interrupted_rollout
    from rigwright.rollout.box_marker import controller_name

    path = request_path(inventory)
    path.unlink(missing_ok=True)
    exit_on_interrupt(describe_interrupted_rollout)
    run = RolloutRun(
        state_path(inventory),
        state,
        BoxSteps(inventory, state.settings.action),
        print_prose,
        lambda: read_request(path),
        controller_name(inventory),
        replaced,
        find_refusal=lambda batch: find_late_refusal(inventory, state, batch),
    )
    try:
        run.claim_boxes()
        phase = run.run()
    except ForeignRollout as error:
        raise InvalidRequest(describe_foreign_rollout(inventory, error.reasons)) from None
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
    resume, again = f"`{rollout_command(inventory, '--resume')}`", f"`{rollout_command(inventory)}`"
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
        f"`{rollout_command(inventory, '--abort')}`, then {again}"
    )
