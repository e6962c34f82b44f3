"""`rigwright bench`: how fast instances of an inventory are, as they serve and without a server."""

from __future__ import annotations

import click

from cli.bench_offline import latency, throughput
from cli.bench_serving import serving
from cli.bench_speed import speed
from cli.prog_name import SentenceGroup


@click.group(cls=SentenceGroup)
def bench() -> None:
    """Measure instances as they serve, and their engines without a server."""


for _command in (latency, serving, speed, throughput):
    bench.add_command(_command)
