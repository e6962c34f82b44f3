"""Where a client on a box asks: an instance at its own socket, or the gateway's front door."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

from rigwright.gateway.served_models import offers_of
from rigwright.model.accounts import ServiceAccounts
from rigwright.model.api_keys import resolve_inventory_path
from rigwright.model.gateway_schema import Gateway, ListenerEntry
from rigwright.model.instance import Instance
from rigwright.model.roots import Roots
from rigwright.problems import describe_unknown
from rigwright.serving.instance_units import LOOPBACK, credential_path


class NoClientTarget(ValueError):
    """There is no such place to ask, or no key for it; the text is for the operator."""


@dataclass(frozen=True)
class ClientTarget:
    """One place that answers OpenAI's API, as a job on its host reaches it."""

    name: str
    """The instance's, or that of what the gateway offers: part of the job's unit name, and of reports."""
    at: str
    """The path of a unix socket, or ADDRESS:PORT."""
    model: str
    """The model that requests name."""
    credential: str = ""
    """The file on the host whose only line is the API key: systemd hands it to the job; empty where there is none."""
    groups: tuple[str, ...] = ()
    """Groups that may connect."""
    key: str = ""
    """A client's key of the operator's, given to the job on its standard input."""
    authority: str = ""
    """PEM of the issuer of the certificate that is shown there; TLS is spoken where it is given."""
    tls_name: str = ""
    """The name that the certificate has to be for."""

    def __repr__(self) -> str:
        return f"Place({self.name} at {self.at})"


def instance_target(
    roots: Roots, accounts: ServiceAccounts, gateway: Gateway | None, instance: Instance
) -> ClientTarget:
    """An instance's own socket: nothing of the network, the port or the gateway is on the way."""
    return ClientTarget(
        name=instance.name,
        at=instance.socket,
        model=instance.model_name,
        credential=credential_path(roots, instance),
        # its folder is its own group's until it has answered, and then the gateway's
        groups=accounts.socket_groups(instance, gateway),
    )


def gateway_target(
    inventory: str,
    instances: tuple[Instance, ...],
    gateway: Gateway | None,
    instance: Instance,
    listener: str | None = None,
    key_file: str | None = None,
) -> ClientTarget:
    """The front door through which clients ask for what an instance serves.

    Args:
        inventory: The file that declares the rig.
        instances: The declared instances.
        gateway: The declared gateway.
        instance: One of its.
        listener: The gateway's, by name; without it the first one that offers the model.
        key_file: The operator's file whose only line is a client's key.

    Raises:
        NoClientTarget: there is no gateway, no such listener, or no key where one is needed.
    """
    offer = next((one for one in offers_of(instances, gateway) if instance in one.instances), None)
    if gateway is None or offer is None:
        raise NoClientTarget(f"instance {instance.name} is behind no gateway: leave --gateway out")
    open_ = {name: one for name, one in gateway.listeners.items() if not one.models or offer.name in one.models}
    name = listener or next(iter(open_), "")
    if name not in open_:
        raise NoClientTarget(f"of those that offer {offer.name}, {describe_unknown('listener', name, open_)}")
    entry = open_[name]
    if entry.keys and not key_file:
        raise NoClientTarget(f"listener {name} needs a client's key: --key-file FILE (`rigwright key make` makes one)")
    host, _, port = listener_endpoint(entry).rpartition(":")
    return ClientTarget(
        name=instance.name,
        at=f"{host}:{port}",
        model=offer.name,
        key=load_key_line(key_file) if key_file and entry.keys else "",
        authority=_load_trusted_certificates(inventory, entry) if entry.tls else "",
        tls_name=next(iter(entry.names), entry.address),
    )


def listener_address(entry: ListenerEntry) -> IPv4Address | IPv6Address:
    """The address at which the host itself reaches a listener, and from which it comes then."""
    address = ip_address(entry.own_address)
    return ip_address(LOOPBACK) if address.is_unspecified else address


def listener_endpoint(entry: ListenerEntry) -> str:
    """One of a listener's places, as the host itself reaches it."""
    address = listener_address(entry)
    return f"[{address}]:{entry.port}" if address.version == 6 else f"{address}:{entry.port}"


def load_key_line(path: str) -> str:
    """The key in a file of the operator's.

    Raises:
        NoClientTarget: it cannot be read, or is not one line of printable ASCII.
    """
    try:
        found = Path(path).expanduser().read_text().strip("\n")
    except (OSError, ValueError, RuntimeError) as error:
        raise NoClientTarget(f"{path}: {getattr(error, 'strerror', None) or 'is not text'}") from None
    if not (found.isascii() and found.isprintable() and found) or len(found) > 512:
        raise NoClientTarget(f"{path}: must be one line with only a key")
    return found


def _load_trusted_certificates(inventory: str, entry: ListenerEntry) -> str:
    """The certificate that a client has to trust: the operator's, or that of Rigwright's authority."""
    from rigwright.gateway.certificate_authority import CERTIFICATE, FOLDER  # takes long to import

    folder = Path(inventory).parent
    path = Path(resolve_inventory_path(folder, entry.cert_file)) if entry.cert_file else folder / FOLDER / CERTIFICATE
    try:
        return path.read_text()
    except (OSError, ValueError) as error:
        raise NoClientTarget(f"{path}: {getattr(error, 'strerror', None) or 'is no certificate'}") from None
