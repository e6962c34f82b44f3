"""`rigwright load`: how many requests instances answer at once, and what limits them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path

import click

from bench.loading import CHAT_TOKENS, PROGRAMS, WORKLOADS, Plan, Subject, Workload, climb, own
from checks.looking import Box
from checks.results import STATUS
from cli.bench_options import counts, say
from cli.clients import INSTANCE, Door, Interrupt, alone, chosen, door, door_of, reach
from cli.completing import LIMIT
from cli.declared import INVENTORY
from cli.ending import lacking
from cli.interrupts import STATUS as INTERRUPTED
from cli.ladders import Ladder, tell, write
from cli.measured import metrics_path, no_room, undisturbed
from rigwright.model.rig import Instance, Rig
from roles.client import Failed, Lost

STREAMS = "10,30,64,128,200,256"


@click.command()
@INVENTORY
@LIMIT
@INSTANCE
@door
@click.option("--together", is_flag=True, help="All instances of a host at once, in place of one after the other.")
@click.option("--streams", callback=counts, default=STREAMS, show_default=True, help="Requests under way at once.")
@click.option("--seconds", type=click.FloatRange(1, 3600), default=30.0, show_default=True, help="Of each step.")
@click.option(
    "--workload",
    type=click.Choice(sorted(WORKLOADS)),
    default="chat",
    show_default=True,
    help="Answers of at most 150 tokens (chat) or 50 (short), or four of five chats (mix).",
)
@click.option("--prompts", type=click.Path(dir_okay=False, path_type=Path), help="A file of your own, a prompt a line.")
@click.option(
    "--tokens",
    type=click.IntRange(1, 100_000),
    help="Maximum answer length for --prompts, in tokens.  [default: 150]",
)
@click.option("--thinking", is_flag=True, help="Keep the instance's thinking mode; off by default.")
@click.option("--beside-others", is_flag=True, help="Run even if others are using the instance; slows them down.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False), help="Also write all figures to this file.")
@click.option("--csv", "csv_file", type=click.Path(dir_okay=False), help="Also write a row a step to this file.")
def load(
    inventory: str,
    limit: str | None,
    instance: tuple[str, ...],
    gateway: bool,
    listener: str | None,
    key_file: str | None,
    together: bool,
    streams: list[int],
    seconds: float,
    workload: str,
    prompts: Path | None,
    tokens: int | None,
    thinking: bool,
    beside_others: bool,
    json_file: str | None,
    csv_file: str | None,
) -> None:
    """How many requests at once instances of INVENTORY answer, how fast, and what limits them.

    A closed loop: each of so many streams asks again as soon as it is answered, for some seconds; then more streams.
    Clients run on the host, at the instance's own socket; --gateway goes through the front door, where requests that
    find its queue full are counted as refused. Figures have the names and the meaning of `vllm bench serve`; TTFT is
    the time to the first token, with the wait for a free parallel sequence in it, TPOT that of each further token,
    latency that of the whole answer. Deploys are refused meanwhile.
    Exit status 0: all was answered. 1: not all. 2: refused. 3: a host cannot be reached. What came until an interrupt
    or a lost connection is shown and written, marked as not complete.
    Example: rigwright load ~/boxes/rig.py --limit box1 --instance chat --streams 1,4,16
    """
    way = door_of(gateway, listener, key_file)
    plan = Plan(_workload(workload, prompts, tokens), tuple(sorted(streams)), seconds, thinking)

    def judge(host: str, rig: Rig, one: Instance) -> None:
        way.place(host, rig, one)
        _room(host, one, plan.workload)

    found, gone = reach(inventory, limit, instance, judge)
    pairs = chosen(found, instance)
    interrupt = Interrupt()
    made: list[Ladder] = []
    try:
        for box in found:
            mine = [one for at, one in pairs if at is box]
            for group in [mine] if together and mine else [[one] for one in mine]:
                if not interrupt.asked:
                    made.append(_ladder(box, group, way, plan, interrupt, beside_others))
                    tell(made[-1])
    finally:
        write(made, json_file, csv_file)
    lacking(gone)
    if interrupt.asked:
        sys.exit(INTERRUPTED)
    sys.exit(
        STATUS["not reached"]
        if gone or any(one.ended == "host lost" for one in made)
        else not all(one.whole for one in made)
    )


def _workload(name: str, prompts: Path | None, tokens: int | None) -> Workload:
    if prompts is None:
        if tokens is not None:
            raise click.UsageError("--tokens goes with --prompts: a workload has its own")
        return WORKLOADS[name]
    try:
        return own(prompts, tokens or CHAT_TOKENS)
    except ValueError as error:
        raise click.UsageError(f"--prompts: {error}") from None


def _room(host: str, instance: Instance, workload: Workload) -> None:
    if instance.variant.capacity and workload.tokens >= instance.variant.capacity[1]:
        no_room(host, instance, workload.tokens)


def _ladder(
    box: Box, group: Sequence[Instance], way: Door, plan: Plan, interrupt: Interrupt, beside_others: bool
) -> Ladder:
    names = " and ".join(one.name for one in group)
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    with alone(box, f"load of {names} of {box.rig.inventory}") as lock, ExitStack() as stack:
        ladder = Ladder(box.name, plan, [], now)
        try:
            for one in group:
                client = stack.enter_context(interrupt.client(box, way.place(box.name, box.rig, one), *PROGRAMS))
                metrics = "" if way.gateway else metrics_path(box, one)
                undisturbed(box, one, client, metrics, beside_others)
                ladder.subjects.append(Subject(client, one, metrics))
            for _ in climb(ladder.subjects, plan, lambda text: say(f"{box.name}: {names}: {text}")):
                ladder.steps += 1
                if lock.lost:
                    raise Lost(f"the deploy lock is gone: {lock.lost}")
        except Lost as error:
            ladder.ended = "interrupted" if interrupt.asked else "host lost"
            if not interrupt.asked:
                click.echo(f"{box.name}: {error}", err=True)
        except Failed as error:
            ladder.ended = "failed"
            click.echo(f"{box.name}: {error}", err=True)
        if not ladder.ended and ladder.steps < len(plan.streams):
            ladder.ended = "nothing is answered any more"
        return ladder
