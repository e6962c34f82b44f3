"""`rigwright show`: one topic of an inventory or its hosts in detail."""

from __future__ import annotations

import click

from cli.lazy_commands import LazyGroup


@click.group(
    cls=LazyGroup,
    places={
        **{topic: ("show_deployed", topic) for topic in ("generations", "models")},
        "variants": ("show_variants", "variants"),
        "patches": ("show_patches", "patches"),
        "advisories": ("show_advisories", "advisories"),
        **{topic: ("show_declared", topic) for topic in ("url", "compose")},
        "report": ("show_report", "report"),
    },
)
def show() -> None:
    """Print models, URLs and more."""
