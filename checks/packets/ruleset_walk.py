"""Following a packet through rules. What a rule looks at that is not known of a packet is taken for the better."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address

from checks.packets import xt_extensions
from checks.packets.packet import Packet
from checks.packets.ruleset_decoding import (
    ACCEPT,
    DROP,
    INGRESS,
    INPUT,
    INTERVAL,
    IPV6,
    OUTPUT,
    PREROUTING,
    Chain,
    Expression,
    Ruleset,
    find_element,
)

CONTINUE, BREAK, JUMP, GOTO, RETURN = -1, -2, -3, -4, -5
DEEP = 32  # chains that lead to each other: the kernel takes 16
LOCAL, UNICAST = struct.pack("=I", 2), struct.pack("=I", 1)  # types of addresses
EQUAL, UNEQUAL, LESS, AT_MOST, MORE, AT_LEAST = range(6)


@dataclass(frozen=True)
class PacketOutcome:
    """What has become of a packet."""

    packet: Packet
    """As it is in the end."""
    dropped: str = ""
    """The chain that dropped it; empty for none."""
    led: str = ""
    """The chain that has sent it elsewhere; empty for none."""


class UnknownPacketField(Exception):
    """A rule looks at what is not known."""


class RulesetWalk:
    """Rules, and the host that has them."""

    def __init__(self, rules: Ruleset, own: Callable[[str], bool], numbers: Mapping[str, int]) -> None:
        """With the rules, which addresses are the host's, and the numbers of its interfaces."""
        self.rules, self.own, self.numbers = rules, own, numbers

    def follow_incoming(self, packet: Packet) -> PacketOutcome:
        """What becomes of a packet that comes to the host."""
        way = PacketOutcome(packet)
        for hook in (INGRESS, PREROUTING):
            way = self.traverse_hook(hook, way)
        return self.traverse_hook(INPUT, way) if not way.dropped and self.own(way.packet.target) else way

    def follow_outgoing(self, packet: Packet) -> PacketOutcome:
        """What becomes of one of the host's own."""
        return self.traverse_hook(OUTPUT, PacketOutcome(packet))

    def traverse_hook(self, hook: int, way: PacketOutcome) -> PacketOutcome:
        """What becomes of a packet at one place."""
        for chain in self.rules.chains_at_hook(hook, way.packet.family):
            if way.dropped:
                break
            if hook == INGRESS and chain.device and way.packet.comes not in chain.device.split():
                continue
            way = self._traverse_base_chain(chain, way)
        return way

    def _traverse_base_chain(self, chain: Chain, way: PacketOutcome) -> PacketOutcome:
        found = _ChainEvaluation(self, way.packet).evaluate_chain(chain, 0)
        if isinstance(found, tuple):
            address, port = found
            sent = replace(way.packet, target=address or way.packet.target, port=port or way.packet.port)
            return PacketOutcome(sent, led=chain.display_name if sent != way.packet else way.led)
        verdict = chain.policy if found in (CONTINUE, RETURN) else found
        return replace(way, dropped=chain.display_name) if verdict == DROP else way


