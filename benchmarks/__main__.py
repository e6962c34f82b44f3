"""The command line of the benchmarks: `python -m benchmarks NAME`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import click

import benchmarks.check_states
import benchmarks.environment_install
import benchmarks.fleet_connections
import benchmarks.fleet_verbs
import benchmarks.gateway_boxes
import benchmarks.gateway_overhead
import benchmarks.inventory_load
import benchmarks.noop_deploy
import benchmarks.on_demand
import benchmarks.pull_fleet
import benchmarks.timed_verbs
import benchmarks.verb_durations
import benchmarks.weight_fetch
from benchmarks import BenchmarkFailed
from benchmarks.on_demand_results import LOAD_HEAD, MODEL_HEAD
from cli.bench_options import JSON_OPTION, parse_counts
from cli.output_file import write_output
from cli.tables import Rows, format_size, print_table
from lab import base_images
from lab.machine_requirements import UnsupportedMachine
from roles.progress import progress

RELEASE = click.option(
    "--release",
    type=click.Choice(sorted(base_images.RELEASES)),
    default="debian-13",
    show_default=True,
    help="Of the hosts.",
)
RUNS = click.option("--runs", type=click.IntRange(1, 100), default=5, show_default=True, help="Timed runs of each.")
SIMULATED = partial(parse_counts, most=10_000)
LAYER = click.option(
    "--layer",
    "layers",
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    callback=lambda _, __, value: (value,) if value else (),
    help="A compiled engine, as a host layer.",
)

GATEWAY = ("engine", "streams", "way", "requests", "tokens/s", "TTFT P50 ms", "TTFT P99 ms", "ITL P99 ms")
BESIDE = ("P50 +", "P99 +", "from-to", "tokens/s \N{DIVISION SIGN}")


@contextmanager
def errors() -> Iterator[Callable[[str], None]]:
    """Give the function that shows a benchmark's steps; one that ends early ends with one line."""
    try:
        with progress.task("benchmark", "starting") as task:
            yield task.start_step
    except (BenchmarkFailed, UnsupportedMachine, RuntimeError, OSError) as error:
        raise click.ClickException(str(error)) from None


def print_report(file: str | None, text: str, head: tuple[str, ...], rows: Rows, *lines: str) -> None:
    """Print a table and lines, and write a report's text to a file, if one is named."""
    if file:
        write_output(file, text)
    print_table(head, rows)
    click.echo("\n".join(lines), nl=bool(lines))


def describe_run(report: benchmarks.timed_verbs.Report, runs: int) -> str:
    """The conditions of a benchmark, in a line."""
    load = f"load {report.load[0]:.1f} at the beginning, {report.load[1]:.1f} at the end"
    return f"{report.date}, {report.release}, {report.cpus} CPUs, medians of {runs}; {load}"


@click.group()
def main() -> None:
    """Measure Rigwright itself, beside other programs. Most need root; each prints figures and asserts none."""


@main.command()
@RELEASE
@RUNS
@LAYER
@JSON_OPTION
def converge(release: str, runs: int, layers: tuple[str, ...], file: str | None) -> None:
    """Time a deploy that changes nothing on throwaway hosts, beside ansible-core doing the same work.

    Needs root and about seven minutes, and compiles llama.cpp when no earlier run has.
    """
    with errors() as show:
        report = benchmarks.noop_deploy.measure(release, layers, runs, show)
    rows = [
        (
            *(row.verb, str(row.hosts), f"{row.median:.2f}", f"{min(row.seconds):.2f}-{max(row.seconds):.2f}"),
            *(str(row.sessions), f"{report.ratio(row):.1f} x"),
        )
        for row in report.rows
    ]
    head = ("run", "hosts", "seconds", "from-to", "remote commands", "ansible takes")
    versions = ", ".join(f"{name} {number}" for name, number in report.versions.items())
    print_report(file, report.as_json(), head, rows, f"{describe_run(report, runs)}; {versions}")


