"""`rigwright bench monitoring`: what it costs an instance that its box is watched."""

from __future__ import annotations

from pathlib import Path

import click

from cli.bench_options import JSON
from cli.written import put
from lab import images, kept
from lab.machine import Unsupported


@click.command()
@click.option("--release", type=click.Choice(sorted(images.RELEASES)), default="debian-13", show_default=True)
@click.option("--rounds", type=click.IntRange(1, 50), default=5, show_default=True, help="Rounds of each load.")
@click.option("--seconds", type=click.FloatRange(0.1, 600), default=20.0, show_default=True, help="Of each load.")
@click.option("--layer", type=click.Path(exists=True, file_okay=False), help="A compiled engine, as a host layer.")
@JSON
def monitoring(release: str, rounds: int, seconds: float, layer: str | None, file: str | None) -> None:
    """Time an instance while its box is asked four times a second, and while it is not, on a throwaway host.

    This machine asks as Prometheus does: node exporter, the gateway, and the engine through it. What it costs to be
    asked every five seconds is a twentieth of that. Needs root and some five minutes; on a machine that does other
    work, what a look takes of the processor says more than tokens a second.
    """
    from bench import fronted, scraped

    layers = (str(Path(layer).resolve()),) if layer else kept.layers(release)
    try:
        report = scraped.measure(release, layers, rounds, seconds)
    except (fronted.NotMeasured, Unsupported, RuntimeError, TimeoutError) as error:
        raise click.ClickException(str(error)) from None
    if file:
        put(file, report.as_json())
    for line in report.lines():
        click.echo(line)
