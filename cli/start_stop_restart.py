"""`rigwright start`, `stop` and `restart`: instances, by hand."""

from __future__ import annotations

import shlex

import click

from checks.connections import ConnectedHost, RigsByHost, map_inventory
from checks.results import STATUS
from cli import exit_codes, shell_completion
from cli.exit_codes import exit_if_unreached
from cli.inventory_loading import INVENTORY_ARGUMENT
from cli.prog_name import prog_name
from cli.shell_completion import LIMIT_OPTION
from cli.tables import print_prose
from rigwright.host.deploy_lock_state import render_holder_record
from rigwright.problems import describe_unknown, printable
from rigwright.serving import start_stop_by_hand
from rigwright.serving.start_stop_by_hand import LifecycleOutcome, LifecycleVerb
from rigwright.serving.takeover import drain_seconds
from roles import root_shell

INSTANCES_ARGUMENT = click.argument(
    "instances", nargs=-1, metavar="INSTANCE...", shell_complete=shell_completion.complete_instances
)
ALL_OPTION = click.option("--all", "every", is_flag=True, help="All instances of these hosts.")
SLACK = 120.0  # seconds for systemd itself


@click.command()
@INVENTORY_ARGUMENT
@INSTANCES_ARGUMENT
@ALL_OPTION
@LIMIT_OPTION
def start(inventory: str, instances: tuple[str, ...], every: bool, limit: str | None) -> None:
    """Start stopped instances.

    Waits until each answers, and prints the last log lines of one that does not.
    Example: rigwright start rig.py chat
    """
    _run_on_instances("start", inventory, instances, every, limit)


@click.command()
@INVENTORY_ARGUMENT
@INSTANCES_ARGUMENT
@ALL_OPTION
@LIMIT_OPTION
def stop(inventory: str, instances: tuple[str, ...], every: bool, limit: str | None) -> None:
    """Stop instances.

    Stopped instances stay stopped across reboots until `start` or a deploy. Open requests are cut off.
    Example: rigwright stop rig.py chat --limit box1
    """
    _run_on_instances("stop", inventory, instances, every, limit)


@click.command()
@INVENTORY_ARGUMENT
@INSTANCES_ARGUMENT
@ALL_OPTION
@LIMIT_OPTION
@click.option(
    "--recompile", is_flag=True, help="First delete their compiled kernels (FlashInfer, torch, Triton, CUDA)."
)
def restart(inventory: str, instances: tuple[str, ...], every: bool, limit: str | None, recompile: bool) -> None:
    """Restart instances.

    Keeps the deployed state: changes of INVENTORY need a deploy. Waits until each answers. Open requests are cut off.
    Example: rigwright restart rig.py chat
    """
    _run_on_instances("restart", inventory, instances, every, limit, recompile=recompile)


def _run_on_instances(
    verb: LifecycleVerb,
    inventory: str,
    instances: tuple[str, ...],
    every: bool,
    limit: str | None,
    *,
    recompile: bool = False,
) -> None:
    if bool(instances) == every:
        raise click.UsageError("name instances, or use --all")

    def judge(rigs: RigsByHost) -> None:
        there = {one.name for rig in rigs.values() for one in rig.instances}
        if wrong := [describe_unknown("instance", name, there) for name in instances if name not in there]:
            raise click.UsageError("\n".join(wrong))

    exit_codes.exit_on_interrupt(
        lambda: (
            f"\nThe hosts continue by themselves: `{prog_name()} status {shlex.quote(inventory)}` shows their state.\n"
        )
    )

    def work(box: ConnectedHost) -> LifecycleOutcome | None:
        chosen = [one.name for one in box.rig.instances if every or one.name in instances]
        if not chosen:
            return None
        print_prose(f"{box.name}: {start_stop_by_hand.DOING[verb]} {', '.join(chosen)}", err=True)
        became = _run_on_box(box, verb, chosen, recompile=recompile)
        for line in became.describe_outcome(verb):
            print_prose(f"{box.name}: {line}")
        return became

    found, gone = map_inventory(inventory, limit, work, judge)
    exit_if_unreached(gone)
    became = [one for _, one in found if one]
    if any(root_shell.is_root_denial(one.refusal) for one in became):
        raise click.exceptions.Exit(STATUS["not reached"])
    if not all(one.is_right(verb) for one in became):
        raise click.exceptions.Exit(1)


def _run_on_box(box: ConnectedHost, verb: LifecycleVerb, names: list[str], *, recompile: bool) -> LifecycleOutcome:
    holder = render_holder_record(f"{verb} of {', '.join(names)}")
    script = start_stop_by_hand.render_lifecycle_script(
        box.rig.roots, box.rig.instances, verb, names, holder, recompile=recompile, drain=drain_seconds(box.rig.gateway)
    )
    longest = max(one.variant.ready_timeout for one in box.rig.instances if one.name in names)
    try:
        # an instance may wait for what another one compiles
        answer = root_shell.run_command(box.target, script, limit=2 * longest + SLACK)
        return start_stop_by_hand.parse_outcome(answer.lines)
    except root_shell.RootDenied as error:
        return LifecycleOutcome(refusal=printable(str(error)))
    except root_shell.ConnectionGone as error:
        return LifecycleOutcome(refusal=f"lost the connection: {printable(str(error))}")
    except ValueError as error:
        return LifecycleOutcome(refusal=str(error))
