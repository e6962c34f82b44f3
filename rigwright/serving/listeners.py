"""How clients reach an instance: a port that systemd holds for good, and what carries it to the instance's socket."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from rigwright.host.unit_states import SocketUnit, UnitState
from rigwright.model.accounts import ServiceAccounts
from rigwright.model.gateway.entry import Gateway
from rigwright.model.instance import SOCKET_FOLDER, Instance
from rigwright.model.roots import Roots
from rigwright.render import render

LOOPBACK = "127.0.0.1"
# `localhost` is this first, where the host has it.
LOOPBACK_6 = "[::1]"
LOOPBACKS = (LOOPBACK, LOOPBACK_6.strip("[]"))
PREFIX = "rigwright_listener-"
# Requests under way at once, streams among them, that one port takes; beyond it connections are closed.
CONNECTIONS = 4096


def listener_units(port: int) -> tuple[str, str]:
    """The units of a port: the service that carries bytes, and the socket that holds it. They have the port's name, so
    that it stays held while instances behind it come and go.
    """
    return f"{PREFIX}{port}.service", f"{PREFIX}{port}.socket"


def port_socket(port: int) -> SocketUnit:
    """The socket unit of a port: by IPv4, and by IPv6 where the host has it."""
    return SocketUnit(listener_units(port)[1], frozenset({f"{LOOPBACK}:{port}"}), frozenset({f"{LOOPBACK_6}:{port}"}))


@dataclass(frozen=True)
class PortListener:
    """A port's two units."""

    port: int
    instance: str
    """The unit of the instance that it leads to."""
    socket_text: str
    text: str
    """Of the service that carries bytes."""

    @property
    def unit(self) -> str:
        """The service."""
        return listener_units(self.port)[0]

    @property
    def socket_unit(self) -> str:
        """What holds the port."""
        return listener_units(self.port)[1]

    @property
    def unit_state(self) -> UnitState:
        """What its process is to be, and to hold."""
        digest = hashlib.sha256(self.text.encode()).hexdigest()
        return UnitState(self.unit, digest, self.port, frozenset(), (port_socket(self.port),), self.instance)


def build_listener(
    roots: Roots, accounts: ServiceAccounts, gateway: Gateway | None, instance: Instance, owned: str
) -> PortListener:
    """The listener on an instance's declared port.

    Args:
        roots: Directories on the host.
        accounts: System users of the services.
        gateway: The declared gateway.
        instance: The instance.
        owned: First line of unit files of ours.
    """
    unit, socket = listener_units(instance.port)
    values: dict[str, object] = {
        "owned": owned,
        "roots": roots,
        "instance": instance,
        "addresses": (LOOPBACK, LOOPBACK_6),
        "holder": socket,
        "unit": unit,
        "groups": accounts.socket_groups(instance, gateway),
        "connections": CONNECTIONS,
        "sockets": SOCKET_FOLDER,
    }
    return PortListener(
        port=instance.port,
        instance=instance.unit,
        socket_text=render("serving/listener.socket.j2", **values),
        text=render("serving/listener.service.j2", **values),
    )
