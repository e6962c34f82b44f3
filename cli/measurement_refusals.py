"""Common parts of verbs that measure instances: consent, refusals, and where an engine reports its figures."""

from __future__ import annotations

import json
from typing import NoReturn

import click

from checks.connections import ConnectedHost
from cli.exit_codes import InvalidRequest
from rigwright.engines import kind_of
from rigwright.engines.instance_request import MODELS, InstanceRequest
from rigwright.engines.metrics import parse_metrics
from rigwright.model.instance import Instance
from rigwright.problems import printable
from roles.client import ClientJobFailed, HostClient

RECENT_SECONDS = 10.0  # seconds for a look at metrics


def metrics_path(box: ConnectedHost, instance: Instance) -> str:
    """Where an instance tells its metrics; empty where it does not."""
    made = box.resolve_desired().installations[instance.installed_as]
    return kind_of(instance).service(box.rig, instance, made).metrics or ""


def refuse_busy(box: ConnectedHost, instance: Instance, client: HostClient, metrics: str, beside_others: bool) -> None:
    """Refuse a foreign server, and without consent an instance with other clients.

    Raises:
        InvalidRequest: it is one of those.
        roles.client.ClientJobFailed: as `ours`.
        roles.client.ClientJobLost: as `ours`.
    """
    refuse_foreign_server(box, instance, client)
    seen = (
        parse_metrics(
            client.send_request(InstanceRequest(metrics), RECENT_SECONDS).body, kind_of(instance).metric_names
        )
        if metrics
        else None
    )
    if seen and seen.is_busy and not beside_others:
        raise InvalidRequest(
            f"{box.name}: {instance.name} works on {(seen.running or 0) + (seen.waiting or 0):.0f} requests of others: "
            "the run would slow them and count their tokens; --beside-others runs it anyway"
        )


def refuse_foreign_server(box: ConnectedHost, instance: Instance, client: HostClient) -> None:
    """Refuse a foreign server.

    Raises:
        InvalidRequest: it is.
        roles.client.ClientJobFailed: it does not name its model.
        roles.client.ClientJobLost: the job or the connection is gone.
    """
    reply = client.send_request(MODELS, RECENT_SECONDS)
    try:
        names = [str(one["id"]) for one in json.loads(reply.body)["data"]]
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ClientJobFailed(
            f"{instance.name} does not name its model: {printable(reply.description)[:300]}"
        ) from None
    if client.place.model not in names:
        served = printable(", ".join(names)[:100]) or "nothing"
        raise InvalidRequest(
            f"{box.name}: what answers for {instance.name} serves {served}, and not {client.place.model}: it is "
            "another server, or another model than declared"
        )


def refuse_context_overflow(host: str, instance: Instance, tokens: int) -> NoReturn:
    """Refuse what does not fit into a request.

    Raises:
        click.UsageError: always.
    """
    _, room = instance.variant.capacity or (0, 0)
    raise click.UsageError(f"{host}: a request to {instance.name} has room for {room} tokens, and not for {tokens}")
