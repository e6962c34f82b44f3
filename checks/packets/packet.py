"""A packet that begins a connection, and what rules see of it."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from checks.packets.ruleset_decoding import IPV4, IPV6

TCP = 6
NEW, ESTABLISHED = 8, 2  # bits of a connection's state (linux/netfilter/nf_conntrack_common.h)
# Keys of `meta` (linux/netfilter/nf_tables.h).
PROTOCOL, MARK, IIF, OIF, IIFNAME, OIFNAME, NFPROTO, L4PROTO, PKTTYPE = 1, 3, 4, 5, 6, 7, 15, 16, 19


@dataclass(frozen=True)
class Packet:
    """TCP, from a client to a server; or the other way round."""

    source: str
    target: str
    port: int
    """Where it goes to."""
    origin: int = 40000
    """The port that it comes from."""
    comes: str = ""
    """The interface that it comes in by; empty for one of the host's own."""
    goes: str = ""
    """The interface that it goes out by; empty for one that comes in."""
    state: int = NEW

    @property
    def family(self) -> int:
        """As the rules number it."""
        return IPV6 if ":" in self.target else IPV4

    @property
    def network(self) -> bytes:
        """Its header of IP."""
        source, target = ip_address(self.source).packed, ip_address(self.target).packed
        if self.family == IPV6:
            return struct.pack(">IHBB", 6 << 28, 20, TCP, 64) + source + target
        return struct.pack(">BBHHHBBH", 0x45, 0, 40, 1, 0x4000, 64, TCP, 0) + source + target

    @property
    def transport(self) -> bytes:
        """Its header of TCP."""
        flags = 0x02 if self.state == NEW else 0x12
        return struct.pack(">HHIIBBHHH", self.origin, self.port, 1, 0, 0x50, flags, 64240, 0, 0)

    def meta(self, key: int, numbers: Mapping[str, int]) -> bytes | None:
        """What is known about it; None for what is not.

        Args:
            key: What is asked.
            numbers: Interface -> its number.
        """
        known = {
            PROTOCOL: struct.pack(">H", 0x86DD if self.family == IPV6 else 0x0800),
            MARK: bytes(4),
            NFPROTO: bytes([self.family]),
            L4PROTO: bytes([TCP]),
            PKTTYPE: bytes([0]),
        }
        for name, by_name, by_number in ((self.comes, IIFNAME, IIF), (self.goes, OIFNAME, OIF)):
            known[by_name] = name.encode().ljust(16, b"\0")
            known[by_number] = struct.pack("=I", numbers.get(name, 0))
        return known.get(key)

    def reply(self) -> Packet:
        """The answer to it."""
        return Packet(self.target, self.source, self.origin, self.port, "", self.comes, ESTABLISHED)
