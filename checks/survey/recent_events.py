"""Events on a host that explain several failures at once: package changes, a lost network, missing mounts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from checks.survey.section import Section

PackageAction = Literal["install", "upgrade", "remove", "purge"]


@dataclass(frozen=True)
class PackageChange:
    """A change of a package, from dpkg's log."""

    moment: float
    """Seconds since 1970."""
    action: PackageAction
    package: str
    before: str
    """The version before; empty for none."""
    after: str
    """The version after; empty for none."""
    program: str
    """The program that apt's history names for that time, without its folder; empty where it names none."""
    user: str
    """The user that asked for it, by apt's history; empty where it names none."""
    files: list[str]
    """Programs and libraries of the package, where a running process may still have the version before."""


@dataclass(frozen=True)
class RecentEvents:
    """All of it."""

    now: float
    """The host's clock, in seconds since 1970."""
    monotonic: float
    """The same moment on the clock of systemd's timestamps, in seconds (CLOCK_MONOTONIC)."""
    changes: list[PackageChange]
    """The latest ones, oldest first."""
    default_routes: int
    nameservers: int
    """Lines of /etc/resolv.conf that name one."""
    unmounted: list[str]
    """Mount points that /etc/fstab mounts at boot and that are not mounted now."""


EVENTS: Section[RecentEvents] = Section(
    "recent_events",
    RecentEvents,
    lambda scene: {},
    limit=10.0,
    blind="changes of packages without dpkg, and those that its log no longer has",
    start_order=20,
)
