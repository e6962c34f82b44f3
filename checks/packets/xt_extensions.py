"""What iptables has in the kernel's rules: its own matches and targets (linux/netfilter/xt_*.h, nf_nat.h)."""

from __future__ import annotations

import struct
from ipaddress import ip_address

from checks.packets.packet import Packet
from checks.packets.ruleset_decoding import IPV6, Expression

MAPS_ADDRESS, MAPS_PORT = 1, 2
INVERTED_SOURCE, INVERTED_TARGET = 1, 2
LOCAL = 1 << 2  # of types of addresses
STATE = 1 << 0  # what of a connection is looked at: nothing but its state
PASSING = ("comment", "limit", "hashlimit")


def evaluate_match(one: Expression, packet: Packet, local: bool) -> bool | None:
    """Whether a match holds; None where that is not known.

    Args:
        one: The match.
        packet: The packet.
        local: Whether it goes to an address of the host's own.
    """
    name, info = one.values.get(1, b"").rstrip(b"\0").decode(errors="replace"), one.values.get(3, b"")
    if name in PASSING:
        return True
    if name == "udp":
        return False
    if name == "tcp" and len(info) >= 12:
        begins, ends, first, last, _, _, _, inverted = struct.unpack_from("=HHHHBBBB", info)
        source = (begins <= packet.origin <= ends) != bool(inverted & INVERTED_SOURCE)
        target = (first <= packet.port <= last) != bool(inverted & INVERTED_TARGET)
        return bool(source and target)
    if name == "multiport" and len(info) >= 48:
        return _ports(info, packet)
    if name == "addrtype" and len(info) >= 8:
        source, target, flags = struct.unpack_from("=HHI", info)
        return None if source else (bool(target & LOCAL) == local) != bool(flags & 1)
    if name == "state" and len(info) >= 4:
        return bool(struct.unpack_from("=I", info)[0] & packet.state)
    if name == "conntrack" and len(info) >= 154:
        looks, inverts, states = struct.unpack_from("=HHH", info, 146)
        return bool(states & packet.state) != bool(inverts & STATE) if looks == STATE else None
    return None


def _ports(info: bytes, packet: Packet) -> bool:
    kind, count = info[0], info[1]
    numbers, ranged = struct.unpack_from("=15H", info, 2), info[32:47]
    asked = {0: (packet.origin,), 1: (packet.port,)}.get(kind, (packet.origin, packet.port))
    held, at = False, 0
    while at < min(count, 15):
        first = last = numbers[at]
        if ranged[at] and at + 1 < 15:
            at += 1
            last = numbers[at]
        held |= any(first <= port <= last for port in asked)
        at += 1
    return held != bool(info[47])


def nat_target(one: Expression, family: int) -> tuple[str, int] | None:
    """Where a target leads: an address, empty for the host's own or the same, and a port, 0 for the same; None for one
    that does not.
    """
    name, info = one.values.get(1, b"").rstrip(b"\0").decode(errors="replace"), one.values.get(3, b"")
    if name not in ("DNAT", "REDIRECT", "TPROXY"):
        return None
    if name == "TPROXY" and len(info) >= 32:
        return "", struct.unpack_from(">H", info, 24)[0]
    if len(info) >= 40:
        flags, address, port = struct.unpack_from("=I", info)[0], info[4:20], struct.unpack_from(">H", info, 36)[0]
    elif len(info) >= 20:
        flags, address, port = struct.unpack_from("=I", info, 4)[0], info[8:12], struct.unpack_from(">H", info, 16)[0]
    else:
        return "", 0
    raw = address if family == IPV6 else address[:4]
    where = str(ip_address(raw)) if name == "DNAT" and flags & MAPS_ADDRESS else ""
    return where, port if flags & MAPS_PORT else 0
