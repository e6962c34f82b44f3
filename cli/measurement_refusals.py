"""Common parts of verbs that measure instances: consent, refusals, and where an engine reports its figures."""

from __future__ import annotations

import json
from typing import NoReturn

import click

from checks.connections import ConnectedHost
from cli.exit_codes import InvalidRequest
from cli.observed_box import describe_unanswered
from rigwright.engines import kind_of
from rigwright.engines.instance_request import MODELS, InstanceRequest
from rigwright.engines.metrics import parse_metrics
from rigwright.gateway.gateway_units import PROBE_TIMEOUT
from rigwright.model.instance import Instance
from rigwright.operate.chat_reply import NoChatMessage, parse_message
from rigwright.operate.gateway_probes import PROBE, ProbeAllowance, count_probing_gateways
from rigwright.problems import format_count, printable
from roles.client import ClientJobFailed, HostClient

RECENT_SECONDS = 10.0  # seconds for a look at metrics


def metrics_path(box: ConnectedHost, instance: Instance) -> str:
    """Where an instance tells its metrics; empty where it does not."""
    made = box.resolve_desired().installations[instance.installed_as]
    return kind_of(instance).service(box.rig, instance, made).metrics or ""


def refuse_busy(
    box: ConnectedHost, instance: Instance, client: HostClient, metrics: str, beside_others: bool
) -> ProbeAllowance | None:
    """Refuse a foreign server, and without consent an instance with other clients.

    Returns the tokens that probes of gateways may take meanwhile.

    Raises:
        InvalidRequest: it is one of those.
        roles.client.ClientJobFailed: as `refuse_foreign_server`.
        roles.client.ClientJobLost: as `refuse_foreign_server`.
    """
    refuse_foreign_server(box, instance, client)
    if not metrics:
        return None
    gateways = count_probing_gateways(box.rig.instances, box.rig.gateway, instance.name)
    count = 0 if beside_others else _count_requests(instance, client, metrics)
    probes = _measure_probe(client, gateways) if gateways and count <= gateways else None
    if count and probes:
        # a probe of the gateway's ends as soon as ours
        count = _count_requests(instance, client, metrics)
    if count:
        raise InvalidRequest(
            f"{box.name}: {instance.name} works on {format_count(round(count), 'request')} of others: "
            "the run would slow them and count their tokens; --beside-others runs it anyway"
        )
    return probes


def _count_requests(instance: Instance, client: HostClient, metrics: str) -> float:
    reply = client.send_request(InstanceRequest(metrics), RECENT_SECONDS)
    seen = parse_metrics(reply.body, kind_of(instance).metric_names)
    return (seen.running or 0) + (seen.waiting or 0)


def _measure_probe(client: HostClient, gateways: int) -> ProbeAllowance | None:
    """The tokens of probes of so many gateways; None where the answer to one lacks them."""
    try:
        message = parse_message(client.send_request(PROBE, PROBE_TIMEOUT))
    except NoChatMessage:
        return None
    if not message.prompt_tokens or message.tokens is None:
        return None
    return ProbeAllowance(message.prompt_tokens + message.tokens, gateways=gateways)


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
        said = printable(reply.description)[:300]
        asleep = client.place.at == instance.socket  # a request at the gateway loads it
        if not reply.status and (state := describe_unanswered(box, instance, box.rig.inventory, asleep=asleep)):
            raise ClientJobFailed(f"{said}: {state}") from None
        raise ClientJobFailed(f"{instance.name} does not name its model: {said}") from None
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
