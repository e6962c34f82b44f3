"""Problems of declared monitoring that are found before any host is asked."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

from rigwright.model.inventory_feature import Feature, Fields, RigDraft
from rigwright.model.monitoring_schema import Monitoring, allowed_scrapers
from rigwright.model.secret_sources import SecretCommand, SecretSource, validate_secret
from rigwright.monitoring.config_files import LOOPBACK, OLDER, SINCE, load_receiver_secret, receiver_secret_files
from rigwright.problems import Problem
from rigwright.supply.lock import Artefact
from rigwright.supply.root_programs import GPU_EXPORTER

if TYPE_CHECKING:
    from rigwright.host.basic_facts import ListeningSocket
    from rigwright.model.fact_types import HostFacts
    from rigwright.model.inventory_schema import RigEntry
    from rigwright.model.rig import Rig


def refuse_monitoring(
    entry: RigEntry, beside: Callable[[str | SecretCommand], SecretSource], refuse: Callable[[str, str], None]
) -> None:
    """Refuse ports that something else of the rig has, and secrets that cannot be read.

    Args:
        entry: The rig.
        beside: Resolves the source of a secret from the inventory's folder.
        refuse: Gets a key of the rig and its problem.
    """
    monitoring = entry.monitoring
    if not monitoring:
        return
    taken = {one.port: f"the port of instance {name}" for name, one in entry.instances.items()}
    taken |= {entry.share.port: "the port on which weights are shared"} if entry.share else {}
    taken |= {entry.fleet.port: "the port for gateways of other boxes"} if entry.fleet else {}
    listeners = entry.gateway.listeners.items() if entry.gateway else ()
    taken |= {one.port: f"the port of the gateway's listener {name}" for name, one in listeners}
    for key, port in monitoring.ports.items():
        if port in taken:
            refuse(f"monitoring.{key}", f"{port} is already {taken[port]}: choose another")
    for name, file in receiver_secret_files(monitoring.server).items() if monitoring.server else ():
        source = beside(file)
        try:
            validate_secret(source, partial(load_receiver_secret, name))
        except ValueError as error:
            refuse(f"monitoring.server.receivers.{name}_file", f"{source} {error}")


def find_unreachable_boxes(file: str, rigs: dict[str, Rig]) -> list[Problem]:
    """Boxes of an inventory that admit none of the addresses that scrape them, and boxes that scrape next to another.

    Args:
        file: The inventory, for messages.
        rigs: Its rigs that were not refused, by name.
    """
    servers = [one for one in rigs.values() if one.monitoring and one.monitoring.server]
    found = [
        Problem(file, f"{one.name}.monitoring.server", f"{servers[0].name} already asks all boxes of this inventory")
        for one in servers[1:]
    ]
    for asks in servers[:1]:
        at = asks.monitoring.address if asks.monitoring else ""
        for one in rigs.values():
            let_in = [ip_network(network) for network in allowed_scrapers(one.monitoring)] if one.monitoring else []
            if let_in and not any(ip_address(at) in network for network in let_in):
                said = f"{asks.name} scrapes from {at}, which is not allowed: add {ip_network(at)}"
                found.append(Problem(file, f"{one.name}.monitoring.scrapers", said))
    return found


def find_monitoring_refusals(
    monitoring: Monitoring | None, facts: HostFacts, ours: Callable[[ListeningSocket], bool]
) -> list[str]:
    """The obstacles of a host: a process of another at an address that a service is to listen at.

    Args:
        monitoring: The declared monitoring.
        facts: The host.
        ours: Whether a listener goes by itself.
    """
    if not monitoring:
        return []
    keys = {port: f"monitoring.{key}" for key, port in monitoring.ports.items()}
    found = [
        f"port {one.port} of {keys[one.port]} is taken by {one.holder_text}: stop it, or choose another port"
        for one in facts.listeners
        if one.port in keys
        and any(one.is_blocking(address) for address in (LOOPBACK, monitoring.address))
        and not ours(one)
    ]
    if not facts.has(monitoring.address):
        found.append(
            f"it has no address {monitoring.address} to be asked at, but {', '.join(sorted(facts.addresses))}: name "
            "one of these in monitoring.address"
        )
    system = f"{facts.os_id}-{facts.os_version}"
    if system in OLDER and monitoring.server:
        found += [
            f"monitoring.server.receivers.{name}.url_file needs Alertmanager {SINCE}, and {system} has "
            f"{OLDER[system]}: give url, or have another box ask"
            for name, one in monitoring.server.receivers.items()
            if one.url_file
        ]
    return sorted(set(found))


def _resolve_monitoring(draft: RigDraft) -> Fields:
    entry = draft.entry
    exporter: tuple[Artefact, ...] = ()
    if entry.monitoring:
        refuse_monitoring(entry, draft.resolve_secret, draft.refuse)
        if entry.cards:
            exporter = draft.select_wheels(GPU_EXPORTER, "monitoring", "the card exporter cannot be used: ")
    draft.artefacts += exporter
    return {"monitoring": entry.monitoring, "scrape_targets": draft.scrape_targets, "gpu_exporter": exporter}


MONITORING = Feature("monitoring", resolve=_resolve_monitoring)
