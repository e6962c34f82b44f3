"""The fingerprint of a host: entries of all classes, with origin and author."""

from __future__ import annotations

from dataclasses import dataclass, field

from checks.survey.section import Section


@dataclass(frozen=True)
class FingerprintEntry:
    """One entry that no package, deploy or derivation explains, or that differs from what does."""

    kind: str
    """The name of its class."""
    key: str
    """What it is called within its class: a path, or the name that a reader gives (`user alice`)."""
    value: str
    """What it is now: kind, mode, owner, group and a digest keyed by the host, or a reader's words; empty for a
    packaged entry that is gone."""
    run_value: str
    """The same, keyed by this run's nonce: equal on hosts where the entry is equal."""
    problem: str = ""
    """Why it can never be accepted; empty where it can."""
    expected_from: str = ""
    """The package or derivation that it differs from; empty where nothing has it."""
    since: float = 0.0
    """When it changed, in seconds since 1970, as far as the host knows; 0 where it does not."""
    author: str = ""
    """By whom or what, as far as logs of the host tell; empty where they do not."""
    before: str = ""
    """The accepted value, of an entry that the accepted copy on the host has."""
    difference: list[str] = field(default_factory=list)
    """Lines of a redacted difference to the accepted copy; at most 20."""


@dataclass(frozen=True)
class EntryPackage:
    """A package that brings entries."""

    name: str
    version: str
    archive: str
    """The declared, signed archive that has this version; empty for none: then its entries are entries themselves."""
    classes: dict[str, int]
    """Class -> number of its entries there."""


@dataclass(frozen=True)
class HostFingerprint:
    """All of it."""

    entries: list[FingerprintEntry]
    packages: list[EntryPackage]
    explained: dict[str, int]
    """Class -> number of entries that a package, a deploy or a derivation explains."""
    excluded: dict[str, int]
    """Reason of the churn table -> number of entries that it leaves out."""
    accepted_serial: int
    """Of the accepted entries that the host knows; 0 for none."""
    accepted_digest: str
    """SHA-256 of those; empty for none."""


FINGERPRINT: Section[HostFingerprint] = Section(
    "fingerprint",
    HostFingerprint,
    lambda scene: None,
    blind="a host whose root forges it: its key, its package database, its ledger and its answers are root's",
)


@dataclass(frozen=True)
class StoredCopies:
    """Accepted entries as the host has stored them."""

    serial: int
    digest: str


ACCEPTED_COPIES: Section[StoredCopies] = Section(
    "accepted_copies", StoredCopies, lambda scene: None, phase="separate", blind="what root forges"
)
