"""What verbs that measure instances have in common: consent, what is refused, and where an engine tells its figures."""

from __future__ import annotations

import json
from typing import NoReturn

import click

from checks.looking import Box
from cli.ending import Refused
from rigwright.engines import kind_of
from rigwright.engines.metrics import read
from rigwright.engines.request import MODELS, Request
from rigwright.model.rig import Instance
from rigwright.problems import printable
from roles.client import Client, Failed

SOON = 10.0  # seconds for a look at metrics


def metrics_path(box: Box, instance: Instance) -> str:
    """Where an instance tells its metrics; empty where it does not."""
    made = box.desired().installations[instance.installed_as]
    return kind_of(instance).service(box.rig, instance, made).metrics or ""


def undisturbed(box: Box, instance: Instance, client: Client, metrics: str, beside_others: bool) -> None:
    """Refuse what is somebody else's server, and without consent an instance that others are using.

    Raises:
        Refused: it is one of those.
        roles.client.Failed: as `ours`.
        roles.client.Lost: as `ours`.
    """
    ours(box, instance, client)
    seen = read(client.ask(Request(metrics), SOON).body, kind_of(instance).counts) if metrics else None
    if seen and seen.busy and not beside_others:
        raise Refused(
            f"{box.name}: {instance.name} works on {(seen.running or 0) + (seen.waiting or 0):.0f} requests of others: "
            "they would be slowed, and their tokens counted; --beside-others loads it all the same"
        )


def ours(box: Box, instance: Instance, client: Client) -> None:
    """Refuse what is somebody else's server.

    Raises:
        Refused: it is.
        roles.client.Failed: it does not name its model.
        roles.client.Lost: the job or the connection is gone.
    """
    reply = client.ask(MODELS, SOON)
    try:
        names = [str(one["id"]) for one in json.loads(reply.body)["data"]]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise Failed(f"{instance.name} does not name its model: {printable(reply.said)[:300]}") from None
    if client.place.model not in names:
        served = printable(", ".join(names)[:100]) or "nothing"
        raise Refused(
            f"{box.name}: what answers for {instance.name} serves {served}, and not {client.place.model}: it is "
            "another server, or another model than declared"
        )


def no_room(host: str, instance: Instance, tokens: int) -> NoReturn:
    """Refuse what does not fit into a request.

    Raises:
        click.UsageError: always.
    """
    _, room = instance.variant.capacity or (0, 0)
    raise click.UsageError(f"{host}: a request to {instance.name} has room for {room} tokens, and not for {tokens}")
