"""`rigwright show`: one topic of an inventory or its hosts in detail."""

from __future__ import annotations

import click

from cli.lazy_commands import LazyGroup

TOPICS = ("generations", "models", "variants", "patches", "advisories", "url", "compose", "report")


@click.group(cls=LazyGroup, places={topic: (f"show_{topic}", topic) for topic in TOPICS})
def show() -> None:
    """Print models, URLs and more."""
