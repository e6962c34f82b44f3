"""Packet filter rules as the kernel has them, and the routes of the host's own packets."""

from __future__ import annotations

import base64
import contextlib
import errno
import os
import re
import socket
import struct
from collections.abc import Iterator
from typing import Any

from checks.survey.host import common, network_sockets, next_boot_packet_filters

# linux/netfilter/nfnetlink.h, nf_tables.h, rtnetlink.h
NETLINK_ROUTE, NETLINK_NETFILTER, NFTABLES = 0, 12, 10
GETCHAIN, GETRULE, GETSET, GETSETELEM, GETADDR = 4, 7, 10, 13, 22
SET_TABLE, SET_NAME = 1, 2
IFA_ADDRESS, IFA_LOCAL = 1, 2
# linux/rtnetlink.h: a discipline of an interface's queue, and what it is
GETQDISC, TCA_KIND = 38, 1
LOSING = ("netem", "plug", "blackhole")
MOST = 16 << 20  # bytes of rules; far more than anybody has
# What a kernel says that has no such rules, and what it says of a route that says no.
NO_RULES = (errno.EINVAL, errno.EOPNOTSUPP, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT)
REFUSED = {errno.EINVAL: "a blackhole", errno.EACCES: "prohibited", errno.EHOSTUNREACH: "unreachable"}


def dump_netlink(protocol: int, kind: int, content: bytes) -> Iterator[bytes]:
    """What the kernel has of something."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as asking:
        asking.settimeout(5)
        asking.send(struct.pack("=IHHII", 16 + len(content), kind, network_sockets.DUMP, 1, 0) + content)
        room = MOST
        while room > 0:
            raw = asking.recv(1 << 18)
            room -= len(raw)
            for answer, one in network_sockets.messages(raw):
                if answer == network_sockets.DONE:
                    return
                if answer == network_sockets.FAILED:
                    number = -struct.unpack_from("=i", one)[0]
                    raise OSError(number, os.strerror(number))
                yield one
    raise RuntimeError(f"more than {MOST >> 20} MiB of rules")


def tables(kind: int, family: int = 0, content: bytes = b"") -> list[tuple[int, bytes]]:
    """Family and attributes of chains, rules, sets or what is in a set."""
    head = struct.pack("=BBH", family, 0, 0)
    try:
        return [(one[0], one[4:]) for one in dump_netlink(NETLINK_NETFILTER, NFTABLES << 8 | kind, head + content)]
    except OSError as error:
        if error.errno in NO_RULES:
            return []
        raise


def attribute(kind: int, value: bytes) -> bytes:
    """One of netlink's."""
    return struct.pack("=HH", len(value) + 4, kind) + value + bytes(-len(value) % 4)


def elements(sets: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """What is in all sets."""
    found = []
    for family, raw in sets:
        names = dict(network_sockets.attributes(raw))
        asked = attribute(SET_TABLE, names[SET_TABLE]) + attribute(SET_NAME, names[SET_NAME])
        found += tables(GETSETELEM, family, asked)
    return found


def interfaces() -> list[dict[str, Any]]:
    """Addresses of the host's interfaces."""
    found: list[dict[str, Any]] = []
    for one in dump_netlink(NETLINK_ROUTE, GETADDR, struct.pack("=BBBBI", 0, 0, 0, 0, 0)):
        family, prefix, _, _, index = struct.unpack_from("=BBBBI", one)
        if family in (socket.AF_INET, socket.AF_INET6):
            values = dict(network_sockets.attributes(one[8:]))
            raw = values.get(IFA_LOCAL) or values.get(IFA_ADDRESS)
            if raw:
                address = socket.inet_ntop(family, raw)
                found.append(
                    {"name": socket.if_indextoname(index), "number": index, "address": address, "prefix": prefix}
                )
    return found


def legacy() -> dict[str, str | None]:
    """What older programs than nft have set, by program: None where it cannot be read."""
    found: dict[str, str | None] = {}
    for table, program, saves in (
        ("ip_tables_names", "iptables", "iptables-legacy-save"),
        ("ip6_tables_names", "ip6tables", "ip6tables-legacy-save"),
    ):
        if (common.read(f"/proc/1/net/{table}") or "").strip():
            try:
                saved = common.run(saves)
                # each table ends so
                whole = 0 < saved.count("\nCOMMIT\n") == len(re.findall(r"^\*", saved, re.MULTILINE))
                found[program] = saved if whole else None
            except (OSError, RuntimeError):
                found[program] = None
    return found


def ways() -> list[str]:
    """Interfaces that lead to the rest of the world."""
    lines = common.lines(common.read("/proc/1/net/route") or "")[1:]
    found = {line.split()[0] for line in lines if line.split()[1] == line.split()[7] == "00000000"}
    found |= {
        line.split()[9]
        for line in common.lines(common.read("/proc/1/net/ipv6_route") or "")
        if line.startswith("0" * 32 + " 00")
    }
    return sorted(found - {"lo", "*"})


def shaped() -> list[str]:
    """Interfaces, each with what loses or holds back its packets (tc-netem(8), tc-plug(8))."""
    found = []
    for one in dump_netlink(NETLINK_ROUTE, GETQDISC, struct.pack("=BxHiIII", 0, 0, 0, 0, 0, 0)):
        kind = dict(network_sockets.attributes(one[20:])).get(TCA_KIND, b"").rstrip(b"\0").decode(errors="replace")
        if kind in LOSING:
            with contextlib.suppress(OSError):
                found.append(f"{kind} on {socket.if_indextoname(struct.unpack_from('=i', one, 4)[0])}")
    return sorted(set(found))


def neighbours(own: list[dict[str, Any]]) -> list[str]:
    """An address beside each of the host's own."""
    found = []
    for one in own:
        if ":" not in one["address"] and 0 < one["prefix"] < 31 and one["name"] != "lo":
            number = struct.unpack(">I", socket.inet_aton(one["address"]))[0]
            found.append(socket.inet_ntoa(struct.pack(">I", number ^ 1 or number ^ 2)))
    return found


def unrouted(addresses: list[str]) -> dict[str, str]:
    """Address -> why the host sends nothing there, of those that a rule of its own keeps from it."""
    found = {}
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as trying:
            try:
                trying.connect((address, 9))  # chooses a route, and sends nothing
            except OSError as error:
                if error.errno in REFUSED:
                    found[address] = REFUSED[error.errno]
    return found


def look(asked: dict[str, list[str]]) -> dict[str, object]:
    """All rules, raw.

    Args:
        asked: `clients`, addresses that the host has to answer.
    """
    own = interfaces()
    lost = unrouted([*asked["clients"], *neighbours(own)])
    return {
        **shown(),
        "interfaces": own,
        "legacy": legacy(),
        "ways": ways(),
        "unrouted": lost,
        "shaped": shaped(),
        "planned": next_boot_packet_filters.loaded({str(one["name"]): int(one["number"]) for one in own}, shown)
        or None,
    }


def shown() -> dict[str, object]:
    """The kernel's rules."""
    sets = tables(GETSET)
    found = {"chains": tables(GETCHAIN), "rules": tables(GETRULE), "sets": sets, "elements": elements(sets)}
    return {
        kind: [{"family": family, "raw": base64.b64encode(raw).decode()} for family, raw in rows]
        for kind, rows in found.items()
    }
