"""`rigwright load`: how many requests instances answer at once, and what limits them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path

import click

from bench.ladder_run import (
    CHAT_TOKENS,
    PROGRAMS,
    WORKLOADS,
    LadderPlan,
    LadderSubject,
    LoadWorkload,
    load_prompts,
    run_ladder,
)
from checks.connections import ConnectedHost
from checks.results import STATUS
from cli.bench_options import parse_counts, print_progress
from cli.exit_codes import print_unreached
from cli.instance_access import (
    INSTANCE_OPTION,
    ClientAccess,
    InterruptHandler,
    access_options,
    connect_boxes,
    hold_deploy_lock,
    parse_access,
    select_instances,
)
from cli.inventory_loading import INVENTORY_ARGUMENT
from cli.load_report import LoadLadder, print_ladder, write_ladders
from cli.measurement_guard import metrics_path, refuse_busy, refuse_context_overflow
from cli.shell_completion import LIMIT_OPTION
from cli.signals import INTERRUPTED_STATUS
from rigwright.model.instance import Instance
from rigwright.model.rig import Rig
from roles.client import ClientJobFailed, ClientJobLost

STREAMS = "10,30,64,128,200,256"


@click.command()
@INVENTORY_ARGUMENT
@LIMIT_OPTION
@INSTANCE_OPTION
@access_options
@click.option("--together", is_flag=True, help="All instances of a host at once, in place of one after the other.")
@click.option(
    "--streams", callback=parse_counts, default=STREAMS, show_default=True, help="Requests under way at once."
)
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
    way = parse_access(gateway, listener, key_file)
    plan = LadderPlan(_parse_workload(workload, prompts, tokens), tuple(sorted(streams)), seconds, thinking)

    def judge(host: str, rig: Rig, one: Instance) -> None:
        way.resolve_endpoint(host, rig, one)
        _refuse_oversized(host, one, plan.workload)

    found, gone = connect_boxes(inventory, limit, instance, judge)
    pairs = select_instances(found, instance)
    interrupt = InterruptHandler()
    made: list[LoadLadder] = []
    try:
        for box in found:
            mine = [one for at, one in pairs if at is box]
            for group in [mine] if together and mine else [[one] for one in mine]:
                if not interrupt.asked:
                    made.append(_measure_ladder(box, group, way, plan, interrupt, beside_others))
                    print_ladder(made[-1])
    finally:
        write_ladders(made, json_file, csv_file)
    print_unreached(gone)
    if interrupt.asked:
        sys.exit(INTERRUPTED_STATUS)
    sys.exit(
        STATUS["not reached"]
        if gone or any(one.ended == "host lost" for one in made)
        else not all(one.is_complete for one in made)
    )


def _parse_workload(name: str, prompts: Path | None, tokens: int | None) -> LoadWorkload:
    if prompts is None:
        if tokens is not None:
            raise click.UsageError("--tokens goes with --prompts: a workload has its own")
        return WORKLOADS[name]
    try:
        return load_prompts(prompts, tokens or CHAT_TOKENS)
    except ValueError as error:
        raise click.UsageError(f"--prompts: {error}") from None


def _refuse_oversized(host: str, instance: Instance, workload: LoadWorkload) -> None:
    if instance.variant.capacity and workload.max_tokens >= instance.variant.capacity[1]:
        refuse_context_overflow(host, instance, workload.max_tokens)


def _measure_ladder(
    box: ConnectedHost,
    group: Sequence[Instance],
    way: ClientAccess,
    plan: LadderPlan,
    interrupt: InterruptHandler,
    beside_others: bool,
) -> LoadLadder:
    names = " and ".join(one.name for one in group)
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    with hold_deploy_lock(box, f"load of {names} of {box.rig.inventory}") as lock, ExitStack() as stack:
        ladder = LoadLadder(box.name, plan, [], now)
        try:
            for one in group:
                client = stack.enter_context(
                    interrupt.open_client(box, way.resolve_endpoint(box.name, box.rig, one), *PROGRAMS)
                )
                metrics = "" if way.gateway else metrics_path(box, one)
                refuse_busy(box, one, client, metrics, beside_others)
                ladder.subjects.append(LadderSubject(client, one, metrics))
            for _ in run_ladder(ladder.subjects, plan, lambda text: print_progress(f"{box.name}: {names}: {text}")):
                ladder.steps += 1
                if lock.lost:
                    raise ClientJobLost(f"the deploy lock is gone: {lock.lost}")
        except ClientJobLost as error:
            ladder.ended = "interrupted" if interrupt.asked else "host lost"
            if not interrupt.asked:
                click.echo(f"{box.name}: {error}", err=True)
        except ClientJobFailed as error:
            ladder.ended = "failed"
            click.echo(f"{box.name}: {error}", err=True)
        if not ladder.ended and ladder.steps < len(plan.streams):
            ladder.ended = "nothing is answered any more"
        return ladder
