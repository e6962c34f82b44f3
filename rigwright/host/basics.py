"""What every look at a host reads: its system, its memory, its cards and who listens (templates/probe/basics.sh.j2)."""

from __future__ import annotations

from dataclasses import dataclass

from rigwright.host import channel
from rigwright.host.channel import (
    Told,
    hexadecimal,
    matching,
    number,
    optional,
    pci_address,
    pci_id,
    said,
    text,
    tolerant,
    word,
)

SCHEMA: channel.Schema = {
    "os_id": (word,),
    "os_version": (optional(word),),
    "kernel": (word,),
    "uid": (number,),
    "memory_kib": (number,),
    "card": (pci_address, pci_id),
    "listener": (number, said, text),
    "listener_hex": (hexadecimal,),
}
_unit = tolerant(matching(r"[A-Za-z0-9:_.\\@-]{1,240}\.(service|scope)", "a service or a scope"))


@dataclass(frozen=True)
class Listener:
    """A TCP port somebody listens on."""

    port: int
    process: str
    """Its name; empty where it is not known, as for who is not root."""
    unit: str
    """The systemd unit of the process; empty where it is not known."""


@dataclass(frozen=True)
class Basics:
    """One host, as found."""

    os_id: str
    os_version: str
    kernel: str
    uid: int
    memory_kib: int
    cards: tuple[tuple[str, str], ...]
    """(address, vendor:device) of each NVIDIA display adapter, by address."""
    listeners: tuple[Listener, ...]
    """By port; one that listens on more than one address is there as often."""


def basics(told: Told) -> Basics:
    """Read them of what a host has told.

    Raises:
        ValueError: one is missing.
    """
    named = [Listener(port, process, unit_of(cgroup)) for port, process, cgroup in told.many("listener")]
    return Basics(
        os_id=told.one("os_id"),
        os_version=told.one("os_version"),
        kernel=told.one("kernel"),
        uid=told.one("uid"),
        memory_kib=told.one("memory_kib"),
        cards=tuple(sorted(told.many("card"))),
        listeners=tuple(
            sorted([*named, *(Listener(port, "", "") for port in told.all("listener_hex"))], key=lambda one: one.port)
        ),
    )


def unit_of(cgroup: str) -> str:
    """The unit of the system's manager that a control group belongs to, such as nginx.service; empty for none.

    It is the first one after the slices. What comes after it is named by whoever runs there: a user's own manager has
    units of any name.
    """
    inner = (part for part in cgroup.split("/") if part and not part.endswith(".slice"))
    return str(_unit(next(inner, "")))
