"""The listeners and connections of a host, and their processes."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator

from checks.survey.host import common

LISTENING, ESTABLISHED = "0A", "01"
ENDING = ("04", "05", "06", "08", "09", "0B")  # one side of them has closed it (linux/tcp_states.h)
TABLES = ("/proc/1/net/tcp", "/proc/1/net/tcp6")
MOST = 64 << 20  # bytes of a table: some hundred thousand connections
SOCKET = "socket:["
# The requests to the kernel about unix sockets (linux/sock_diag.h, linux/unix_diag.h).
NETLINK_DIAG, SOCK_DIAG_BY_FAMILY, DUMP = 4, 20, 0x301
DONE, FAILED = 3, 2
CONNECTED, SHOW_PEER, PEER = 1 << 1, 4, 2


def place(local: str) -> tuple[str, int]:
    """Address and port of what /proc/net/tcp has: words of 32 bits as the processor has them (proc(5)).

    A connection by IPv4 to a socket for both is of IPv4.
    """
    address, _, port = local.partition(":")
    raw = bytes.fromhex(address)
    turned = b"".join(struct.pack("=I", struct.unpack(">I", raw[at : at + 4])[0]) for at in range(0, len(raw), 4))
    if turned.startswith(bytes(10) + b"\xff\xff"):
        turned = turned[12:]
    return socket.inet_ntop(socket.AF_INET if len(turned) == 4 else socket.AF_INET6, turned), int(port, 16)


def shown(address: str, port: int) -> str:
    """ADDRESS:PORT."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def scope(address: str) -> int:
    """The number of the interface that a link-local address is of; 0 for any other address."""
    if not address.startswith("fe80:"):
        return 0
    wanted = socket.inet_pton(socket.AF_INET6, address).hex()
    words = (line.split() for line in common.lines(common.read("/proc/1/net/if_inet6", MOST) or ""))
    return next((int(row[1], 16) for row in words if row[0] == wanted), 0)


def rows(*states: str) -> Iterator[tuple[str, str, str, int]]:
    """Local and remote place, state and inode of sockets of TCP, places as the kernel has them."""
    for table in TABLES:
        for line in common.lines(common.read(table, MOST) or "")[1:]:
            words = line.split()
            if len(words) > 9 and words[3] in states:
                yield words[1], words[2], words[3], int(words[9])


def handles(pid: int | str) -> set[int]:
    """Inodes of a process's sockets."""
    found = set()
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                link = os.readlink(f"/proc/{pid}/fd/{name}")
                if link.startswith(SOCKET):
                    found.add(int(link[len(SOCKET) : -1]))
    return found


def holders(wanted: set[int]) -> dict[int, set[int]]:
    """Inode -> the processes that have it, of these inodes."""
    found: dict[int, set[int]] = {}
    for name in os.listdir("/proc") if wanted else ():
        if name.isdecimal():
            for inode in handles(name) & wanted:
                found.setdefault(inode, set()).add(int(name))
    return found


def systemds() -> set[str]:
    """ADDRESS:PORT of what systemd itself listens on: no key is shown to anybody else."""
    held = handles(1)
    return {shown(*place(local)) for local, _, _, inode in rows(LISTENING) if inode in held}


def peers() -> dict[int, int]:
    """Inode -> its peer's inode, of connected unix sockets in the host's own network."""
    found: dict[int, int] = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_DIAG) as asking:
        asking.settimeout(5)
        asked = struct.pack("=BBHIII8s", socket.AF_UNIX, 0, 0, CONNECTED, 0, SHOW_PEER, b"\xff" * 8)
        asking.send(struct.pack("=IHHII", 16 + len(asked), SOCK_DIAG_BY_FAMILY, DUMP, 1, 0) + asked)
        while True:
            for kind, content in messages(asking.recv(1 << 18)):
                if kind == DONE:
                    return found
                if kind == FAILED:
                    raise OSError(-struct.unpack_from("=i", content)[0], "the kernel does not tell of unix sockets")
                told = dict(attributes(content[16:]))
                if PEER in told:
                    found[struct.unpack_from("=I", content, 4)[0]] = struct.unpack("=I", told[PEER])[0]


def messages(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and content of netlink messages (netlink(7))."""
    while len(raw) >= 16:
        length, kind = struct.unpack_from("=IH", raw)
        if length < 16:
            return
        yield kind, raw[16:length]
        raw = raw[(length + 3) & ~3 :]


def attributes(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and content of their attributes."""
    while len(raw) >= 4:
        length, kind = struct.unpack_from("=HH", raw)
        if length < 4:
            return
        yield kind & 0x3FFF, raw[4:length]
        raw = raw[(length + 3) & ~3 :]
