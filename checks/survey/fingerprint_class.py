"""A class of the fingerprint's entries.

Paths and kinds select an entry, never its meaning: a new trick in an old place needs no new code.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EntryClass:
    """One class of entries."""

    name: str
    """The name in options and records."""
    title: str
    """Its members, in words."""
    paths: tuple[str, ...] = ()
    """Shell patterns of absolute paths; one that ends in `/**` takes all files below a folder."""
    readers: tuple[str, ...] = ()
    """Names of readers on the host, for what no file shows: kernel state, rows of a file, effective settings."""
    reaches_us: bool = True
    """Whether a change can reach what Rigwright serves: an unaccepted one exits 1. Others are listed."""
    secret: bool = False
    """Whether contents are secrets: differences say that they exist, not what they are."""
    private_copies: bool = False
    """Whether files that only root may read are copied for differences, too: rules there are, and no passwords."""


def words(text: str) -> tuple[str, ...]:
    """Patterns of a text."""
    return tuple(text.split())