@main.command()
@RELEASE
@RUNS
@click.option("--hosts", "numbers", callback=parse_counts, default="1,8,20", show_default=True, help="How many hosts.")
@LAYER
@JSON_OPTION
def start(release: str, runs: int, numbers: list[int], layers: tuple[str, ...], file: str | None) -> None:
    """Time the verbs that are to be quick and all checks, and see what memory the controller takes.

    Needs root and memory for the throwaway hosts, and compiles llama.cpp when no earlier run has.
    """
    with errors() as show:
        report = benchmarks.verb_durations.measure(release, layers, numbers, runs, show)
    rows = [
        (
            *(row.verb, str(row.hosts or ""), f"{row.median:.2f}", f"{median(row.processor):.2f}", row.goal),
            *(f"{median(row.hosts_processor):.2f}", str(row.sessions or ""), format_size(row.peak_bytes)),
        )
        for row in report.rows
    ]
    head = ("verb", "hosts", "seconds", "processor s", "goal", "hosts' processor s", "remote commands", "memory")
    print_report(file, report.as_json(), head, rows, describe_run(report, runs))


@main.command()
@RELEASE
@RUNS
@click.option("--hosts", "numbers", callback=parse_counts, default="1,8", show_default=True, help="How many hosts.")
@click.option("--realtime", is_flag=True, help="Commands and hosts have real-time priority while they are timed.")
@LAYER
@JSON_OPTION
def states(
    release: str, runs: int, numbers: list[int], realtime: bool, layers: tuple[str, ...], file: str | None
) -> None:
    """Time the checks' questions and `check` where an instance serves, is stopped, loads, has failed, and so on.

    Also of an undeployed edit, a host without a deployment and an address without a host. Prints the first lines of
    `check` in each state. Needs root and memory for the hosts, and compiles llama.cpp when no earlier run has.
    """
    with errors() as show:
        report = benchmarks.check_states.measure(release, layers, numbers, runs, show, realtime=realtime)
    for state, lines in report.lines.items():
        click.echo("\n".join([f"{state}:", *lines, ""]))
    rows = [
        (
            *(row.verb, str(row.hosts), f"{row.median:.2f}", f"{min(row.seconds):.2f}-{max(row.seconds):.2f}"),
            *(f"{report.ratio(row):.1f}", f"{median(row.processor):.2f}"),
            "" if (further := report.further(row)) is None else f"{further:.2f}",
            *(f"{median(row.hosts_processor):.2f}", row.goal),
        )
        for row in report.rows
    ]
    head = ("run", "hosts", "seconds", "from-to", "by one", "processor s", "each further", "hosts' processor s", "goal")
    print_report(file, report.as_json(), head, rows, describe_run(report, runs))


@main.command()
@RUNS
@click.option("--boxes", type=click.IntRange(2, 10_000), default=1000, show_default=True, help="Of the larger one.")
@JSON_OPTION
def inventory(runs: int, boxes: int, file: str | None) -> None:
    """Time `validate` of inventories of many boxes that differ in name and address. Needs no root and no hosts."""
    with errors() as show:
        report = benchmarks.inventory_load.measure((1, boxes), runs, show)
    fewest = median(report.rows[0].processor)
    rows = [
        (
            *(row.verb, str(row.hosts), f"{row.median:.2f}", f"{(used := median(row.processor)):.2f}"),
            *(f"{used / fewest:.1f}", format_size(row.peak_bytes), row.goal),
        )
        for row in report.rows
    ]
    head = ("run", "boxes", "seconds", "processor s", "by the first row", "memory", "goal")
    about = f"{report.date}, {report.cpus} CPUs, medians of {runs}; load {report.load[1]:.1f} at the end"
    print_report(file, report.as_json(), head, rows, about)


