"""Who will reach what through a gateway, in words."""

from __future__ import annotations

from ipaddress import ip_address

from rigwright.gateway.served_models import offers_of
from rigwright.model.gateway.entry import Gateway, ListenerEntry
from rigwright.model.instance import Instance


def describe_access(instances: tuple[Instance, ...], gateway: Gateway | None) -> list[str]:
    """A line for each listener, and for each model with harmful request fields allowed."""
    if not gateway:
        return []
    open_fields = [
        f"{one.name}: {', '.join(one.allow_fields)}" for one in offers_of(instances, gateway) if one.allow_fields
    ]
    return [
        _describe_listener(name, one, instances, gateway, gateway) for name, one in sorted(gateway.listeners.items())
    ] + [f"request fields that can harm an engine are allowed for {one}" for one in open_fields]


def _describe_listener(
    name: str, entry: ListenerEntry, instances: tuple[Instance, ...], gateway_entry: Gateway | None, gateway: Gateway
) -> str:
    offered = [one.name for one in offers_of(instances, gateway_entry) if gateway.has_model(entry, one.name)]
    address = ip_address(entry.address)
    where = "only this host" if address.is_loopback else "everyone who reaches this host over the network"
    who = f"{where}, with a key" if entry.keys else f"{where}, without a key"
    how = "TLS" if entry.tls else "plain HTTP"
    if not entry.tls and not address.is_loopback:
        how += ": prompts and answers are sent in the clear" + (", including keys" if entry.keys else "")
    return f"{name}, {' and '.join(entry.addresses)}: {who}, may use {', '.join(offered)}; {how}"
