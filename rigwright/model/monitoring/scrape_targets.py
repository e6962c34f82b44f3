"""The boxes that Prometheus asks."""

from __future__ import annotations

from ipaddress import ip_address

from pydantic import Field

from rigwright.addresses import Address, Port
from rigwright.problems import FrozenModel
from rigwright.types import Name, Text


class GatewayEndpoint(FrozenModel):
    """A listener of a gateway, as others reach it."""

    address: Address
    port: int = Field(ge=1, le=65535, strict=True)
    tls: bool = Field(strict=True)

    @property
    def endpoint(self) -> str:
        """`ADDRESS:PORT`."""
        return format_endpoint(self.address, self.port)

    @property
    def scheme(self) -> str:
        """What it speaks."""
        return "https" if self.tls else "http"


class ScrapedInstance(FrozenModel):
    """An instance that a gateway offers."""

    name: Name
    variant: Text
    model: Text
    engine: Text


class ScrapeTarget(FrozenModel):
    """A box that tells."""

    name: Name
    address: Address
    node_port: Port
    gpu_port: Port | None
    """None where it has no cards."""
    doors: tuple[GatewayEndpoint, ...]
    """Of its gateway; the first is asked for metrics."""
    instances: tuple[ScrapedInstance, ...]


def format_endpoint(address: str, port: int) -> str:
    """`ADDRESS:PORT`, as in an address of the web."""
    return f"[{address}]:{port}" if ip_address(address).version == 6 else f"{address}:{port}"
