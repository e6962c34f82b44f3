"""Routes and queues of the host's own packets, as the kernel has them."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterator
from typing import Any

from checks.survey.host import network_sockets

# linux/rtnetlink.h
NETLINK_ROUTE, GETADDR = 0, 22
IFA_ADDRESS, IFA_LOCAL = 1, 2
# A discipline of an interface's queue, and what it is
GETQDISC, TCA_KIND = 38, 1
LOSING = ("netem", "plug", "blackhole")
MOST = 16 << 20  # bytes of an answer
# The answer for a route that refuses
REFUSED = {errno.EINVAL: "a blackhole", errno.EACCES: "prohibited", errno.EHOSTUNREACH: "unreachable"}


def dump_netlink(protocol: int, kind: int, content: bytes) -> Iterator[bytes]:
    """The kernel's objects of a kind."""
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
    raise RuntimeError(f"more than {MOST >> 20} MiB of an answer")


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
                found.append({"name": socket.if_indextoname(index), "address": address, "prefix": prefix})
    return found


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
    """All of it.

    Args:
        asked: `clients`, addresses that the host has to answer.
    """
    return {"unrouted": unrouted([*asked["clients"], *neighbours(interfaces())]), "shaped": shaped()}
