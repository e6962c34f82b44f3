"""What units of ours are to be, and to hold."""

from __future__ import annotations

from dataclasses import dataclass

# In place of addresses, of what listens on none.
UNIX = "unix"


@dataclass(frozen=True)
class SocketUnit:
    """A socket unit, which holds what a service is given."""

    unit: str
    addresses: frozenset[str]
    """Where it is to listen, as ss prints them; UNIX for unix sockets."""
    also: frozenset[str] = frozenset()
    """Where it may, if the host has that."""

    def is_listening(self, found: frozenset[str]) -> bool:
        """Whether it listens where it is to, and nowhere else.

        Args:
            found: Where it listens.
        """
        return self.addresses <= found <= self.addresses | self.also

    @property
    def port(self) -> int:
        """Its TCP port; 0 for none."""
        return int(min(self.addresses).rpartition(":")[2]) if UNIX not in self.addresses else 0


@dataclass(frozen=True)
class UnitState:
    """What a unit's process is to be, and to hold."""

    unit: str
    started_from: str
    """SHA-256 of the files that it is started from, as a script of its generation writes it down."""
    port: int
    """That it listens on; 0 for none."""
    cards: frozenset[int]
    holders: tuple[SocketUnit, ...] = ()
    """The socket units that listen in its stead."""
    leads_to: str = ""
    """The unit of the instance that its port leads to; empty for an instance itself, and for a gateway."""
    configured_from: str = ""
    """SHA-256 of the files that it reads beside those, as a script writes it down; empty where there are none."""
    rereads: bool = False
    """Whether it reads them again without a restart."""