@main.command()
@click.option("--runs", type=click.IntRange(1, 100), default=1, show_default=True, help="Timed runs of each.")
@click.option("--hosts", type=click.IntRange(2, 10_000), default=1000, show_default=True, help="Of the larger fleet.")
@click.option("--faulty", type=click.IntRange(0, 10_000), default=100, show_default=True, help="Of them with a fault.")
@JSON_OPTION
def fleet(runs: int, hosts: int, faulty: int, file: str | None) -> None:
    """Time the connections to many simulated hosts and one command on each, also with hosts that hang or send slowly.

    Needs no root and no hosts. The simulation shares the processors of this machine; its own seconds are reported.
    """
    if faulty >= hosts:
        raise click.UsageError(f"--faulty: must be less than --hosts ({hosts})")
    with errors() as show:
        report = benchmarks.fleet_connections.measure(hosts, faulty, runs, show)
    rows = [
        (
            *(str(row.hosts), str(row.faulty), f"{median(row.answered):.1f}", f"{median(row.ended):.1f}"),
            *(f"{median(row.processor):.2f}", f"{report.further_ms(row):.1f}" if row.hosts > 1 else ""),
            *(f"{median(row.simulation):.2f}", format_size(row.peak_bytes)),
        )
        for row in report.rows
    ]
    head = ("hosts", "faulty", "others answered s", "end s", "processor s", "ms/further host", "simulation s", "memory")
    limit = benchmarks.fleet_connections.LIMIT
    about = f"{report.date}, {report.cpus} CPUs, medians of {runs}; load {report.load:.1f}; limit {limit:.0f} s"
    print_report(file, report.as_json(), head, rows, about)


@main.command("fleet-verbs")
@RELEASE
@click.option("--runs", type=click.IntRange(1, 100), default=1, show_default=True, help="Timed runs of each.")
@click.option("--hosts", "numbers", callback=SIMULATED, default="1,100,1000", show_default=True, help="Simulated.")
@click.option("--faulty", type=click.IntRange(0, 10_000), default=12, show_default=True, help="In a further row.")
@JSON_OPTION
def fleet_verbs(release: str, runs: int, numbers: list[int], faulty: int, file: str | None) -> None:
    """Time a deploy without changes and `check` on many simulated hosts, which answer from a recording.

    Needs root for the throwaway host that is recorded. The simulation shares the processors of this machine.
    """
    if faulty >= max(numbers):
        raise click.UsageError(f"--faulty: must be less than --hosts ({max(numbers)})")
    with errors() as show:
        report = benchmarks.fleet_verbs.measure(release, numbers, faulty, runs, show)
    rows = [
        (
            *(row.verb, str(row.hosts), str(row.faulty)),
            *(f"{median(row.seconds):.1f}", f"{median(row.processor):.2f}"),
            *(f"{report.ratio(row):.1f}", f"{report.further_ms(row):.1f}" if report.ratio(row) != 1 else ""),
            *(f"{median(row.simulation):.2f}", format_size(row.peak_bytes), str(row.connections)),
        )
        for row in report.rows
    ]
    head = (
        *("verb", "hosts", "faulty", "seconds", "processor s", "by the first", "ms/further host"),
        *("simulation s", "memory", "connections"),
    )
    about = f"{report.date}, {report.release}, {report.cpus} CPUs, medians of {runs}; load {report.load:.1f}"
    print_report(file, report.as_json(), head, rows, about)


@main.command()
@click.option("--mebibytes", type=click.IntRange(64, 1 << 20), default=4096, show_default=True, help="Of made data.")
@click.option("--runs", type=click.IntRange(1, 100), default=3, show_default=True, help="Timed runs of each.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default="/var/tmp",
    show_default=True,
    help="On the disk to measure on; six times the data have to fit.",
)
@JSON_OPTION
def weights(mebibytes: int, runs: int, folder: Path, file: str | None) -> None:
    """Time weights: fetching beside curl and hf, verifying, looking at 100 GB unchanged, four boxes through one.

    Needs root, nginx, curl and openssl, and about ten minutes; all of it runs on this machine.
    """
    with errors() as show, TemporaryDirectory(prefix="rigwright-bench-", dir=folder) as scratch:
        report = benchmarks.weight_fetch.measure(Path(scratch), mebibytes, runs, show)
    rows = [
        (
            *(row.what, f"{median(row.ours):.2f}", row.against, f"{median(row.theirs):.2f}" if row.theirs else ""),
            *(f"{row.ratio:.2f}" if row.ratio is not None else "", row.goal),
        )
        for row in report.rows
    ]
    share = f"four boxes drew {report.uplink:.3f} of the model's bytes from the hub; goal: at most 1.05"
    about = f"{report.date}, {report.cpus} CPUs, {report.data_bytes / 1e9:.1f} GB, medians of up to {runs} runs"
    head = ("case", "seconds", "beside", "seconds", "ratio", "goal")
    print_report(file, report.as_json(), head, rows, share, about)


