"""Addresses that no other user of a host may listen at, since clients of the gateway's listeners could reach them.

A name with addresses of both families leads a client to either, and `localhost` to ::1 first. A process that listens
at a listener's port, at an address of the other family, is sent the keys of such clients. Instances need none of this:
their ports are on the loopback interface, and their socket units hold both 127.0.0.1 and ::1. What shares weights and
what monitors gets no keys: its clients are named by address, and bytes of weights are hashed.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rigwright.declaration.rig import Rig

PREFIX = "rigwright_reserved-"
UNIT = re.compile(r"rigwright_reserved-[0-9a-f]{12}\.service")
PROGRAM = Path(__file__).resolve().parents[2] / "roles/gateway/host/reserve.py"
# ip_unprivileged_port_start (kernel, networking/ip-sysctl): below it root alone listens.
UNPRIVILEGED = 1024


def split_place(place: str) -> tuple[str, int]:
    """The address and the port of `ADDRESS:PORT`, without brackets."""
    address, _, port = place.rpartition(":")
    return address.strip("[]"), int(port)


def counterparts(places: Iterable[str]) -> tuple[str, ...]:
    """Addresses to reserve beside those of listeners.

    A port whose listeners have addresses of both families has none: those are declared, and each is held. One of a
    single family has the loopback address of the other where its listeners are on the loopback interface alone, and
    all addresses of the other otherwise.

    Args:
        places: Where listeners are, as `ADDRESS:PORT`.

    Returns:
        Likewise, in order; ports below UNPRIVILEGED have none.
    """
    ports = defaultdict(list)
    for place in places:
        address, port = split_place(place)
        ports[port].append(ip_address(address))
    found = []
    for port, addresses in sorted(ports.items()):
        families = {isinstance(one, IPv6Address) for one in addresses}
        if port < UNPRIVILEGED or len(families) > 1:
            continue
        local = all(one.is_loopback for one in addresses)
        if families == {True}:
            found.append(f"{'127.0.0.1' if local else '0.0.0.0'}:{port}")  # noqa: S104 (nothing listens there)
        else:
            found.append(f"[{'::1' if local else '::'}]:{port}")
    return tuple(found)


def reserved_addresses(rig: Rig) -> tuple[str, ...]:
    """Those of a rig's gateway, as `ADDRESS:PORT`."""
    listeners = rig.gateway.listeners.values() if rig.gateway else ()
    return counterparts(place for one in listeners for place in one.addresses)


def unit_name(reserved: Sequence[str]) -> str:
    """The unit that keeps addresses: another one for each set of them, and for each version of its program.

    An activation ends units that are not declared before sockets begin to listen, and its way back, too. With a name
    for each set no unit keeps an address at which a socket of the other generation is to listen.
    """
    text = "\n".join([*reserved, PROGRAM.read_text()])
    return f"{PREFIX}{hashlib.sha256(text.encode()).hexdigest()[:12]}.service"


def unit_names(rig: Rig) -> tuple[str, ...]:
    """The unit of a rig's reserved addresses; none where it has none."""
    reserved = reserved_addresses(rig)
    return (unit_name(reserved),) if reserved else ()
