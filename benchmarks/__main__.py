"""`rigwright bench`: what the project promises to be quick at, measured. Of an instance's speed alone it is judged."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import click

from cli.bench_gateway import gateway
from cli.bench_monitoring import monitoring
from cli.bench_offline import latency, throughput
from cli.bench_options import JSON, counts, say
from cli.bench_serving import serving
from cli.bench_speed import speed
from cli.calling import Listed
from cli.declared import INVENTORY
from cli.tables import show, size
from cli.written import put
from lab import images, kept
from lab.machine import Unsupported


@click.group(cls=Listed)
def bench() -> None:
    """Measure instances, quick verbs, unchanged deploys, checks, a gateway, monitoring, weights, or a build."""


bench.add_command(gateway)
bench.add_command(latency)
bench.add_command(monitoring)
bench.add_command(serving)
bench.add_command(speed)
bench.add_command(throughput)


@bench.command()
@click.option("--release", type=click.Choice(sorted(images.RELEASES)), default="debian-12", show_default=True)
@click.option("--runs", type=click.IntRange(1, 100), default=5, show_default=True, help="Timed runs of each.")
@click.option("--layer", type=click.Path(exists=True, file_okay=False), help="A compiled engine, as a host layer.")
@JSON
def converge(release: str, runs: int, layer: str | None, file: str | None) -> None:
    """Time a deploy that changes nothing on throwaway hosts, beside ansible-core doing the same work.

    Needs root and about seven minutes, and compiles llama.cpp when no earlier run has.
    """
    from bench import converge

    layers = (str(Path(layer).resolve()),) if layer else kept.layers(release)
    try:
        report = converge.measure(release, layers, runs, say)
    except (converge.NotConverged, Unsupported, RuntimeError, TimeoutError) as error:
        raise click.ClickException(str(error)) from None
    if file:
        put(file, report.as_json())
    rows: list[tuple[str, ...]] = [
        (
            *(row.run, str(row.hosts), f"{row.median:.2f}", f"{min(row.seconds):.2f}-{max(row.seconds):.2f}"),
            *(str(row.operations or ""), str(row.sessions), f"{report.ratio(row):.1f} x"),
        )
        for row in report.rows
    ]
    show(("run", "hosts", "seconds", "from-to", "operations", "remote commands", "ansible takes"), rows)
    versions = ", ".join(f"{name} {number}" for name, number in report.versions.items())
    click.echo(
        f"{report.date}, {report.release}, {report.cpus} CPUs, medians of {runs}; {versions}; "
        f"load {report.load[0]:.1f} at the beginning, {report.load[1]:.1f} at the end"
    )


@bench.command()
@click.option("--release", type=click.Choice(sorted(images.RELEASES)), default="debian-12", show_default=True)
@click.option("--runs", type=click.IntRange(1, 100), default=5, show_default=True, help="Timed runs of each.")
@click.option("--hosts", "numbers", callback=counts, default="1,8,20", show_default=True, help="Over how many of them.")
@click.option("--layer", type=click.Path(exists=True, file_okay=False), help="A compiled engine, as a host layer.")
@JSON
def start(release: str, runs: int, numbers: list[int], layer: str | None, file: str | None) -> None:
    """Time the verbs that are to be quick, and see what memory the controller takes, on throwaway hosts.

    Needs root and memory for the hosts, and compiles llama.cpp when no earlier run has.
    """
    from bench import start

    layers = (str(Path(layer).resolve()),) if layer else kept.layers(release)
    try:
        report = start.measure(release, layers, numbers, runs, say)
    except (start.Failed, Unsupported, RuntimeError, TimeoutError) as error:
        raise click.ClickException(str(error)) from None
    if file:
        put(file, report.as_json())
    rows: list[tuple[str, ...]] = [
        (
            *(row.verb, str(row.hosts or ""), f"{median(row.seconds):.2f}", f"{median(row.processor):.2f}", row.goal),
            *(str(row.sessions or ""), size(row.peak_bytes)),
        )
        for row in report.rows
    ]
    show(("verb", "hosts", "seconds", "processor s", "goal", "remote commands", "memory"), rows)
    click.echo(
        f"{report.date}, {report.release}, {report.cpus} CPUs, medians of {runs}; "
        f"load {report.load[0]:.1f} at the beginning, {report.load[1]:.1f} at the end"
    )


@bench.command()
@click.option("--release", type=click.Choice(sorted(images.RELEASES)), default="debian-12", show_default=True)
@click.option("--runs", type=click.IntRange(1, 100), default=5, show_default=True, help="Timed runs of each.")
@click.option("--hosts", "numbers", callback=counts, default="1,8", show_default=True, help="Over how many of them.")
@click.option("--layer", type=click.Path(exists=True, file_okay=False), help="A compiled engine, as a host layer.")
@JSON
def check(release: str, runs: int, numbers: list[int], layer: str | None, file: str | None) -> None:
    """Time all checks on throwaway hosts, beside the same list asked one by one by testinfra over its own ssh.

    Needs root and memory for the hosts, and compiles llama.cpp when no earlier run has.
    """
    from bench import conform, start

    layers = (str(Path(layer).resolve()),) if layer else kept.layers(release)
    try:
        measured = conform.measure(release, layers, numbers, runs, say)
    except (start.Failed, Unsupported, RuntimeError, TimeoutError) as error:
        raise click.ClickException(str(error)) from None
    report = measured.report
    if file:
        put(file, report.as_json())
    asked = {"check": measured.checks, "testinfra": measured.questions}
    rows: list[tuple[str, ...]] = [
        (
            *(row.verb, str(row.hosts), str(asked[row.verb]), f"{median(row.seconds):.2f}", f"{min(row.seconds):.2f}"),
            *(row.goal, f"{median(row.processor):.2f}", f"{median(row.hosts_processor):.2f}"),
            *(str(row.sessions), size(row.peak_bytes)),
        )
        for row in report.rows
    ]
    titles = (
        "what",
        "hosts",
        "checks a host",
        "seconds",
        "least",
        "goal",
        "processor s",
        "hosts' own",
        "remote commands",
    )
    show((*titles, "memory"), rows)
    longest = ", ".join(f"{name} {seconds:.2f}" for name, seconds in measured.longest)
    click.echo(f"the survey's longest parts, all of them at once, least seconds: {longest}")
    click.echo(
        f"{report.date}, {report.release}, {report.cpus} CPUs, medians of {runs}; "
        f"load {report.load[0]:.1f} at the beginning, {report.load[1]:.1f} at the end"
    )


@bench.command("compile")
@INVENTORY
@click.option("--limit", help="Host or group to use; the first of several.")
def compile_(inventory: str, limit: str | None) -> None:
    """Build an installed engine again with plain cmake and ninja, beside the time that its deploy took.

    The host of INVENTORY must be deployed from a bundle: the source is taken from there. What is built is removed.
    Example: rigwright bench compile inventory/metal.py
    """
    from checks.looking import boxes
    from cli.ending import leave

    found, gone = boxes(inventory, limit)
    if not found:
        leave(gone)

    from bench import compile as bench_compile
    from roles.root import Failed

    columns = (
        "engine",
        "architectures",
        "CPUs",
        "role s",
        "of it compiling s",
        "plain s",
        "role \N{DIVISION SIGN} plain",
    )
    rows = []
    for engine in found[0].rig.engines:
        say(f"building {engine}, plainly")
        try:
            report = bench_compile.measure(found[0], engine)
        except (bench_compile.NotMeasured, Failed) as error:
            raise Failed(f"{found[0].name}: {error}") from None
        numbers = (report.cpus, report.role, report.role_compiling, report.plain)
        rows.append((engine, report.architectures or "CPU", *map(str, numbers), f"{report.ratio:.2f}"))
    show(columns, rows)


@bench.command()
@click.option("--mebibytes", type=click.IntRange(64, 1 << 20), default=4096, show_default=True, help="Of made data.")
@click.option("--runs", type=click.IntRange(1, 100), default=3, show_default=True, help="Timed runs of each.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default="/var/tmp",  # noqa: S108 # a folder of its own is made in it
    show_default=True,
    help="On the disk to measure on; six times the data have to fit.",
)
@JSON
def weights(mebibytes: int, runs: int, folder: Path, file: str | None) -> None:
    """Time weights: fetching beside curl and hf, verifying, looking at 100 GB unchanged, four boxes through one.

    Needs root, nginx, curl and openssl, and about ten minutes; all of it runs on this machine.
    """
    from tempfile import TemporaryDirectory

    from bench import weights as bench_weights
    from bench.made import NotMeasured

    with TemporaryDirectory(prefix="rigwright-bench-", dir=folder) as scratch:
        try:
            report = bench_weights.measure(Path(scratch), mebibytes, runs, say)
        except (NotMeasured, OSError) as error:
            raise click.ClickException(str(error)) from None
    if file:
        put(file, report.as_json())
    rows: list[tuple[str, ...]] = [
        (
            *(row.what, f"{median(row.ours):.2f}", row.against, f"{median(row.theirs):.2f}" if row.theirs else ""),
            *(f"{row.ratio:.2f}" if row.ratio is not None else "", row.goal),
        )
        for row in report.rows
    ]
    show(("what", "seconds", "beside", "seconds", "ratio", "goal"), rows)
    click.echo(f"four boxes drew {report.uplink:.3f} of the model's bytes from the hub; goal: at most 1.05")
    click.echo(f"{report.date}, {report.cpus} CPUs, {report.data_bytes / 1e9:.1f} GB, medians of up to {runs} runs")


@bench.command()
@click.option("--which", type=click.Choice(["vllm", "small"]), default="vllm", show_default=True, help="That is timed.")
@click.option(
    "--fleet", type=click.Choice(["vllm", "small"]), default="small", show_default=True, help="Of four boxes."
)
@click.option("--release", type=click.Choice(sorted(images.RELEASES)), default="debian-12", show_default=True)
@click.option("--runs", type=click.IntRange(1, 100), default=1, show_default=True, help="How often it is made.")
@JSON
def envs(which: str, fleet: str, release: str, runs: int, file: str | None) -> None:
    """Time environments on throwaway hosts: made beside uv, unchanged beside a host that has none, shared by four.

    Needs root, a CPython 3.10 and, for vLLM's, 25 GB of disk and about a quarter of an hour; for it in a fleet, 60 GB.
    """
    from bench import envs as bench_envs

    try:
        report = bench_envs.measure(which, fleet, release, runs, say)
    except (bench_envs.NotMeasured, Unsupported, RuntimeError, TimeoutError) as error:
        raise click.ClickException(str(error)) from None
    if file:
        put(file, report.as_json())
    show(("what", "seconds", "beside", "seconds", "ratio", "more", "goal"), report.table)
    click.echo(report.fleet)
    click.echo(report.about)
