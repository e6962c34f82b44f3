"""Telling a host what its operator has accepted: a program of its own, after the review."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from checks.survey.fingerprint import FingerprintEntry, collection_question
from checks.survey.section import Section, SurveyScope


@dataclass(frozen=True)
class AcceptedCopies:
    """What a host has stored."""

    changed: list[tuple[str, str]]
    """Class and key of entries that are others than those that were reviewed; then nothing is stored."""
    copies: int
    """Contents of which it keeps a copy for differences."""
    accepted_serial: int
    """Of the accepted entries that the host knows now; an older serial than its own is not stored."""
    accepted_digest: str


def acceptance_question(
    scene: SurveyScope, serial: int, digest: str, entries: Iterable[FingerprintEntry]
) -> dict[str, object]:
    """What a host is told of accepted entries.

    Args:
        scene: The host.
        serial: Of the record; higher than the last one.
        digest: SHA-256 of the record.
        entries: All that it accepts.
    """
    shown = [[one.kind, one.key, one.value] for one in entries]
    return {**collection_question(scene), "serial": serial, "digest": digest, "entries": shown}


ACCEPTED_COPIES: Section[AcceptedCopies] = Section(
    "accepted_copies",
    AcceptedCopies,
    lambda scene: None,
    limit=120.0,
    blind="a host whose root replaces what was accepted",
    phase="separate",
)
"""Its question is `acceptance_question`: only an acceptance asks it."""
