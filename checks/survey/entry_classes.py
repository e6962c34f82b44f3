"""Classes of the fingerprint: everything that controls access to a host and execution as root there.

Paths and kinds select an entry, never its meaning: a new trick in an old place needs no new code.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EntryClass:
    """One class of entries."""

    name: str
    """What options and records call it."""
    title: str
    """What belongs to it, in words."""
    paths: tuple[str, ...] = ()
    """Shell patterns of absolute paths; one that ends in `/**` takes all files below a folder."""
    readers: tuple[str, ...] = ()
    """Names of readers on the host, for what no file shows: kernel state, rows of a file, effective settings."""
    reaches_us: bool = True
    """Whether a change can reach what Rigwright serves: an unaccepted one exits 1. Others are listed."""
    secret: bool = False
    """Whether contents are secrets: differences say that they exist, not what they are."""


ENTRY_CLASSES: tuple[EntryClass, ...] = (
    EntryClass("accounts", "accounts: a row per user, with the state of its password", readers=("users",), secret=True),
    EntryClass("groups", "groups: a row per group, with its members", readers=("groups",)),
    EntryClass(
        "sudo", "sudo, doas and polkit rules", ("/etc/sudoers", "/etc/sudoers.d/**", "/etc/doas.conf", "/etc/doas.d/**")
    ),
    EntryClass("pam", "PAM services, modules and their settings", ("/etc/pam.d/**", "/etc/pam.conf", "/etc/security/**")),
)