@main.command()
@click.option("--which", type=click.Choice(["vllm", "small"]), default="vllm", show_default=True, help="That is timed.")
@click.option("--fleet", type=click.Choice(["vllm", "small"]), default="small", show_default=True, help="Of 4 boxes.")
@RELEASE
@click.option("--runs", type=click.IntRange(1, 100), default=1, show_default=True, help="How often it is made.")
@JSON_OPTION
def envs(which: str, fleet: str, release: str, runs: int, file: str | None) -> None:
    """Time environments on throwaway hosts: made beside uv, unchanged beside a host that has none, shared by four.

    Needs root, a CPython 3.10 and, for vLLM's, 25 GB of disk and about a quarter of an hour; for it in a fleet, 60 GB.
    """
    with errors() as show:
        report = benchmarks.environment_install.measure(which, fleet, release, runs, show)
    head = ("case", "seconds", "beside", "seconds", "ratio", "more", "goal")
    print_report(file, report.as_json(), head, report.table, report.fleet, report.about)


@main.command()
@RELEASE
@click.option("--rounds", type=click.IntRange(1, 50), default=3, show_default=True, help="Rounds of each path.")
@click.option("--seconds", type=click.FloatRange(0.1, 600), default=5.0, show_default=True, help="Of each load.")
@click.option("--streams", callback=parse_counts, default="1,16,64", show_default=True, help="Concurrent requests.")
@click.option("--crowd", type=click.IntRange(1, 1000), default=400, show_default=True, help="Streams, for memory.")
@click.option("--litellm/--no-litellm", "with_litellm", default=True, show_default=True, help="Beside us or not.")
@LAYER
@JSON_OPTION
def gateway(
    release: str,
    rounds: int,
    seconds: float,
    streams: list[int],
    crowd: int,
    with_litellm: bool,
    layers: tuple[str, ...],
    file: str | None,
) -> None:
    """Time an instance through a gateway, beside its own port and LiteLLM's proxy, on a throwaway host.

    Five ways, each from a client on the host's own loopback interface: the instance's `socket`; its `port`, which is
    what clients have without a gateway; the `gateway`; the gateway with TLS and a key; `LiteLLM`, one worker, in front
    of the port. `paced` is a stand-in for an engine, which streams at a fixed pace and leaves the cores to what is
    measured; `real` is llama.cpp. Clients keep their connections, but for the rows `new connections`, with one for each
    answer. Streams come one after the other, in the rows `at once` all at the same moment. `+` and `÷` are beside the
    port. Needs root and some ten minutes. LiteLLM's packages (0.7 GB) go to an environment of their own, from
    locks/litellm.txt.
    """
    effort = benchmarks.gateway_overhead.Effort(rounds, seconds, tuple(streams), crowd)
    with errors() as show:
        report = benchmarks.gateway_overhead.measure(release, layers, effort, with_litellm, show)
    print_report(file, report.as_json(), (*GATEWAY, *BESIDE), report.table(), *report.goals(), report.about)


