"""`rigwright bench load`: concurrent requests until an instance saturates, with tables, JSON and CSV."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from bench.load_ladder import (
    CHAT_TOKENS,
    PROGRAMS,
    WORKLOADS,
    LadderPlan,
    LadderSubject,
    LoadWorkload,
    load_prompts,
    run_ladder,
)
from bench.load_ladder_results import LadderStep, render_csv
from checks.connections import ConnectedHost
from checks.results import STATUS
from cli.bench_options import parse_counts
from cli.exit_codes import INTERRUPTED_STATUS, print_unreached
from cli.instance_access import (
    ClientAccess,
    InterruptHandler,
    connect_boxes,
    hold_deploy_lock,
    parse_access,
    select_instances,
)
from cli.inventory_loading import INVENTORY_ARGUMENT
from cli.measurement_refusals import metrics_path, refuse_busy, refuse_context_overflow
from cli.option_types import DecimalNumber, OutputFile, WholeNumber
from cli.output_file import write_output
from cli.shell_completion import INSTANCE_OPTION, LIMIT_OPTION, access_options
from cli.tables import print_paragraph, print_prose, print_table
from rigwright.model.instance import Instance
from rigwright.model.rig import Rig
from rigwright.problems import format_count
from roles.client import ClientJobFailed, ClientJobLost
from roles.progress import progress

SCHEMA = 1
TIMES = (
    ("TTFT", "median_ttft_ms", 0),
    ("P99", "p99_ttft_ms", 0),
    ("TPOT", "median_tpot_ms", 1),
    ("P99", "p99_tpot_ms", 1),
    ("ITL P99", "p99_itl_ms", 1),
    ("latency", "mean_e2el_ms", 0),
    ("P50", "median_e2el_ms", 0),
    ("P90", "p90_e2el_ms", 0),
    ("P99", "p99_e2el_ms", 0),
)
WIDTH = 80  # columns: of a terminal as it opens


@dataclass
class LoadLadder:
    """Instances of a box that were loaded together."""

    host: str
    plan: LadderPlan
    subjects: list[LadderSubject]
    date: str
    ended: str = ""
    """Why it is not whole; empty for one that is."""
    steps: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether every step was made, and nothing failed."""
        return not self.ended and not any(rung.failure_count for one in self.subjects for rung in one.rungs)

    def step_rows(self) -> list[dict[str, object]]:
        """A row for each step of each instance, for programs."""
        return [
            {
                **{"host": self.host, "instance": one.instance.name, "workload": self.plan.workload.name},
                **self.step_figures(rung),
                "contaminated": rung.is_contaminated,
            }
            for one in self.subjects
            for rung in one.rungs
        ]

    def step_figures(self, rung: LadderStep) -> dict[str, float | None]:
        """All of a step, `nominal_request_throughput` after the rate that identifies it."""
        found: dict[str, float | None] = {}
        for name, value in rung.figures().items():
            found[name] = value
            if name == "request_throughput":
                found["nominal_request_throughput"] = rung.nominal_throughput(self.plan.seconds)
        return found

    def as_json(self) -> dict[str, Any]:
        """All of it, for programs."""
        return {
            "host": self.host,
            "date": self.date,
            "workload": self.plan.workload.name,
            "output_tokens": self.plan.workload.max_tokens,
            "seconds": self.plan.seconds,
            "thinking": self.plan.thinking,
            "complete": not self.ended,
            "ended": self.ended,
            "instances": [
                {
                    "instance": one.instance.name,
                    "variant": one.instance.variant_name,
                    "max_num_seqs": one.capacity,
                    "saturation": {"streams": one.saturation.streams, "limit": one.saturation.limit},
                    "said": [one.saturation.said, *one.queues],
                    "steps": [
                        {**self.step_figures(rung), "contaminated": rung.is_contaminated, "errors": dict(rung.errors)}
                        for rung in one.rungs
                    ],
                }
                for one in self.subjects
            ],
        }


def print_ladder(ladder: LoadLadder) -> None:
    """Print tables, a plot, and where more streams bring no more."""
    thinking = "as it is" if ladder.plan.thinking else "off"
    for one in ladder.subjects:
        print_prose(
            f"\n{ladder.host}: {one.instance.name} ({one.instance.variant_name}), {ladder.plan.workload.name}, "
            f"{ladder.plan.seconds:g} s per step, thinking {thinking}"
        )
        if one.rungs:
            columns = ("streams", "req/s", "QPS", "tokens/s", "failed", "running", "waiting", "KV %", "")
            print_table(columns, [_rate_cells(rung, ladder.plan) for rung in one.rungs])
            seconds = f"{ladder.plan.seconds:g} s"
            print_prose(f"req/s: answers by the time until the last one; QPS: by {seconds}, as write-ups count\n")
            print_table(("streams", *(title for title, _, _ in TIMES)), [_time_cells(rung) for rung in one.rungs])
            print_prose("in ms; TTFT and TPOT: P50, latency: mean\n")
            plotted = [
                (str(rung.streams), (rung.request_throughput, rung.figures()["p99_e2el_ms"] or 0.0))
                for rung in one.rungs
            ]
            click.echo("\n".join(render_bars(("streams", "requests/s", "latency P99, ms"), plotted)))
            for said in (one.saturation.said, *one.queues):
                print_paragraph(said, hang=4)
        for rung in one.rungs:
            for said, count in rung.errors.items():
                print_paragraph(f"{format_count(rung.streams, 'stream')}: {count} x {said}", hang=4)
    if ladder.ended:
        print_prose(f"not complete: {ladder.ended}, after {ladder.steps} of {len(ladder.plan.streams)} steps")


