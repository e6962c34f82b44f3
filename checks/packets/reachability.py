"""Which packets reach what a rig listens on, and which should not."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address, ip_interface

from checks.packets import iptables_save
from checks.packets.packet import Packet
from checks.packets.ruleset_decoding import Expression, Ruleset, decode_ruleset
from checks.packets.ruleset_walk import PacketOutcome, RulesetWalk
from checks.survey.firewall import Firewall, InterfaceAddress, first_address, share_client_addresses
from checks.survey.service_exposure import service_ports
from rigwright.model.rig import Rig
from rigwright.monitoring.monitoring_units import monitoring_services
from rigwright.serving.instance_units import LOOPBACK

FAR = {4: "203.0.113.7", 6: "2001:db8::7"}  # of nobody (RFC 5737, RFC 3849)
OTHER = 54321  # a port that nobody has a rule about
LEADING = ("nat", "redir", "tproxy", "target")
MOST = 100  # ports, or addresses, that rules name and that are tried


@dataclass(frozen=True)
class ListeningAddress:
    """What a rig listens on."""

    address: str
    port: int
    clients: tuple[str, ...] = ()
    """Addresses of those who are to reach it; none for whoever there is."""

    def accepts(self, address: str, port: int) -> bool:
        """Whether what goes to an address and port comes here."""
        own = ip_address(self.address)
        every = own.is_unspecified and (own.version == 6 or ip_address(address).version == 4)
        return port == self.port and (every or address == self.address)


def listening_addresses(rig: Rig) -> list[ListeningAddress]:
    """All of them."""
    found = [ListeningAddress(one.address, one.port) for one in (rig.gateway.listeners.values() if rig.gateway else ())]
    found += [ListeningAddress(LOOPBACK, one.port) for one in rig.instances]
    found += (
        [ListeningAddress(rig.share.address, rig.share.port, tuple(share_client_addresses(rig.share)))]
        if rig.share
        else []
    )
    # one that nobody outside may ask is no place that anybody is kept from
    asked = (one for one in monitoring_services(rig) if one.clients or ip_address(one.at[0]).is_loopback)
    return [*found, *(ListeningAddress(*one.at, tuple(map(first_address, one.clients))) for one in asked)]


class FilteredHost:
    """A host's rules and interfaces, and what its rig listens on."""

    def __init__(self, rig: Rig, firewall: Firewall) -> None:
        """Read the rules.

        Raises:
            ValueError: they cannot be read.
        """
        self.rules = decode_ruleset(firewall)
        iptables_save.add_saved_rules(self.rules, firewall.legacy)
        self.places, self.ports = listening_addresses(rig), service_ports(rig)
        self.interfaces = [one for one in firewall.interfaces if one.name != "lo"]
        outside = [one for one in self.interfaces if one.name in firewall.ways]
        self.outside = outside or self.interfaces
        self.addresses = {one.address for one in firewall.interfaces}
        numbers = {one.name: one.number for one in firewall.interfaces}
        self.walk = RulesetWalk(self.rules, self.is_own_address, numbers)

    def is_own_address(self, address: str) -> bool:
        """Whether an address is the host's."""
        return address in self.addresses or ip_address(address).is_loopback

    def find_blocked_clients(self) -> Iterator[str]:
        """What of the places clients do not reach, and which rules keep them."""
        for place in self.places:
            if ip_address(place.address).is_loopback:
                packet = Packet(LOOPBACK, LOOPBACK, place.port, goes="lo")
                way = self.walk.follow_outgoing(packet)
                way = (
                    way
                    if way.dropped
                    else self.walk.follow_incoming(Packet(LOOPBACK, LOOPBACK, place.port, comes="lo"))
                )
                dropped = way.dropped
            elif place.clients:
                dropped = next(filter(None, (self._dropping_chain(client, place) for client in place.clients)), "")
            else:
                dropped = self._dropping_chain_for_all(place)
            if dropped:
                yield f"port {place.port} by {dropped}"

    def find_default_drop(self) -> str:
        """The chain that drops what neighbours send to a port that nobody has a rule about; empty for none."""
        place = ListeningAddress("0.0.0.0", OTHER)  # noqa: S104 # nobody listens there
        fitting = [one for one in self.outside if not ip_address(one.address).is_link_local]
        return next(filter(None, (self._dropping_chain(str(_neighbour_address(one)), place) for one in fitting)), "")

    def _dropping_chain(self, client: str, place: ListeningAddress) -> str:
        """The chain that drops what a client sends to a place, or what it is answered; empty for none."""
        lost = ""
        for one in self.outside:
            if not self._can_reach(one, place, client):
                continue
            packet = Packet(client, one.address, place.port, comes=one.name)
            way = self.walk.follow_incoming(packet)
            back = self.walk.follow_outgoing(packet.reply())
            lost = way.dropped or back.dropped
            if not lost:
                return ""
        return lost

    def _can_reach(self, one: InterfaceAddress, place: ListeningAddress, client: str) -> bool:
        own = ip_address(one.address)
        same = own.version == ip_address(client).version
        return same and not own.is_link_local and place.accepts(one.address, place.port)

    def _dropping_chain_for_all(self, place: ListeningAddress) -> str:
        """The same of whoever there is. Who lets in some, and nobody else, has thought of that."""
        fitting = [one for one in self.outside if not ip_address(one.address).is_link_local]
        beside = {one.address: str(_neighbour_address(one)) for one in fitting}
        near = [self._dropping_chain(client, place) for client in beside.values()]
        far = [
            self._dropping_chain(client, place) for client in {FAR[ip_address(one.address).version] for one in fitting}
        ]
        if not any(near):
            return ""
        if all(far):
            named = [one for one in _addresses_in_rules(self.rules) if not self.is_own_address(one)]
            fits = [one for one in named if any(self._can_reach(here, place, one) for here in fitting)]
            if any(not self._dropping_chain(one, place) for one in fits):
                return ""
        return next(filter(None, near))

    def find_redirects(self) -> Iterator[str]:
        """What else leads to the places, and what leads their clients elsewhere."""
        leading = any(
            part.name in LEADING for chain in self.rules.chains.values() for rule in chain.rules for part in rule
        )
        if not leading:
            return
        for place in self.places:
            for own in [one.address for one in self.outside if place.accepts(one.address, place.port)] or [
                place.address
            ]:
                at = LOOPBACK if ip_address(own).is_unspecified else own
                way = self.walk.follow_outgoing(Packet(at, at, place.port, goes="lo"))
                if way.led:
                    yield self._describe_redirect(at, place.port, way)
        tried = {*_ports_in_rules(self.rules), *self.ports, OTHER}
        for one in self.interfaces:
            client = str(_neighbour_address(one))
            for target in [one.address, *_addresses_in_rules(self.rules)]:
                if ip_address(target).version == ip_address(one.address).version:
                    for port in sorted(tried):
                        yield from self._find_redirect(client, target, port, one)

    def _find_redirect(self, client: str, target: str, port: int, one: InterfaceAddress) -> Iterator[str]:
        way = self.walk.follow_incoming(Packet(client, target, port, comes=one.name))
        if not way.led:
            return
        declared = self.is_own_address(target) and any(place.accepts(target, port) for place in self.places)
        ours = self.is_own_address(way.packet.target) and way.packet.port in self.ports
        if declared or ours:
            yield self._describe_redirect(target, port, way)

    @staticmethod
    def _describe_redirect(target: str, port: int, way: PacketOutcome) -> str:
        return f"{target} port {port} goes to {way.packet.target} port {way.packet.port} by {way.led}"


