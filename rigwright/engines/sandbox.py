"""The needs of an engine's processes of their unit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sandbox:
    """The needs of a kind's processes of their unit in addition to the rest, and the exposure that they may leave."""

    exposure: float
    """The most that `systemd-analyze security` may say: 0 is nothing exposed, 10 everything."""
    exposure_with_cards: float
    """The same of an instance with cards: their device files cannot be hidden from it."""
    hidden: tuple[tuple[str, str], ...] = ()
    """Paths that they must not see, each with the reason."""
    writes_code: bool = False
    """Whether they compile while they run: then memory may be written and executed."""
    families: tuple[str, ...] = ("AF_UNIX",)
    """Families of sockets that they may open, in a network that has nothing but a loopback interface of its own."""
    calls: tuple[str, ...] = ()
    """System calls that they need beside those of any service."""
    reads_proc: bool = False
    """Whether they read what /proc tells of the whole host, such as its memory."""
    shared_memory: str = ""
    """The most that lies in /dev/shm, as systemd reads it; half of the host's memory without."""

    @property
    def has_loopback(self) -> bool:
        """Whether they speak to each other by addresses."""
        return "AF_INET" in self.families
