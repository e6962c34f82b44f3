"""`rigwright start`, `stop` and `restart`: instances, by hand."""

from __future__ import annotations

import shlex

import click

from checks.looking import Box, Rigs, boxes, each
from cli import completing, interrupts
from cli.calling import called
from cli.completing import LIMIT
from cli.declared import INVENTORY
from cli.ending import leave
from cli.tables import say
from rigwright.host.deploy_lock import holder_record
from rigwright.problems import printable, unknown
from rigwright.serving import by_hand
from rigwright.serving.by_hand import Outcome, Verb
from roles import root

INSTANCES = click.argument("instances", nargs=-1, metavar="INSTANCE...", shell_complete=completing.instances)
ALL = click.option("--all", "every", is_flag=True, help="All instances of these hosts.")
SLACK = 120.0  # seconds for systemd itself


@click.command()
@INVENTORY
@INSTANCES
@ALL
@LIMIT
def start(inventory: str, instances: tuple[str, ...], every: bool, limit: str | None) -> None:
    """Start INSTANCEs of INVENTORY's hosts that were stopped, and wait until each answers.

    Exit status 0: all of them serve. 1: one does not; its last log lines are shown. 3: a host cannot be reached.
    Example: rigwright start ~/boxes/rig.py chat
    """
    _all("start", inventory, instances, every, limit)


@click.command()
@INVENTORY
@INSTANCES
@ALL
@LIMIT
def stop(inventory: str, instances: tuple[str, ...], every: bool, limit: str | None) -> None:
    """Stop INSTANCEs of INVENTORY's hosts. One stays stopped, over reboots too, until `start` or the next deploy.

    Its port stays taken, and clients get no answer there. Requests under way are cut off.
    Exit status 0: all of them are stopped. 1: one is not. 3: a host cannot be reached.
    Example: rigwright stop ~/boxes/rig.py chat --limit box1
    """
    _all("stop", inventory, instances, every, limit)


@click.command()
@INVENTORY
@INSTANCES
@ALL
@LIMIT
@click.option(
    "--recompile", is_flag=True, help="Remove what they have compiled (FlashInfer, torch, Triton, CUDA) before that."
)
def restart(inventory: str, instances: tuple[str, ...], every: bool, limit: str | None, recompile: bool) -> None:
    """Stop INSTANCEs of INVENTORY's hosts, start them again, and wait until each answers.

    As they were deployed: what the inventory says by now is a deploy's. Requests under way are cut off.
    Exit status 0: all of them serve. 1: one does not; its last log lines are shown. 3: a host cannot be reached.
    Example: rigwright restart ~/boxes/rig.py chat
    """
    _all("restart", inventory, instances, every, limit, recompile=recompile)


def _all(
    verb: Verb,
    inventory: str,
    instances: tuple[str, ...],
    every: bool,
    limit: str | None,
    *,
    recompile: bool = False,
) -> None:
    if bool(instances) == every:
        raise click.UsageError("name instances, or say --all")

    def judge(rigs: Rigs) -> None:
        there = {one.name for rig in rigs.values() for one in rig.instances}
        if wrong := [unknown("instance", name, there) for name in instances if name not in there]:
            raise click.UsageError("\n".join(wrong))

    interrupts.end_at_once(
        lambda: f"\nThe hosts go on by themselves: `{called()} status {shlex.quote(inventory)}` says where they are.\n"
    )
    found, gone = boxes(inventory, limit, judge)
    chosen = {box.name: [one.name for one in box.rig.instances if every or one.name in instances] for box in found}
    concerned = [box for box in found if chosen[box.name]]
    for box in concerned:
        say(f"{box.name}: {by_hand.DOING[verb]} {', '.join(chosen[box.name])}", err=True)
    became = each(concerned, lambda box: _one(box, verb, chosen[box.name], recompile=recompile))
    faulty = False
    for box, one in zip(concerned, became, strict=True):
        faulty |= not one.right(verb)
        for line in one.told(verb):
            say(f"{box.name}: {line}")
    leave(gone)
    if faulty:
        raise click.exceptions.Exit(1)


def _one(box: Box, verb: Verb, names: list[str], *, recompile: bool) -> Outcome:
    holder = holder_record(f"{verb} of {', '.join(names)}")
    script = by_hand.script(box.rig, verb, names, holder, recompile=recompile)
    longest = max(one.variant.ready_timeout for one in box.rig.instances if one.name in names)
    try:
        # an instance may wait for what another one compiles
        answer = root.run(box.target, script, limit=2 * longest + SLACK)
        return by_hand.parse(answer.lines)
    except root.Gone as error:
        return Outcome(refusal=f"the connection is gone: {printable(str(error))}")
    except ValueError as error:
        return Outcome(refusal=str(error))
