"""`rigwright bench`: how quick a deploy is that changes nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lab import images, kept
from lab.machine import Unsupported
from rigwright.cli.tables import show


@click.command()
@click.option("--release", type=click.Choice(sorted(images.RELEASES)), default="debian-12", show_default=True)
@click.option("--runs", type=click.IntRange(1, 100), default=5, show_default=True, help="How often each is timed.")
@click.option("--layer", type=click.Path(exists=True, file_okay=False), help="A compiled engine, as a host's layer.")
@click.option("--json", "file", type=click.Path(dir_okay=False), help="Also write all figures to this file.")
def bench(release: str, runs: int, layer: str | None, file: str | None) -> None:
    """Time a deploy that changes nothing on throwaway hosts, beside ansible-core doing the same work.

    Needs root and about seven minutes, and compiles llama.cpp when no earlier run has.
    """
    from bench import converge

    layers = (str(Path(layer).resolve()),) if layer else kept.layers(release)
    try:
        report = converge.measure(release, layers, runs, lambda text: print(f"{text} ...", file=sys.stderr, flush=True))
    except (converge.NotConverged, Unsupported, RuntimeError, TimeoutError) as error:
        raise click.ClickException(str(error)) from None
    if file:
        Path(file).write_text(report.as_json())
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
