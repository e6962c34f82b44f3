"""Two gateways of an inventory that share an address: which boxes they are, and mistakes in their settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Interface

from rigwright.model.fleet_schema import FrontPair, VirtualAddressEntry
from rigwright.model.gateway_schema import Gateway
from rigwright.model.rig import Rig
from rigwright.problems import Problem

OWN_KEYS = frozenset({"virtual_address", "listeners", "models"})
"""Keys of a gateway that name its own addresses and instances."""


def pair_gateways(
    file: str, rigs: Mapping[str, Rig], declared: Mapping[str, Mapping[str, object]]
) -> tuple[dict[str, FrontPair], list[Problem]]:
    """The part of each box in an address that two gateways share, without boxes that share none.

    Args:
        file: The inventory, for messages.
        rigs: Its rigs that were not refused, by name.
        declared: The entries of all of its rigs, refused ones among them.
    """
    shared: dict[str, dict[str, VirtualAddressEntry]] = {}
    for name, rig in rigs.items():
        if rig.gateway and (entry := rig.gateway.virtual_address):
            shared.setdefault(entry.host, {})[name] = entry
    pairs: dict[str, FrontPair] = {}
    problems: list[Problem] = []
    for address, entries in shared.items():
        for name in entries:
            if not _has_listener_at(rigs[name].gateway, address):
                text = f"none listens on {address}, the virtual_address: set it as address of one"
                problems.append(Problem(file, f"{name}.gateway.listeners", text))
        first, *others = entries
        key = f"{first}.gateway.virtual_address"
        if not others:
            if declared.keys() == rigs.keys():  # else the other one may be among the refused
                text = f"no gateway of another box has {address}: give it to one, or use an address of {first} alone"
                problems.append(Problem(file, f"{key}.address", text))
        elif len(others) > 1:
            text = f"gateways of {', '.join(entries)} have {address}: it belongs to exactly two"
            problems.append(Problem(file, f"{key}.address", text))
        else:
            found = [*_find_pair_faults(rigs, first, others[0]), *_find_differences(rigs, first, others[0])]
            problems += [Problem(file, f"{first}.gateway.{at}", text) for at, text in found]
            pairs[first] = _describe_pair(entries, first, others[0])
            pairs[others[0]] = _describe_pair(entries, others[0], first)
    return pairs, problems


def _describe_pair(entries: Mapping[str, VirtualAddressEntry], name: str, partner: str) -> FrontPair:
    entry = entries[name]
    return FrontPair(
        address=entry.host,
        prefix=IPv4Interface(entry.address).network.prefixlen,
        source=entry.source,
        interface=entry.interface,
        priority=entry.priority,
        partner=partner,
        partner_source=entries[partner].source,
    )


def _has_listener_at(gateway: Gateway | None, address: str) -> bool:
    listeners = gateway.listeners if gateway else {}
    return any(one.address in (address, "0.0.0.0", "::") for one in listeners.values())  # noqa: S104


def _find_pair_faults(rigs: Mapping[str, Rig], first: str, second: str) -> Iterator[tuple[str, str]]:
    """Key below the gateway of the first box, and its problem, for values that cannot be in one pair."""
    one, other = _entry_of(rigs[first]), _entry_of(rigs[second])
    if one.address != other.address:
        yield "virtual_address.address", f"{one.address}, but {other.address} at {second}: use one prefix length"
    if one.source == other.source:
        yield "virtual_address.source", f"{one.source} is also the source of {second}: each box has one of its own"
    if one.priority == other.priority:
        yield (
            "virtual_address.priority",
            f"{one.priority} is also the priority of {second}: the one with the higher number gets the address first",
        )


def _entry_of(rig: Rig) -> VirtualAddressEntry:
    assert rig.gateway  # noqa: S101
    assert rig.gateway.virtual_address  # noqa: S101
    return rig.gateway.virtual_address


def _find_differences(rigs: Mapping[str, Rig], first: str, second: str) -> Iterator[tuple[str, str]]:
    """Keys of the gateway that differ between the boxes, where clients would see which of them answers."""
    one, other = (_list_settings(rigs[name], rigs) for name in (first, second))
    for key in sorted(one.keys() | other.keys()):
        if one.get(key) != other.get(key):
            yield key, f"differs from gateway.{key} of {second}, which shares the virtual_address: make them equal"


def _list_settings(rig: Rig, rigs: Mapping[str, Rig]) -> dict[str, object]:
    """Keys of a gateway that its clients see, with their values."""
    gateway = rig.gateway
    assert gateway  # noqa: S101
    found: dict[str, object] = gateway.model_dump(exclude=set(OWN_KEYS))
    shared = _entry_of(rig).host
    for name, one in gateway.listeners.items():
        if one.address == shared:
            found[f"listeners.{name}"] = one.model_dump()
    for model, instances in _list_models(rig, rigs).items():
        entry = gateway.models.get(model)
        own = entry.model_dump(exclude={"instances"}) if entry else {}
        found[f"models.{model}"] = (sorted(instances), own)
    return found


def _list_models(rig: Rig, rigs: Mapping[str, Rig]) -> dict[str, set[str]]:
    """Model -> variants that serve it."""
    assert rig.gateway  # noqa: S101
    variants = {f"{box}/{i.name}": i.variant_name for box, one in rigs.items() for i in one.instances}
    if not rig.gateway.models:
        found: dict[str, set[str]] = {}
        for one in rig.instances:
            found.setdefault(one.model_name, set()).add(one.variant_name)
        return found
    return {
        model: {variants.get(name if "/" in name else f"{rig.name}/{name}", "") for name in entry.instances}
        for model, entry in rig.gateway.models.items()
    }
