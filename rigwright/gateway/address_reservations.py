"""Addresses that no other user of a host may listen at, since clients of the gateway's listeners could reach them.

A name with addresses of both families leads a client to either, and `localhost` to ::1 first; another name of the host
leads to another address of one family. A process that listens at a listener's port, at such an address, is sent the
keys of such clients. Instances need none of this: their ports are on the loopback interface, and their socket units
hold both 127.0.0.1 and ::1. Weight shares and monitoring have no keys: their clients are named by address, and bytes of
weights are hashed.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from rigwright.host.basic_facts import ANY, ListeningSocket
from rigwright.model.gateway_schema import Gateway

if TYPE_CHECKING:
    pass

PREFIX = "rigwright_reserved-"
RESERVATION_UNIT = re.compile(r"rigwright_reserved-[0-9a-f]{12}\.service")
PROGRAM = Path(__file__).resolve().parents[2] / "roles/gateway/host/reserve.py"
# ip_unprivileged_port_start (kernel, networking/ip-sysctl): below it root alone listens.
UNPRIVILEGED = 1024
UNSPECIFIED = {4: "0.0.0.0", 6: "::"}  # noqa: S104 (nothing listens there)
LOCAL_NAMES = {4: ("127.0.0.1", "127.0.1.1"), 6: ("::1",)}
"""Loopback addresses that names lead to: those of `localhost`, and of the host's own name (Debian Reference, 5.1.1)."""


def split_place(place: str) -> tuple[str, int]:
    """The address and the port of `ADDRESS:PORT`, without brackets."""
    address, _, port = place.rpartition(":")
    return address.strip("[]"), int(port)


@dataclass(frozen=True, order=True)
class Reservation:
    """An address to reserve at a port; an unspecified one stands for all of its family."""

    port: int
    address: str
    held: tuple[str, ...] = ()
    """Of an unspecified address: those of its family that listeners hold. The socket of one prevents a socket for the
    unspecified address (bind(2)), so each other address that the host has is reserved by itself."""

    def __str__(self) -> str:
        """An argument of the program that keeps it."""
        return "-".join((f"{_bracket_ipv6(self.address)}:{self.port}", *map(_bracket_ipv6, self.held)))

    def is_taken_by(self, listener: ListeningSocket, host_addresses: Collection[str]) -> bool:
        """Whether a process keeps the reservation from being made.

        Args:
            listener: Where the process listens.
            host_addresses: Those of the host; another address of its loopback network is no client's.
        """
        if listener.port != self.port or not listener.is_blocking(self.address):
            return False
        if not self.held or listener.address == ANY:
            return True
        one = ip_address(listener.address)
        one = one.ipv4_mapped or one if isinstance(one, IPv6Address) else one
        return one.is_unspecified or (str(one) not in self.held and str(one) in host_addresses)


def counterparts(places: Iterable[str]) -> tuple[Reservation, ...]:
    """Addresses to reserve beside those of listeners.

    Of each family in which no listener of the port has all addresses: LOCAL_NAMES where the port's listeners are on the
    loopback interface alone, and all addresses otherwise.

    Args:
        places: Where listeners are, as `ADDRESS:PORT`.

    Returns:
        In order of ports and addresses; ports below UNPRIVILEGED have none.
    """
    ports = defaultdict(list)
    for place in places:
        address, port = split_place(place)
        ports[port].append(ip_address(address))
    found = []
    for port, addresses in sorted(ports.items()):
        local = all(one.is_loopback for one in addresses)
        for version, names in LOCAL_NAMES.items():
            listeners = [one for one in addresses if one.version == version]
            if port < UNPRIVILEGED or any(one.is_unspecified for one in listeners):
                continue
            held = tuple(sorted({str(one) for one in listeners}))
            if local or held:
                found += [Reservation(port, name) for name in names if name not in held]
            if not local:
                found.append(Reservation(port, UNSPECIFIED[version], held))
    return tuple(sorted(found))


def reserved_addresses(gateway: Gateway | None) -> tuple[Reservation, ...]:
    """Those of a rig's gateway."""
    listeners = gateway.listeners.values() if gateway else ()
    return counterparts(place for one in listeners for place in one.addresses)


def _bracket_ipv6(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def unit_name(reserved: Sequence[Reservation]) -> str:
    """The unit that keeps addresses: another one for each set of them, and for each version of its program.

    An activation ends units that are not declared before sockets begin to listen, and its way back, too. With a name
    for each set no unit keeps an address at which a socket of the other generation is to listen.
    """
    text = "\n".join([*map(str, reserved), PROGRAM.read_text()])
    return f"{PREFIX}{hashlib.sha256(text.encode()).hexdigest()[:12]}.service"


def unit_names(gateway: Gateway | None) -> tuple[str, ...]:
    """The unit of a rig's reserved addresses; none where it has none."""
    reserved = reserved_addresses(gateway)
    return (unit_name(reserved),) if reserved else ()
