"""Boxes that serve one address together: the `fleet` key of a box, and what each box knows of the others."""

from __future__ import annotations

from ipaddress import IPv4Interface, ip_address
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, model_validator

from rigwright.address_types import Address, Port
from rigwright.problems import FrozenModel, InventoryModel
from rigwright.validated_types import Name, matching, refuse_violations

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


_NETWORK_ADDRESS = "an IPv4 address with the prefix length of its network, such as 192.0.2.100/24"
_SOURCE_ADDRESS = "an IPv4 address of this box"


def _virtual_address(value: str) -> str:
    try:
        found = IPv4Interface(value)
    except ValueError:
        raise ValueError(_NETWORK_ADDRESS) from None
    if "/" not in value or found.network.prefixlen > 30 or found.ip.is_loopback or found.ip.is_multicast:
        raise ValueError(_NETWORK_ADDRESS)
    if found.ip in (found.network.network_address, found.network.broadcast_address):
        raise ValueError(f"{_NETWORK_ADDRESS}: {found.ip} is no address of a host in {found.network}")
    return str(found)


def _source_address(value: str) -> str:
    try:
        found = ip_address(_reject_loopback(value))
    except ValueError:
        raise ValueError(_SOURCE_ADDRESS) from None
    if found.version == 6 or found.is_unspecified or found.is_multicast:
        raise ValueError(_SOURCE_ADDRESS)
    return str(found)


class VirtualAddressEntry(InventoryModel):
    """An address that one of two gateways has, and the other one gets when the first is lost."""

    EXAMPLE: ClassVar[str] = (
        '{"address": "192.0.2.100/24", "source": "192.0.2.7", "interface": "eth0", "priority": 150}'
    )

    address: Annotated[str, AfterValidator(_virtual_address)] = Field(
        examples=['"192.0.2.100/24"'],
        description="The IPv4 address that both gateways share, with the prefix length of its network.",
    )
    source: Annotated[str, AfterValidator(_source_address)] = Field(
        examples=['"192.0.2.7"'],
        description="The box's own address in that network: the other gateway hears from it, and listeners with the "
        "shared address also listen there.",
    )
    interface: Annotated[
        str, matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,14}", "the name of a network interface, such as eth0")
    ] = Field(examples=['"eth0"'], description="The network interface that has `source`, and gets the address.")
    priority: Annotated[int, Field(ge=1, le=254, strict=True)] = Field(
        examples=["150"],
        description="Of two gateways that start together, the one with the higher number gets the address.",
    )

    @property
    def host(self) -> str:
        """The shared address without its prefix length."""
        return str(IPv4Interface(self.address).ip)

    @model_validator(mode="after")
    def _check_network(self) -> VirtualAddressEntry:
        shared, own = IPv4Interface(self.address), ip_address(self.source)
        refuse_violations(
            (own == shared.ip, f"a source other than {own}, which both gateways share"),
            (own not in shared.network, f"a source in {shared.network}, the network of {shared.ip}; {own} is outside"),
        )
        return self


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


class FrontPair(FrozenModel):
    """The part of one box in an address that two gateways share."""

    address: Address
    prefix: int
    source: Address
    interface: str
    priority: int
    partner: Name
    """The box of the other gateway."""
    partner_source: Address


class FleetLinks(FrozenModel):
    """The connections of a box with others of its inventory."""

    remote: tuple[RemoteInstance, ...] = ()
    """Instances of others that its gateway uses, by name."""
    listener: FleetListener | None = None
    """None where no other box uses its instances."""
    pair: FrontPair | None = None
    """None where it shares no address with another gateway."""


def format_fleet_endpoint(address: str, port: int) -> str:
    """`ADDRESS:PORT`, of IPv6 in brackets."""
    return f"[{address}]:{port}" if ip_address(address).version == 6 else f"{address}:{port}"


def front_certificate_name(box: str) -> str:
    """The name in the client certificate of a box whose gateway uses instances of others."""
    return f"{box}.front.{DOMAIN}"


def lender_certificate_name(box: str) -> str:
    """The name in the server certificate of a box's fleet port."""
    return f"{box}.box.{DOMAIN}"
