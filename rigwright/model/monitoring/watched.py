"""The boxes that Prometheus asks."""

from __future__ import annotations

from ipaddress import ip_address

from pydantic import Field

from rigwright.addresses import Address, Port
from rigwright.problems import Frozen
from rigwright.types import Name, Text


class Door(Frozen):
    """A listener of a gateway, as others reach it."""

    address: Address
    port: int = Field(ge=1, le=65535, strict=True)
    tls: bool = Field(strict=True)

    @property
    def endpoint(self) -> str:
        """`ADDRESS:PORT`."""
        return endpoint(self.address, self.port)

    @property
    def scheme(self) -> str:
        """What it speaks."""
        return "https" if self.tls else "http"


class Served(Frozen):
    """An instance that a gateway offers."""

    name: Name
    variant: Text
    model: Text
    engine: Text


class Watched(Frozen):
    """A box that tells."""

    name: Name
    address: Address
    node_port: Port
    gpu_port: Port | None
    """None where it has no cards."""
    doors: tuple[Door, ...]
    """Of its gateway; the first is asked for metrics."""
    instances: tuple[Served, ...]


def endpoint(address: str, port: int) -> str:
    """`ADDRESS:PORT`, as in an address of the web."""
    return f"[{address}]:{port}" if ip_address(address).version == 6 else f"{address}:{port}"
