"""Rules that packets of a host go through."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from ipaddress import ip_network

from checks.survey.section import Section, SurveyScope
from rigwright.model.inventory_schema import ShareEntry
from rigwright.monitoring.monitoring_units import MonitoringService, monitoring_services


@dataclass(frozen=True)
class NetlinkMessage:
    """A message of the kernel's (linux/netfilter/nf_tables.h)."""

    family: int
    raw: str
    """Its attributes, in base64."""


@dataclass(frozen=True)
class InterfaceAddress:
    """An address of an interface."""

    name: str
    number: int
    address: str
    prefix: int


@dataclass(frozen=True)
class NextBootRules:
    """Rules that the next boot loads."""

    chains: list[NetlinkMessage]
    rules: list[NetlinkMessage]
    sets: list[NetlinkMessage]
    elements: list[NetlinkMessage]
    failed: str
    """Why they cannot be loaded; empty where they can."""
    judged: bool = True
    """Whether they could be read: those that name interfaces by number are only where the kernel has some to make."""


@dataclass(frozen=True)
class Firewall:
    """All of it."""

    chains: list[NetlinkMessage]
    rules: list[NetlinkMessage]
    sets: list[NetlinkMessage]
    elements: list[NetlinkMessage]
    interfaces: list[InterfaceAddress]
    legacy: dict[str, str | None]
    """Program -> what it has set; None where that cannot be read."""
    ways: list[str]
    """Interfaces that lead to the rest of the world."""
    unrouted: dict[str, str]
    """Client -> why nothing is sent to it."""
    shaped: list[str]
    """What loses or holds back an interface's packets, and which one's."""
    planned: NextBootRules | None
    """Nothing where a boot loads none."""

    def after_a_boot(self) -> Firewall | None:
        """The same with the rules that the next boot loads; nothing where those could not be read."""
        one = self.planned
        if one is None or not one.judged:
            return None
        return replace(self, chains=one.chains, rules=one.rules, sets=one.sets, elements=one.elements, legacy={})


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


FIREWALL: Section[Firewall] = Section(
    "firewall",
    Firewall,
    _questions,
    blind="filters on other machines, those of BPF programs and tc, and what ufw or firewalld load at a boot",
    start_order=18,
)
