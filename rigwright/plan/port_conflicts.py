"""Ports and addresses of instances and listeners that another program of the host has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address

from rigwright.gateway.address_reservations import reserved_addresses, split_place
from rigwright.gateway.gateway_units import GATEWAY_PREFIX as GATEWAY_PREFIX
from rigwright.gateway.secrets_distribution import GATEWAY_UNIT
from rigwright.host.basic_facts import ANY, ListeningSocket
from rigwright.model.fact_types import HostFacts
from rigwright.model.gateway_schema import Gateway
from rigwright.model.instance import Instance
from rigwright.monitoring.monitoring_units import PACKAGED_PROGRAMS, unit_name
from rigwright.serving.instance_units import LOOPBACKS, PREFIX
from rigwright.weights.weight_server import SHARE_UNIT


def find_instance_conflicts(instances: tuple[Instance, ...], facts: HostFacts) -> list[str]:
    """Refusals for ports of instances."""
    # socket units that listen keep their addresses
    held = {one.port for one in facts.listeners if is_own_listener(one)}
    needed = {
        f"port {instance.port} of instance {instance.name}": [(address, instance.port) for address in LOOPBACKS]
        for instance in instances
        if instance.port not in held
    }
    return describe_used_addresses(facts, needed, "choose another port")


def describe_used_addresses(
    facts: HostFacts, needed: Mapping[str, Iterable[tuple[str, int]]], otherwise: str
) -> list[str]:
    """Refusals for addresses that processes of others listen at, one for each process.

    Args:
        facts: The host.
        needed: The listeners, for messages -> their addresses and ports.
        otherwise: The remedy where the process is to stay.
    """
    found = {
        f"{what} is in use by {one.holder_text}: stop it, or {otherwise}"
        for what, places in needed.items()
        for address, port in places
        for one in facts.listeners
        if one.port == port and one.is_blocking(address) and not is_own_listener(one)
    }
    return sorted(found)


def is_own_listener(listener: ListeningSocket) -> bool:
    """Whether a deploy moves or ends this socket itself, before another program can take its port."""
    single = (SHARE_UNIT, GATEWAY_UNIT, *map(unit_name, PACKAGED_PROGRAMS))
    return listener.unit in single or listener.unit.startswith(("rigwright-", PREFIX, GATEWAY_PREFIX))


def find_listener_conflicts(gateway: Gateway | None, facts: HostFacts) -> list[str]:
    """Refusals for addresses and ports of listeners."""
    listeners = gateway.listeners.items() if gateway else ()
    needed = {
        f"port {entry.port} of gateway.listeners.{name}": [split_place(place) for place in entry.addresses]
        for name, entry in listeners
    }
    fleet = gateway.fleet.listener if gateway else None
    if fleet:
        needed[f"port {fleet.port} of fleet"] = [(fleet.address, fleet.port)]
    found = describe_used_addresses(facts, needed, "choose another port")
    held = {one.port for one in facts.listeners if is_own_listener(one)}
    for place, one in find_reserved_conflicts(gateway, facts):
        # a user of the host must not be able to keep the next deploy from a gateway that runs
        if one.port not in held and not any(str(one.port) in reason and one.holder_text in reason for reason in found):
            found.append(
                f"{place} is in use by {one.holder_text}, and clients of the gateway that reach it would send "
                "their keys there: stop it, or choose another port"
            )
    for name, entry in listeners:
        key = f"gateway.listeners.{name}"
        if not ip_address(entry.address).is_unspecified and not facts.has(entry.own_address):
            have = ", ".join(sorted(facts.addresses))
            at = f"{key}.address" if entry.own_address == entry.address else "gateway.virtual_address.source"
            found.append(f"it has no address {entry.own_address} for {key}, only {have}: set one of these as {at}")
    if fleet and not facts.has(fleet.address):
        have = ", ".join(sorted(facts.addresses))
        found.append(f"it has no address {fleet.address} for fleet, only {have}: set one of these as fleet.address")
    return sorted(found)


def find_reserved_conflicts(gateway: Gateway | None, facts: HostFacts) -> Iterator[tuple[str, ListeningSocket]]:
    """Processes of others at addresses that are reserved beside the gateway's listeners."""
    others = [one for one in facts.listeners if not is_own_listener(one)]
    for reserved in reserved_addresses(gateway):
        for one in others:
            if reserved.is_taken_by(one, facts.addresses):
                yield (
                    format_place(one.address if reserved.held and one.address != ANY else reserved.address, one.port),
                    one,
                )


def format_place(address: str, port: int) -> str:
    """`192.0.2.7:80`, or `[::1]:80`."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