def _neighbour_address(one: InterfaceAddress) -> object:
    """An address in the same network."""
    network = ip_interface(f"{one.address}/{one.prefix}").network
    own = ip_address(one.address)
    return next((found for found in (own + 1, own - 1) if found in network), own + 1)


def _compared_constants(rules: Ruleset, size: int) -> set[bytes]:
    """Values of a size that rules compare with."""
    found: set[bytes] = set()
    for chain in rules.chains.values():
        for rule in chain.rules:
            for part in rule:
                found |= {part.data(kind) for kind in _value_attributes(part)}
    for known in rules.sets.values():
        for one in known.elements:
            found |= {one.key[at : at + size] for at in range(0, max(1, len(one.key) - size + 1), 4)}
    return {one for one in found if len(one) == size}


def _value_attributes(part: Expression) -> Iterable[int]:
    return {"cmp": (3,), "range": (3, 4)}.get(part.name, ())


def _ports_in_rules(rules: Ruleset) -> list[int]:
    found = {struct.unpack(">H", one)[0] for one in _compared_constants(rules, 2)}
    for chain in rules.chains.values():
        for rule in chain.rules:
            found |= {port for part in rule for port in _ports_in_match(part)}
    return sorted(found)[:MOST]


def _ports_in_match(part: Expression) -> Iterator[int]:
    """Ports that a match of iptables' names."""
    name, info = part.values.get(1, b"").rstrip(b"\0"), part.values.get(3, b"")
    if part.name == "match" and name == b"tcp" and len(info) >= 8:
        yield struct.unpack_from("=H", info, 4)[0]
    if part.name == "match" and name == b"multiport" and len(info) >= 32:
        yield from struct.unpack_from("=15H", info, 2)[: info[1]]


def _addresses_in_rules(rules: Ruleset) -> list[str]:
    found = {one for one in _compared_constants(rules, 4) | _compared_constants(rules, 16) if any(one)}
    # of a network that ends with a byte, no more than those bytes are compared
    found |= {
        one + bytes(3 - len(one)) + b"\1" for one in _compared_constants(rules, 2) | _compared_constants(rules, 3)
    }
    return sorted(str(ip_address(one)) for one in found)[:MOST]
