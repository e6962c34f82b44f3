"""Who will reach what through a gateway, in words."""

from __future__ import annotations

from ipaddress import ip_address

from rigwright.declaration.rig import Rig
from rigwright.gateway.entry import Gateway, ListenerEntry


def sentences(rig: Rig) -> list[str]:
    """A line a listener, for who is to agree to it."""
    gateway = rig.gateway
    return [_listener(name, one, rig, gateway) for name, one in sorted(gateway.listeners.items())] if gateway else []


def _listener(name: str, entry: ListenerEntry, rig: Rig, gateway: Gateway) -> str:
    offered = [one.name for one in rig.offers if gateway.offers(entry, one.name)]
    address = ip_address(entry.address)
    where = "only this host" if address.is_loopback else "everyone who reaches this host over the network"
    who = f"{where}, with a key" if entry.keys else f"{where}, without a key"
    how = "TLS" if entry.tls else "plain HTTP"
    if not entry.tls and not address.is_loopback:
        how += ": prompts and answers are sent in the clear" + (", including keys" if entry.keys else "")
    return f"{name}, {' and '.join(entry.addresses)}: {who}, may use {', '.join(offered)}; {how}"
