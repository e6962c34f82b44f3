"""Facts that every look at a host reads: its system, its memory, its cards and its listeners
(templates/probe/basics.sh.j2)."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from rigwright.host import script_output
from rigwright.host.pci_cards import CARD_SCHEMA, PciCard, read_pci_cards
from rigwright.host.script_output import (
    HostOutput,
    free_text,
    hexadecimal,
    matching,
    number,
    optional,
    text,
    tolerant,
    word,
)

SCHEMA: script_output.Schema = {
    **CARD_SCHEMA,
    "os_id": (word,),
    "os_version": (optional(word),),
    "kernel": (word,),
    "uid": (number,),
    "memory_kib": (number,),
    # port, address, process, control group, process id and user id
    "listener": (number, text, free_text, text, optional(number, 0), optional(number, 0)),
    "listener_hex": (hexadecimal,),
}
ANY = "*"
"""All addresses of both families; as ss prints them, and what it prints that is no address."""
_unit = tolerant(matching(r"[A-Za-z0-9:_.\\@-]{1,240}\.(service|scope)", "a service or a scope"))


@dataclass(frozen=True)
class ListeningSocket:
    """A TCP port with a listener."""

    port: int
    process: str
    """Its name; empty where it is not known, as for users other than root."""
    unit: str
    """The systemd unit of the process; empty where it is not known."""
    address: str = ANY
    """Where; ANY for all addresses, and where it is not known."""
    pid: int = 0
    """Of the process; 0 where it is not known."""
    uid: int = 0
    """Of its user."""

    def is_blocking(self, address: str) -> bool:
        """Whether no other socket can be bound to an address and this port (bind(2)).

        Args:
            address: An IP address; one of IPv6 is that family's alone.
        """
        if self.address == ANY:
            return True
        mine, other = ip_address(self.address), ip_address(address)
        mine = mine.ipv4_mapped or mine if isinstance(mine, IPv6Address) else mine
        return mine.version == other.version and (mine.is_unspecified or other.is_unspecified or mine == other)

    @property
    def holder_text(self) -> str:
        """The process, its unit and its user, for messages."""
        unit = f" ({self.unit})" if self.unit else ""
        return f"{self.process or 'unknown'}{unit}{f', pid {self.pid} of uid {self.uid}' if self.pid else ''}"


@dataclass(frozen=True)
class BasicFacts:
    """One host, as found."""

    os_id: str
    os_version: str
    kernel: str
    uid: int
    memory_kib: int
    cards: tuple[PciCard, ...]
    """In the order of the bus."""
    listeners: tuple[ListeningSocket, ...]
    """By port; one that listens on more than one address is there as often."""


def read_basics(told: HostOutput) -> BasicFacts:
    """Read them of what a host has told.

    Raises:
        ValueError: one is missing.
    """
    named = [
        ListeningSocket(port, process, unit_of(cgroup), _parse_address(at), pid, uid)
        for port, at, process, cgroup, pid, uid in told.many("listener")
    ]
    return BasicFacts(
        os_id=told.one("os_id"),
        os_version=told.one("os_version"),
        kernel=told.one("kernel"),
        uid=told.one("uid"),
        memory_kib=told.one("memory_kib"),
        cards=read_pci_cards(told),
        listeners=tuple(
            sorted(
                [*named, *(ListeningSocket(port, "", "") for port in told.all("listener_hex"))],
                key=lambda one: one.port,
            )
        ),
    )


def _parse_address(value: str) -> str:
    """An address as ss prints it, without brackets and interface."""
    try:
        return script_output.address(value.removeprefix("[").partition("]")[0])
    except ValueError:
        return ANY


def unit_of(cgroup: str) -> str:
    """The unit of the system's manager that a control group belongs to, such as nginx.service; empty for none.

    It is the first one after the slices. The user chooses the names after it: a user's own manager has units of any
    name.
    """
    inner = (part for part in cgroup.split("/") if part and not part.endswith(".slice"))
    return str(_unit(next(inner, "")))