@main.command()
@RELEASE
@click.option("--rounds", type=click.IntRange(1, 50), default=5, show_default=True, help="Rounds of each load.")
@click.option("--seconds", type=click.FloatRange(0.1, 600), default=5.0, show_default=True, help="Of each load.")
@click.option("--streams", callback=parse_counts, default="1,16,64", show_default=True, help="Concurrent requests.")
@JSON_OPTION
def boxes(release: str, rounds: int, seconds: float, streams: list[int], file: str | None) -> None:
    """Time the first token of an instance of another box beside one of the gateway's own box, on two throwaway hosts.

    Stand-ins for engines of a fixed pace, through the same gateway, loads in turns. Milliseconds; `+` is the middle of
    the rounds' differences. Needs root and some five minutes.
    """
    with errors() as show:
        report = benchmarks.gateway_boxes.measure(release, rounds, seconds, streams, show)
    head = ("streams", "P50 own", "P50 other", "P99 own", "P99 other", "+ P50", "+ P99")
    about = f"{report.date}, {report.cpus} CPUs, {report.rounds} rounds, load {report.load:.1f}"
    print_report(file, report.as_json(), head, report.table(), report.goal(), about)


@main.command()
@click.option("--boxes", type=click.IntRange(1, 1000), default=1000, show_default=True, help="Simulated.")
@JSON_OPTION
def pullers(boxes: int, file: str | None) -> None:
    """Count what many simulated boxes cost the nginx from which they pull signed generations.

    Each box verifies all signatures by ssh-keygen, as real ones do, on this machine's processors. Needs nginx.
    """
    with errors() as show:
        report = benchmarks.pull_fleet.measure(boxes, show)
    rows = [
        (
            *(row.round, str(row.boxes), str(row.verified), f"{row.requests / row.boxes:.2f}"),
            *(format_size(row.sent_bytes // row.boxes), f"{row.processor:.2f}", f"{row.seconds:.1f}"),
        )
        for row in report.rows
    ]
    head = ("round", "boxes", "verified", "requests/box", "bytes/box", "nginx processor s", "seconds")
    print_report(file, report.as_json(), head, rows, f"{report.date}, {report.cpus} CPUs, load {report.load:.1f}")


@main.command("on-demand")
@RELEASE
@click.option("--pairs", type=click.IntRange(0, 100), default=10, show_default=True, help="Of a wake and a bare start.")
@click.option("--seconds", type=click.FloatRange(1, 86400), default=60, show_default=True, help="Of each load.")
@click.option("--clients", type=click.IntRange(1, 1000), default=8, show_default=True, help="Of each load.")
@click.option("--models", callback=parse_counts, default="2,5", show_default=True, help="That clients ask for.")
@click.option("--residence", type=click.IntRange(0, 600), default=5, show_default=True, help="Of `on_demand`.")
@click.option("--router/--no-router", "with_router", default=True, show_default=True, help="Whether it is measured.")
@click.option("--kills", type=click.FloatRange(0, 3600), default=0, help="Seconds between kills of Rigwright's parts.")
@click.option("--card", "with_card", is_flag=True, help="Memory of a stand-in card, not of the host.")
@JSON_OPTION
def on_demand(release: str, file: str | None, models: list[int], **extent: Any) -> None:
    """Time wakes beside bare starts of the engine, and random models beside llama-server's router mode.

    By llama.cpp on the processor of a throwaway host, with memory for one of two models, or two of more. Clients ask
    for models at random, half of them by streams; both servers get the same requests. A wake begins with the request of
    a client at the gateway and ends with the first token. Needs root and some ten minutes.
    """
    effort = benchmarks.on_demand.OnDemandEffort(models=tuple(models), **extent)
    with errors() as show:
        report = benchmarks.on_demand.measure(release, effort, show)
    print_table(LOAD_HEAD, [one.table_row() for one in report.loads])
    about = f"{report.date}, {report.cpus} CPUs, {effort.clients} clients, residence {effort.residence} s"
    rows = [row for one in report.loads for row in one.model_rows()]
    problems = [line for one in report.loads for line in one.problems()]
    print_report(file, report.as_json(), MODEL_HEAD, rows, *problems, report.goal(), f"{about}, load {report.load:.1f}")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