def _rate_cells(rung: LadderStep, plan: LadderPlan) -> tuple[str, ...]:
    state = [("" if value is None else f"{value:.0f}") for value in (rung.running, rung.waiting)]
    kv = "" if rung.kv is None else f"{100 * rung.kv:.0f}"
    notes = [f"{rung.refused} refused"] if rung.refused else []
    notes += ["other clients were active"] if rung.is_contaminated else []
    requests = (f"{rung.request_throughput:.1f}", f"{rung.nominal_throughput(plan.seconds):.1f}")
    tokens = f"{rung.figures()['output_throughput']:.0f}"
    return (str(rung.streams), *requests, tokens, str(rung.failure_count), *state, kv, ", ".join(notes))


def _time_cells(rung: LadderStep) -> tuple[str, ...]:
    figures = rung.figures()
    return (str(rung.streams), *(f"{figures[name]:.{digits}f}" for _, name, digits in TIMES))


def write_ladders(made: Sequence[LoadLadder], json_file: str | None, csv_file: str | None) -> None:
    """Write ladders for programs."""
    if json_file:
        told = {"schema": SCHEMA, "ladders": [one.as_json() for one in made]}
        write_output(json_file, json.dumps(told, indent=2) + "\n")
    if csv_file:
        write_output(csv_file, render_csv([row for one in made for row in one.step_rows()]))


def render_bars(titles: Sequence[str], rows: Sequence[tuple[str, Sequence[float]]], width: int = WIDTH) -> list[str]:
    """Lines with a bar and its number for each value; each column has a scale of its own, which begins at 0.

    Args:
        titles: Of the columns, that of the rows' names first.
        rows: Name and as many values as there are further columns.
        width: Columns of text.
    """
    names = max(len(one) for one in (titles[0], *(name for name, _ in rows)))
    columns = list(zip(*(values for _, values in rows), strict=True)) or [()] * (len(titles) - 1)
    share = (width - names) // len(columns)
    drawn = [_column(title, values, share - 2) for title, values in zip(titles[1:], columns, strict=True)]
    every = zip((titles[0], *(name for name, _ in rows)), *drawn, strict=True)
    return ["  ".join((name.rjust(names), *cells)).rstrip() for name, *cells in every]


def _column(title: str, values: Sequence[float], width: int) -> list[str]:
    most = max(values, default=0.0)
    numbers = [f"{value:.{0 if most >= 100 else 1 if most >= 10 else 2}f}" for value in values]
    cell = max((len(one) for one in numbers), default=0)
    room = width - cell - 1
    lengths = [round(room * value / most) if most else 0 for value in values]
    lines = [f"{'#' * length:<{room}} {text:>{cell}}" for length, text in zip(lengths, numbers, strict=True)]
    return [title.ljust(width), *lines]


STREAMS = "10,30,64,128,200,256"


@click.command()
@INVENTORY_ARGUMENT
@LIMIT_OPTION
@INSTANCE_OPTION
@access_options
@click.option("--together", is_flag=True, help="All instances of a host at once.")
@click.option(
    "--streams", callback=parse_counts, default=STREAMS, show_default=True, help="Numbers of concurrent requests."
)
@click.option("--seconds", type=DecimalNumber(1, 3600), default=30.0, show_default=True, help="Seconds of each step.")
@click.option(
    "--workload",
    type=click.Choice(sorted(WORKLOADS)),
    default="chat",
    show_default=True,
    help="Answers of at most 150 tokens (chat) or 50 (short), or four of five chats (mix).",
)
@click.option("--prompts", type=click.Path(dir_okay=False, path_type=Path), help="A file with a prompt on each line.")
@click.option(
    "--tokens",
    type=WholeNumber(1, 100_000),
    help="Maximum answer length for --prompts, in tokens.  [default: 150]",
)
@click.option("--thinking", is_flag=True, help="Keep the instance's thinking mode; off by default.")
@click.option("--beside-others", is_flag=True, help="Run while others use the instance; slows them down.")
@click.option("--json", "json_file", type=OutputFile(), help="Also write all figures to this file.")
@click.option("--csv", "csv_file", type=OutputFile(), help="Also write a row for each step to this file.")
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
    """Measure how many streams an instance serves.

    Each step runs more streams, each of which sends its next request after its answer. Clients run on the host, at the
    instance's own socket or with --gateway at the gateway. Figures are named as in `vllm bench serve`: TTFT includes
    the wait for a free sequence. Deploys wait. An interrupt keeps the steps so far, marked as not complete.
    Exit status: 0, all requests were answered. 1, some failed. 2, the command is refused, or the instance is in use.
    3, a host was not reached.
    Example: rigwright bench load rig.py --limit box1 --instance chat --streams 1,4,16
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
            raise click.UsageError("--tokens needs --prompts: a workload sets its own")
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
                probes = refuse_busy(box, one, client, metrics, beside_others)
                ladder.subjects.append(LadderSubject(client, one, metrics, probes))
            task = stack.enter_context(progress.task(box.name, names))
            for _ in run_ladder(ladder.subjects, plan, lambda text: task.start_step(f"{names}: {text}")):
                ladder.steps += 1
                if lock.lost:
                    raise ClientJobLost(f"lost the deploy lock: {lock.lost}")
        except ClientJobLost as error:
            ladder.ended = "interrupted" if interrupt.asked else "host lost"
            if not interrupt.asked:
                click.echo(f"{box.name}: {error}", err=True)
        except ClientJobFailed as error:
            ladder.ended = "failed"
            click.echo(f"{box.name}: {error}", err=True)
        if not ladder.ended and ladder.steps < len(plan.streams):
            ladder.ended = "the instance no longer answers"
        return ladder
