"""`rigwright bench`: speed and load of instances, as they serve and without a server."""

from __future__ import annotations

import click

from cli.lazy_commands import LazyGroup


@click.group(
    cls=LazyGroup,
    places={
        **{name: (f"bench_{name}", name) for name in ("speed", "load", "stress", "serving")},
        **{name: ("bench_offline", name) for name in ("throughput", "latency")},
    },
)
def bench() -> None:
    """Measure speed and load."""
