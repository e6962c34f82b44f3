"""Routes of replies to clients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_network

from checks.survey.section import Section, SurveyScope
from rigwright.model.inventory_schema import ShareEntry
from rigwright.monitoring.monitoring_units import MonitoringService, monitoring_services


@dataclass(frozen=True)
class ClientRoutes:
    """Routes and queues of the host's own packets."""

    unrouted: dict[str, str]
    """Client -> why nothing is sent to it."""
    shaped: list[str]
    """The settings that drop or hold back an interface's packets, and which one's."""


def first_address(network: str) -> str:
    """An address of a network."""
    found = ip_network(network, strict=False)
    return str(found[1] if found.num_addresses > 2 else found[0])


def share_client_addresses(share: ShareEntry | None) -> Iterator[str]:
    """An address of each network that may fetch weights."""
    yield from map(first_address, share.allow if share else ())


def declared_client_addresses(share: ShareEntry | None, services: Iterable[MonitoringService]) -> list[str]:
    """An address of each network that is declared to reach something."""
    return sorted(
        {*share_client_addresses(share), *(first_address(network) for one in services for network in one.clients)}
    )


def _questions(scene: SurveyScope) -> object:
    return {"clients": declared_client_addresses(scene.rig.share, monitoring_services(scene.rig))}


CLIENT_ROUTES: Section[ClientRoutes] = Section(
    "client_routes",
    ClientRoutes,
    _questions,
    blind="filters on other machines, and programs of BPF that drop packets",
    start_order=18,
)
