"""What verbs that measure instances have in common: consent, what is refused, and where an engine tells its figures."""

from __future__ import annotations

from typing import NoReturn

import click

from checks.looking import Box
from cli.clients import Refused
from rigwright.declaration.rig import Instance
from rigwright.engines.metrics import read
from rigwright.engines.request import Request
from roles.client import Client

SOON = 10.0  # seconds for a look at metrics
REACHED = 3  # exit status where a host is not


def metrics_path(box: Box, instance: Instance) -> str:
    """Where an instance tells its metrics; empty where it does not."""
    made = box.desired().installations[instance.installed_as]
    return instance.kind.service(box.rig, instance, made).metrics or ""


def undisturbed(box: Box, instance: Instance, client: Client, metrics: str, yes: bool) -> None:
    """Refuse an instance that others are using, without consent.

    Raises:
        Refused: it is, and there is none.
        roles.client.Lost: the job or the connection is gone.
    """
    seen = read(client.ask(Request(metrics), SOON).body, instance.kind.counts) if metrics else None
    if seen and seen.busy and not yes:
        raise Refused(
            f"{box.name}: {instance.name} works on {(seen.running or 0) + (seen.waiting or 0):.0f} requests of others: "
            "they would be slowed, and their tokens counted; --yes loads it all the same"
        )


def no_room(box: Box, instance: Instance, tokens: int) -> NoReturn:
    """Refuse what does not fit into a request.

    Raises:
        click.UsageError: always.
    """
    _, room = instance.variant.capacity or (0, 0)
    raise click.UsageError(f"{box.name}: a request to {instance.name} has room for {room} tokens, and not for {tokens}")
