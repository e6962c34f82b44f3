"""Keeps other users from listening at addresses, and listens at none itself. Runs on the host.

Its arguments are addresses with ports, as `[::]:8000` or `127.0.0.1:8000`. One with exceptions, as `[::]:8000-[::1]`,
stands for each address of its family that the host has at the moment, but those after dashes. A socket that is bound
without SO_REUSEADDR keeps the address (bind(2)); one that does not listen has the kernel refuse connections, so that a
client whose name leads to several addresses goes on to the next. A host without an address, or without IPv6, has
nothing to keep there. An address that another process has is tried again until that process has gone, and one for which
the system has no descriptor or memory, until it has. Where the addresses cannot be read, the earlier ones stay kept.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

IP_FREEBIND = 15  # linux/in.h; of IPv6 sockets, too
AGAIN = 1.0  # seconds between two tries
IPV6_ADDRESSES = "/proc/self/net/if_inet6"
IPV4_ROUTES = "/proc/self/net/fib_trie"
# bind(2), socket(2): the address is another process's, or descriptors or memory are short; other errors stay
PASSING = {errno.EADDRINUSE, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
LINK = "20"  # scope of a link-local address in the former: IPV6_ADDR_LINKLOCAL, include/net/ipv6.h


def bind_socket(place: str, scope: int = 0) -> socket.socket:
    """A socket that keeps an address.

    Args:
        place: The address and the port.
        scope: Number of the interface of a link-local address.

    Raises:
        OSError: it cannot be had.
    """
    host, _, port = place.rpartition(":")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.setsockopt(socket.IPPROTO_IP, IP_FREEBIND, 1)
        address = (host.strip("[]"), int(port))
        one.bind((*address, 0, scope) if scope else address)
    except OSError:
        one.close()
        raise
    return one


def host_addresses(family: str) -> set[tuple[str, int]]:
    """Addresses of the host, each with the number of its interface where it is a link's own, else 0.

    Args:
        family: `[::]` or `0.0.0.0`.

    Raises:
        OSError: the kernel's table cannot be read now. One that does not exist has no addresses.
    """
    try:
        if family == "[::]":
            # address, interface, prefix length, scope, flags, name (kernel, net/ipv6/addrconf.c)
            rows = [line.split() for line in Path(IPV6_ADDRESSES).read_text().splitlines()]
            return {
                (f"[{ipaddress.IPv6Address(int(row[0], 16))}]", int(row[1], 16) if row[3] == LINK else 0)
                for row in rows
            }
        # an address is on the line before its type (kernel, net/ipv4/fib_trie.c)
        found = re.findall(r"\|-- ([0-9.]+)\n +/32 host LOCAL", Path(IPV4_ROUTES).read_text())
        return {(address, 0) for address in found}
    except FileNotFoundError:
        return set()


def expand(argument: str) -> set[tuple[str, int]]:
    """Places that an argument stands for at the moment, each with its scope.

    Raises:
        OSError: the host's addresses cannot be read now.
    """
    place, *exceptions = argument.split("-")
    if not exceptions:
        return {(place, 0)}
    host, _, port = place.rpartition(":")
    return {(f"{one}:{port}", scope) for one, scope in host_addresses(host) if one not in exceptions}


class Keeper:
    """Sockets at the places of arguments."""

    def __init__(self, arguments: list[str]) -> None:
        """None is kept yet."""
        self.arguments = arguments
        self.kept: dict[tuple[str, int], socket.socket] = {}
        self.impossible: set[tuple[str, int]] = set()
        """Places that the host has not."""
        self.reported: set[str] = set()
        """What failed the last time."""
        self.spare: list[int] = []
        """A descriptor for reading the host's addresses, where sockets take all others."""

    def update(self) -> bool:
        """Keep what can be kept now; returns whether there is to be another try."""
        wanted: set[tuple[str, int]] = set()
        failed: dict[str, OSError] = {}
        while self.spare:
            os.close(self.spare.pop())
        for argument in self.arguments:
            try:
                wanted |= expand(argument)
            except OSError as error:
                failed[argument] = error
        with suppress(OSError):  # the system may have none
            self.spare.append(os.open(os.devnull, os.O_RDONLY))
        if failed:
            wanted |= set(self.kept) | self.impossible
        for one in set(self.kept) - wanted:
            self.kept.pop(one).close()
        for one in wanted - set(self.kept) - self.impossible:
            try:
                self.kept[one] = bind_socket(*one)
            except OSError as error:
                if error.errno not in PASSING:
                    self.impossible.add(one)
                failed[one[0]] = error
        for name in sorted(set(failed) - self.reported):
            sys.stderr.write(f"{name}: {failed[name].strerror}\n")
        self.reported = set(failed)
        self.impossible &= wanted
        return any("-" in one for one in self.arguments) or bool(wanted - set(self.kept) - self.impossible)


def main() -> None:
    """Keep what the arguments name until a signal ends the process."""
    keeper = Keeper(sys.argv[1:])
    while keeper.update():
        time.sleep(AGAIN)
    signal.pause()


if __name__ == "__main__":
    main()