class _ChainEvaluation:
    """One packet in one chain, and those that it leads to."""

    def __init__(self, walk: RulesetWalk, packet: Packet) -> None:
        self.walk, self.packet = walk, packet
        self.registers: dict[int, bytes | None] = {}

    def evaluate_chain(self, chain: Chain, depth: int) -> int | tuple[str, int]:
        """A verdict, or where the packet is sent; CONTINUE where it came to the end."""
        for rule in chain.rules:
            found = self._evaluate_rule(chain, rule, depth)
            if found == RETURN:
                return CONTINUE
            if found != CONTINUE:
                return found
        return CONTINUE

    def _evaluate_rule(self, chain: Chain, rule: tuple[Expression, ...], depth: int) -> int | tuple[str, int]:
        self.registers = {}
        sure = True
        for one in rule:
            try:
                found = self._evaluate_expression(chain, one)
            except UnknownPacketField:
                sure, found = False, None
            except (struct.error, KeyError, ValueError):
                sure, found = False, None
            if found is False:
                return CONTINUE
            if found is None or found is True:
                continue
            if not isinstance(found[1], str):
                return found[0], found[1]
            code, to = found[0], found[1]
            if code in (JUMP, GOTO) and depth < DEEP:
                nested = self.walk.rules.chains.get((chain.family, chain.table, to))
                inner = self.evaluate_chain(nested, depth + 1) if nested else CONTINUE
                if inner != CONTINUE or code == GOTO:
                    return RETURN if inner == CONTINUE else inner
                return CONTINUE
            if code == DROP and not sure:
                return CONTINUE
            return CONTINUE if code == BREAK else code
        return CONTINUE

    def read(self, register: int, length: int) -> bytes:
        """What is in registers.

        Raises:
            UnknownPacketField: that is not known.
        """
        first = (register - 1) * 4 if register < 8 else register - 8
        words = [self.registers.get(first + number) for number in range((length + 3) // 4)]
        if any(word is None for word in words):
            raise UnknownPacketField
        return b"".join(word for word in words if word is not None)[:length]

    def write(self, register: int, value: bytes | None, length: int = 16) -> None:
        """Put something into registers; None for what is not known."""
        first = (register - 1) * 4 if register < 8 else register - 8
        if value is None:
            self.registers |= dict.fromkeys(range(first, first + (length + 3) // 4))
            return
        padded = value + bytes(-len(value) % 4)
        self.registers |= {first + at // 4: padded[at : at + 4] for at in range(0, len(padded), 4)}

    def _evaluate_expression(self, chain: Chain, one: Expression) -> bool | tuple[int, str] | tuple[str, int] | None:
        """True where it holds or does not matter, False where it does not hold; else a verdict, or where it leads."""
        known = STEPS.get(one.name)
        if known is not None:
            return known(self, one)
        if one.name == "lookup":
            return self._lookup(chain, one)
        if one.name in ("match", "target"):
            local = self.walk.own(self.packet.target)
            if one.name == "match":
                return xt_extensions.evaluate_match(one, self.packet, local)
            led = xt_extensions.nat_target(one, self.packet.family)
            ends = {b"REJECT": (DROP, ""), b"MASQUERADE": (ACCEPT, ""), b"SNAT": (ACCEPT, "")}
            return led if led else ends.get(one.values.get(1, b"").rstrip(b"\0"), True)
        return True

    def _lookup(self, chain: Chain, one: Expression) -> bool | tuple[int, str]:
        name = one.values[1].rstrip(b"\0").decode(errors="replace")
        known = self.walk.rules.sets.get((chain.family, chain.table, name))
        if known is None:
            raise UnknownPacketField
        lengths = [len(element.key) for element in known.elements if element.key]
        value = self.read(one.number(2), max(lengths, default=0))
        found = find_element(known.elements, value, bool(known.flags & INTERVAL))
        if 3 not in one.values:
            return (found is None) == bool(one.number(5) & 1)
        if found is None:
            return False
        data = Expression("", {1: found.data})
        if verdict := data.verdict(1):
            return verdict
        self.write(one.number(3), data.data(1))
        return True

    def _payload(self, one: Expression) -> bool:
        header = {1: self.packet.network, 2: self.packet.transport}.get(one.number(2))
        start, length = one.number(3), one.number(4)
        if 1 in one.values:
            value = header[start : start + length] if header is not None else None
            self.write(one.number(1), value if value and len(value) == length else None, length)
        return True

    def _meta(self, one: Expression) -> bool:
        if 1 in one.values:
            self.write(one.number(1), self.packet.meta(one.number(2), self.walk.numbers))
        return True

    def _state(self, one: Expression) -> bool:
        states = {0: struct.pack("=I", self.packet.state), 1: bytes(4), 2: bytes(4), 3: bytes(4)}
        if 1 in one.values:
            self.write(one.number(1), states.get(one.number(2)))
        return True

    def _kind(self, one: Expression) -> bool:
        at = self.packet.target if one.number(3) & 2 else self.packet.source
        self.write(one.number(1), (LOCAL if self.walk.own(at) else UNICAST) if one.number(2) == 3 else None)
        return True

    def _compare(self, one: Expression) -> bool:
        wanted = one.data(3)
        found = self.read(one.number(1), len(wanted))
        return {
            EQUAL: found == wanted,
            UNEQUAL: found != wanted,
            LESS: found < wanted,
            AT_MOST: found <= wanted,
            MORE: found > wanted,
            AT_LEAST: found >= wanted,
        }[one.number(2)]

    def _range(self, one: Expression) -> bool:
        first, last = one.data(3), one.data(4)
        return (first <= self.read(one.number(1), len(first)) <= last) != bool(one.number(2))

    def _mask(self, one: Expression) -> bool:
        length = one.number(3)
        if one.number(6):
            self.write(one.number(2), None, length)
            return True
        value, mask, turn = self.read(one.number(1), length), one.data(4), one.data(5)
        made = bytes(a & b ^ c for a, b, c in zip(value, mask, turn, strict=True))
        self.write(one.number(2), made)
        return True

    def _turn(self, one: Expression) -> bool:
        length, size = one.number(4), one.number(5)
        value = self.read(one.number(1), length)
        self.write(one.number(2), b"".join(value[at : at + size][::-1] for at in range(0, length, size)))
        return True

    def _put(self, one: Expression) -> bool | tuple[int, str]:
        if verdict := one.verdict(2):
            return verdict
        self.write(one.number(1), one.data(2))
        return True

    def _nat(self, one: Expression) -> tuple[str, int] | tuple[int, str]:
        if one.number(1) == 0:
            return ACCEPT, ""
        size = 16 if one.number(2) == IPV6 else 4
        address = str(ip_address(self.read(one.number(3), size))) if 3 in one.values else ""
        return address, struct.unpack(">H", self.read(one.number(5), 2))[0] if 5 in one.values else 0

    def _redirect(self, one: Expression) -> tuple[str, int]:
        return "", struct.unpack(">H", self.read(one.number(1), 2))[0] if 1 in one.values else 0

    def _proxy(self, one: Expression) -> tuple[str, int]:
        return "", struct.unpack(">H", self.read(one.number(3), 2))[0] if 3 in one.values else 0

    def _rate(self, one: Expression) -> bool:
        # what is beyond a rate: nothing of ours is
        kinds: Mapping[str, int] = {"limit": 5, "connlimit": 2, "quota": 2}
        return not one.number(kinds[one.name]) & 1

    def _refuse(self, one: Expression) -> tuple[int, str]:
        return DROP, ""


STEPS: dict[str, Callable[[_ChainEvaluation, Expression], bool | tuple[int, str] | tuple[str, int]]] = {
    "payload": _ChainEvaluation._payload,
    "meta": _ChainEvaluation._meta,
    "ct": _ChainEvaluation._state,
    "fib": _ChainEvaluation._kind,
    "cmp": _ChainEvaluation._compare,
    "range": _ChainEvaluation._range,
    "bitwise": _ChainEvaluation._mask,
    "byteorder": _ChainEvaluation._turn,
    "immediate": _ChainEvaluation._put,
    "nat": _ChainEvaluation._nat,
    "redir": _ChainEvaluation._redirect,
    "tproxy": _ChainEvaluation._proxy,
    "limit": _ChainEvaluation._rate,
    "connlimit": _ChainEvaluation._rate,
    "quota": _ChainEvaluation._rate,
    "reject": _ChainEvaluation._refuse,
}
