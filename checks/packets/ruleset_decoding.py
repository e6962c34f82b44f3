"""The kernel's rules, decoded (linux/netfilter/nf_tables.h)."""

from __future__ import annotations

import struct
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass, field

from checks.survey.firewall import Firewall

INET, IPV4, NETDEV, IPV6 = 1, 2, 5, 10
PREROUTING, INPUT, FORWARD, OUTPUT, POSTROUTING, INGRESS = range(6)
DROP, ACCEPT = 0, 1
INTERVAL_END, CATCHALL = 1, 2
INTERVAL = 4


@dataclass(frozen=True)
class Expression:
    """A part of a rule."""

    name: str
    values: dict[int, bytes]

    def number(self, kind: int, otherwise: int = 0) -> int:
        """An attribute that is a number."""
        return struct.unpack(">I", self.values[kind])[0] if len(self.values.get(kind, b"")) == 4 else otherwise

    def data(self, kind: int) -> bytes:
        """An attribute that is a value to compare with."""
        return dict(parse_attributes(self.values.get(kind, b""))).get(1, b"")

    def verdict(self, kind: int) -> tuple[int, str] | None:
        """An attribute that is a verdict: its code, and the chain that it leads to."""
        raw = dict(parse_attributes(self.values.get(kind, b""))).get(2)
        if raw is None:
            return None
        parts = dict(parse_attributes(raw))
        return struct.unpack(">i", parts[1])[0], decode_name(parts.get(2, b""))


@dataclass
class Chain:
    """Rules that are gone through one after another."""

    family: int
    table: str
    name: str
    hook: int = -1
    """Where packets come to it; -1 for one that others lead to."""
    priority: int = 0
    policy: int = ACCEPT
    device: str = ""
    rules: list[tuple[Expression, ...]] = field(default_factory=list)

    @property
    def display_name(self) -> str:
        """As nft names it."""
        names = {INET: "inet", IPV4: "ip", NETDEV: "netdev", IPV6: "ip6"}
        return f"{names.get(self.family, self.family)} {self.table} {self.name}"


@dataclass(frozen=True)
class Element:
    """What is in a set: a value, or where values begin or end."""

    key: bytes
    end: bytes
    flags: int
    data: bytes
    """As an expression's attribute has it."""


@dataclass
class NamedSet:
    """A set."""

    flags: int = 0
    elements: list[Element] = field(default_factory=list)


@dataclass(frozen=True)
class Ruleset:
    """All of them."""

    chains: dict[tuple[int, str, str], Chain]
    sets: dict[tuple[int, str, str], NamedSet]

    def chains_at_hook(self, hook: int, family: int) -> list[Chain]:
        """The chains that a packet comes to, in order."""
        own = (INET, family, NETDEV) if hook == INGRESS else (INET, family)
        found = [one for one in self.chains.values() if one.hook == hook and one.family in own]
        return sorted(found, key=lambda one: one.priority)


def parse_attributes(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and content of attributes (netlink(7))."""
    while len(raw) >= 4:
        length, kind = struct.unpack_from("=HH", raw)
        if length < 4:
            return
        yield kind & 0x3FFF, raw[4:length]
        raw = raw[(length + 3) & ~3 :]


def decode_name(raw: bytes) -> str:
    """A name."""
    return raw.rstrip(b"\0").decode(errors="replace")


def _decode_chain(family: int, told: dict[int, bytes]) -> Chain:
    hook = dict(parse_attributes(told[4])) if 4 in told else {}
    number = struct.unpack(">I", hook[1])[0] if 1 in hook else -1
    devices = (
        [decode_name(hook[3])] if 3 in hook else [decode_name(one) for _, one in parse_attributes(hook.get(4, b""))]
    )
    if family == NETDEV and number == 0:
        number = INGRESS
    return Chain(
        family=family,
        table=decode_name(told[1]),
        name=decode_name(told[3]),
        hook=number,
        priority=struct.unpack(">i", hook[2])[0] if 2 in hook else 0,
        policy=struct.unpack(">I", told[5])[0] if 5 in told else ACCEPT,
        device=" ".join(devices),
    )


def decode_ruleset(firewall: Firewall) -> Ruleset:
    """What the kernel told.

    Raises:
        ValueError: it is not what a kernel tells.
    """
    try:
        return _decode_ruleset(firewall)
    except (KeyError, struct.error) as error:
        raise ValueError(f"unreadable rules: {error}") from None


def _decode_ruleset(firewall: Firewall) -> Ruleset:
    made = Ruleset({}, {})
    for one in firewall.chains:
        chain = _decode_chain(one.family, dict(parse_attributes(b64decode(one.raw))))
        made.chains[chain.family, chain.table, chain.name] = chain
    for one in firewall.rules:
        told = dict(parse_attributes(b64decode(one.raw)))
        parts = []
        for _, raw in parse_attributes(told.get(4, b"")):
            inner = dict(parse_attributes(raw))
            parts.append(Expression(decode_name(inner[1]), dict(parse_attributes(inner.get(2, b"")))))
        at = made.chains.get((one.family, decode_name(told[1]), decode_name(told[2])))
        if at:
            at.rules.append(tuple(parts))
    for one in firewall.sets:
        told = dict(parse_attributes(b64decode(one.raw)))
        flags = struct.unpack(">I", told[3])[0] if 3 in told else 0
        made.sets[one.family, decode_name(told[1]), decode_name(told[2])] = NamedSet(flags)
    for one in firewall.elements:
        told = dict(parse_attributes(b64decode(one.raw)))
        known = made.sets.get((one.family, decode_name(told[1]), decode_name(told[2])))
        for _, raw in parse_attributes(told.get(3, b"")):
            inner = dict(parse_attributes(raw))
            key, end = (dict(parse_attributes(inner.get(kind, b""))).get(1, b"") for kind in (1, 10))
            flags = struct.unpack(">I", inner[3])[0] if 3 in inner else 0
            if known:
                known.elements.append(Element(key, end, flags, inner.get(2, b"")))
    return made


def find_element(elements: list[Element], value: bytes, intervals: bool) -> Element | None:
    """The element that a value is, or lies in."""
    every = next((one for one in elements if one.flags & CATCHALL), None)
    plain = [one for one in elements if one.key]
    if any(one.end for one in plain):
        for one in plain:
            words = range(0, len(one.key), 4)
            if all(one.key[at : at + 4] <= value[at : at + 4] <= (one.end or one.key)[at : at + 4] for at in words):
                return one
        return every
    if not intervals:
        return next((one for one in plain if one.key == value), every)
    begun = [one for one in plain if one.key <= value]
    below = max(begun, key=lambda one: (one.key, not one.flags & INTERVAL_END), default=None)
    return below if below and not below.flags & INTERVAL_END else every
