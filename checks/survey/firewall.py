"""Rules that packets of a host go through."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from ipaddress import ip_network

from checks.survey.section import Scene, Section
from rigwright.model.rig import Rig
from rigwright.monitoring.service import services


@dataclass(frozen=True)
class Raw:
    """A message of the kernel's (linux/netfilter/nf_tables.h)."""

    family: int
    raw: str
    """Its attributes, in base64."""


@dataclass(frozen=True)
class Interface:
    """An address of an interface."""

    name: str
    number: int
    address: str
    prefix: int


@dataclass(frozen=True)
class Planned:
    """Rules that the next boot loads."""

    chains: list[Raw]
    rules: list[Raw]
    sets: list[Raw]
    elements: list[Raw]
    failed: str
    """Why they cannot be loaded; empty where they can."""
    judged: bool = True
    """Whether they could be read: those that name interfaces by number are only where the kernel has some to make."""


@dataclass(frozen=True)
class Firewall:
    """All of it."""

    chains: list[Raw]
    rules: list[Raw]
    sets: list[Raw]
    elements: list[Raw]
    interfaces: list[Interface]
    legacy: dict[str, str | None]
    """Program -> what it has set; None where that cannot be read."""
    ways: list[str]
    """Interfaces that lead to the rest of the world."""
    unrouted: dict[str, str]
    """Client -> why nothing is sent to it."""
    shaped: list[str]
    """What loses or holds back an interface's packets, and which one's."""
    planned: Planned | None
    """Nothing where a boot loads none."""

    def after_a_boot(self) -> Firewall | None:
        """The same with the rules that the next boot loads; nothing where those could not be read."""
        one = self.planned
        if one is None or not one.judged:
            return None
        return replace(self, chains=one.chains, rules=one.rules, sets=one.sets, elements=one.elements, legacy={})


def one_of(network: str) -> str:
    """An address of a network."""
    found = ip_network(network, strict=False)
    return str(found[1] if found.num_addresses > 2 else found[0])


def allowed(rig: Rig) -> Iterator[str]:
    """An address of each network that may fetch weights."""
    yield from map(one_of, rig.share.allow if rig.share else ())


def clients(rig: Rig) -> list[str]:
    """An address of each network that is declared to reach something."""
    return sorted({*allowed(rig), *(one_of(network) for one in services(rig) for network in one.clients)})


def _questions(scene: Scene) -> object:
    return {"clients": clients(scene.rig)}


FIREWALL: Section[Firewall] = Section("firewall", Firewall, _questions)
