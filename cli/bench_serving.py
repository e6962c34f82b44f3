"""`rigwright bench serving`: one instance by its unit, bare, through its port, or beside another one."""

from __future__ import annotations

from statistics import median

import click

from bench.load_statistics import PORT, ServingReport
from cli.bench_options import JSON_OPTION, parse_counts
from cli.exit_codes import NotAsDeclared
from cli.inventory_loading import INVENTORY_ARGUMENT
from cli.option_types import WholeNumber
from cli.output_file import write_output
from cli.tables import print_table
from rigwright.problems import describe_unknown
from roles.progress import progress

GOAL = 0.99
"""Of the bare process's tokens a second; of the unit's, for the port."""


@click.command()
@INVENTORY_ARGUMENT
@click.option("--limit", help="Host or group to use; the first of several.")
@click.option("--instance", help="Default: the host's first.")
@click.option("--beside", metavar="OTHER", help="Compare with another instance instead of the bare process.")
@click.option("--streams", callback=parse_counts, default="1,4,16", show_default=True, help="Concurrent requests.")
@click.option(
    "--requests", type=WholeNumber(1, 1000), default=2, show_default=True, help="Requests per stream and load."
)
@click.option("--tokens", type=WholeNumber(2, 4096), default=128, show_default=True, help="Tokens per answer.")
@click.option("--loads", type=WholeNumber(1, 100), default=4, show_default=True, help="Loads per side and round.")
@click.option("--rounds", type=WholeNumber(1, 50), default=3, show_default=True, help="Rounds of each side.")
@click.option(
    "--together", is_flag=True, help="Run both processes at once and alternate requests; memory must hold both."
)
@JSON_OPTION
def serving(
    inventory: str,
    limit: str | None,
    instance: str | None,
    beside: str | None,
    streams: list[int],
    requests: int,
    tokens: int,
    loads: int,
    rounds: int,
    together: bool,
    file: str | None,
) -> None:
    """Compare the sandboxed unit with a bare process.

    Measures the process without a sandbox (`bare`), its unit (`unit`), and the unit through its declared port
    (`port`). --beside measures another instance instead of `bare`. Stops and starts the deployed instance ROUNDS
    times: use a box without clients. Deploys wait. More --loads and --rounds narrow the margin of error.
    Example: rigwright bench serving ~/boxes/rig.py --limit box1 --instance chat
    """
    from checks.connections import RigsByHost, connect_inventory
    from cli.exit_codes import exit_if_unreached

    def judge(rigs: RigsByHost) -> None:
        there = {one.name for rig in rigs.values() for one in rig.instances}
        for option, name in (("--instance", instance), ("--beside", beside)):
            if name is not None and name not in there:
                raise click.UsageError(f"{option}: {describe_unknown('instance', name, there)}")

    found, gone = connect_inventory(inventory, limit, judge)
    if not found:
        exit_if_unreached(gone)
    box = found[0]
    by_name = {one.name: one for one in box.rig.instances}
    chosen = instance or next(iter(by_name), "")
    for name in (chosen, beside):
        if name is not None and name not in by_name:
            raise click.ClickException(
                f"{box.name}: {describe_unknown('instance', name, by_name) if name else 'no instance'}"
            )
    if beside == chosen:
        raise click.ClickException(f"{box.name}: {chosen} compared with itself: choose another instance")

    from bench import alternating_runs
    from bench import sandbox_overhead as bench_serving

    try:
        other = by_name[beside] if beside else None
        sizes = (streams, requests, tokens, loads, rounds)
        with progress.task(box.name, chosen) as task:
            report = bench_serving.measure(box, by_name[chosen], *sizes, task.start_step, other, together=together)
    except alternating_runs.MeasurementFailed as error:
        raise NotAsDeclared(f"{box.name}: {error}") from None
    if file:
        write_output(file, report.as_json())
    columns = ("streams", "served", "tokens/s", "TTFT P50 ms", "TTFT P99 ms", "ITL P50 ms", "ITL P99 ms")
    print_table((*columns, "beside", "tokens/s \N{DIVISION SIGN}", "from-to", "TTFT + ms", "from-to"), _rows(report))
    for line in _sure(report):
        click.echo(line)
    click.echo(_port(report))
    ready = ", ".join(f"{process} {median(taken):.1f} s" for process, taken in report.starts.items())
    click.echo(f"from its start until it is ready: {ready}" + (f"; other is {beside}" if beside else ""))
    on = report.machine
    click.echo(
        f"{report.date}, {on.host}, {on.instance} ({on.variant}, {on.slots} parallel sequences), "
        f"{on.card or 'no card'}, {on.engine}, {on.cpus} CPUs; medians of {rounds} rounds x {loads} loads, "
        f"{requests} requests a stream, each {report.prompt_tokens} tokens in and {tokens} out"
    )


def _rows(report: ServingReport) -> list[tuple[str, ...]]:
    """A line for each way of serving under so many streams, with what it is in terms of the one beside it."""
    rows = []
    for row in report.rows:
        times = (row.first_s(50), row.first_s(99), row.gap_s(50), row.gap_s(99))
        told: tuple[str, ...] = ("",) * 5
        if row.way in report.baseline_ways:
            pairs = report.pairs(row.streams, row.way)
            ratios, later = pairs.ratios, [1000 * seconds for seconds in pairs.later_s]
            told = (
                *(report.baseline_ways[row.way], f"{pairs.median_ratio:.3f}", f"{min(ratios):.3f}-{max(ratios):.3f}"),
                *(f"{1000 * pairs.median_later_s:+.2f}", f"{min(later):+.2f} to {max(later):+.2f}"),
            )
        figures = (f"{row.tokens_a_second:.1f}", *(f"{1000 * seconds:.2f}" for seconds in times))
        rows.append((str(row.streams), row.way, *figures, *told))
    return rows


def _sure(report: ServingReport) -> list[str]:
    """The verdict about each ratio of tokens per second, a line each."""
    lines = []
    for row in report.rows:
        if row.way in report.baseline_ways:
            sure = report.interval(row.streams, row.way)
            said = f"{row.way} by {report.baseline_ways[row.way]}, streams {row.streams}: "
            lines.append(
                said + f"{sure.ratio:.3f}, {sure.low:.3f} to {sure.high:.3f} with 95 % confidence ({sure.groups} "
                f"{'pairs of loads' if row.way == PORT else 'rounds'}): {sure.describe_against_goal(GOAL)}"
                if sure
                else said + "one round does not show how starts differ: use more --rounds"
            )
    return lines


def _port(report: ServingReport) -> str:
    """The cost of the port, in the worst of the numbers of streams."""
    pairs = [report.pairs(count, PORT) for count in report.streams]
    later, lost = max(1000 * one.median_later_s for one in pairs), max(100 * (1 - one.median_ratio) for one in pairs)
    return (
        f"socket unit and proxy, at worst: TTFT {later:+.2f} ms, tokens/s {-lost:+.1f} %; "
        "goal: at most 1 ms later and 1 % less"
    )
