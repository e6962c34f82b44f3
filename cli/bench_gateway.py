"""`rigwright bench gateway`: what a gateway costs the clients of an instance."""

from __future__ import annotations

from pathlib import Path

import click

from cli.bench_options import JSON, counts, say
from cli.tables import show
from cli.written import put
from lab import images, kept
from lab.machine import Unsupported

COLUMNS = ("engine", "streams", "way", "requests", "tokens/s", "TTFT P50 ms", "TTFT P99 ms", "ITL P99 ms")
BESIDE = ("P50 +", "P99 +", "from-to", "tokens/s \N{DIVISION SIGN}")


@click.command()
@click.option("--release", type=click.Choice(sorted(images.RELEASES)), default="debian-12", show_default=True)
@click.option("--rounds", type=click.IntRange(1, 50), default=3, show_default=True, help="Rounds of each path.")
@click.option("--seconds", type=click.FloatRange(0.1, 600), default=5.0, show_default=True, help="Of each load.")
@click.option("--streams", callback=counts, default="1,16,64", show_default=True, help="Concurrent requests.")
@click.option("--crowd", type=click.IntRange(1, 1000), default=400, show_default=True, help="Streams, for memory.")
@click.option(
    "--litellm/--no-litellm", "with_litellm", default=True, show_default=True, help="Whether it is beside us."
)
@click.option("--layer", type=click.Path(exists=True, file_okay=False), help="A compiled engine, as a host layer.")
@JSON
def gateway(
    release: str,
    rounds: int,
    seconds: float,
    streams: list[int],
    crowd: int,
    with_litellm: bool,
    layer: str | None,
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
    from bench import fronted
    from bench import gateway as bench_gateway

    layers = (str(Path(layer).resolve()),) if layer else kept.layers(release)
    effort = bench_gateway.Effort(rounds, seconds, tuple(streams), crowd)
    try:
        report = bench_gateway.measure(release, layers, effort, with_litellm, say)
    except (fronted.NotMeasured, Unsupported, RuntimeError, TimeoutError) as error:
        raise click.ClickException(str(error)) from None
    if file:
        put(file, report.as_json())
    show((*COLUMNS, *BESIDE), report.table())
    for line in (*report.goals(), report.about):
        click.echo(line)
