"""Boxes that serve one address together: the `fleet` key of a box, and what each box knows of the others."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated

from pydantic import AfterValidator, Field

from rigwright.address_types import Address, Port
from rigwright.problems import FrozenModel, InventoryModel
from rigwright.validated_types import Name

DOMAIN = "rigwright"
"""Ends the names in certificates of a fleet: no public name ends so, and a name of 48 characters still fits into a
common name (RFC 5280: 64)."""


def _reject_loopback(value: str) -> str:
    wrong = ValueError("an IP address of the host that other boxes reach, not of the loopback interface")
    try:
        is_loopback = ip_address(value).is_loopback
    except ValueError:
        raise wrong from None
    if is_loopback:
        raise wrong
    return value


class FleetEntry(InventoryModel):
    """Where gateways of other boxes reach the instances of a box."""

    address: Annotated[Address, AfterValidator(_reject_loopback)] = Field(
        description="The address of this box at which gateways of the fleet reach its instances."
    )
    port: Port = Field(default=8555, description="The TCP port; no other service of the box may have it.")


class RemoteInstance(FrozenModel):
    """An instance of another box, as a gateway needs to know it."""

    box: Name
    instance: Name
    address: Address
    port: Port
    variant: str
    model: str
    """The name of the model at its engine."""
    paths: tuple[str, ...]
    """As they follow `/v1/`."""
    unsalted_paths: tuple[str, ...]
    """Those of them that ignore a cache's salt."""
    slots: int
    usage_on_request: bool
    salts_prompts: bool

    @property
    def name(self) -> str:
        """BOX/INSTANCE, as an inventory names it."""
        return f"{self.box}/{self.instance}"


class FleetListener(FrozenModel):
    """The port of a box whose instances other boxes use."""

    address: Address
    port: Port
    lent: dict[Name, tuple[str, ...]]
    """Instances that it serves -> names by which clients of other boxes ask for their models."""
    variants: dict[Name, str]
    """The variant of each of them, which those gateways rely on."""
    users: dict[Name, tuple[Name, ...]]
    """For each of them, the boxes whose gateways may use it."""
    bounds: dict[Name, int]
    """For each of those boxes, the requests of its gateway that may be under way here."""

    @property
    def fronts(self) -> tuple[Name, ...]:
        """Boxes whose gateways may use any of them."""
        return tuple(sorted({box for boxes in self.users.values() for box in boxes}))

    @property
    def endpoint(self) -> str:
        """`ADDRESS:PORT`, of IPv6 in brackets."""
        return format_fleet_endpoint(self.address, self.port)


class FleetLinks(FrozenModel):
    """The connections of a box with others of its inventory."""

    remote: tuple[RemoteInstance, ...] = ()
    """Instances of others that its gateway uses, by name."""
    listener: FleetListener | None = None
    """None where no other box uses its instances."""


def format_fleet_endpoint(address: str, port: int) -> str:
    """`ADDRESS:PORT`, of IPv6 in brackets."""
    return f"[{address}]:{port}" if ip_address(address).version == 6 else f"{address}:{port}"


def front_certificate_name(box: str) -> str:
    """The name in the client certificate of a box whose gateway uses instances of others."""
    return f"{box}.front.{DOMAIN}"


def lender_certificate_name(box: str) -> str:
    """The name in the server certificate of a box's fleet port."""
    return f"{box}.box.{DOMAIN}"
