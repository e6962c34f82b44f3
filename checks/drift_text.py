"""Texts of drifts: lists of things that must not be there, and shortened values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from checks import Drift, ItemText, list_items, report_drift
from checks.remedy import Remedy

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

LISTED = 3


def format_first_lines(lines: Sequence[str]) -> str:
    """The first few of many."""
    return ItemText.from_items(lines, shown=LISTED)


def shorten_digest(digest: str, begin: str = "") -> ItemText:
    """The beginning of a digest, after `begin`; its item is the whole."""
    return ItemText(f"{begin}{digest[:12]}", f"{begin}{digest}")


def describe_certificate(shown: str, certificate: Certificate) -> ItemText:
    """A certificate in words; its item has its SHA-256."""
    from cryptography.hazmat.primitives.hashes import SHA256  # slow to load, and for few

    return ItemText(shown, f"{shown}: {certificate.fingerprint(SHA256()).hex()}")


def describe_issuer(certificate: Certificate) -> ItemText:
    """The issuer of a certificate, for people."""
    return describe_certificate(f"one of {certificate.issuer.rfc4514_string()[:80]}", certificate)


def describe_stray_process(pid: int, words: Sequence[str], what: str, length: int) -> ItemText:
    """A process that runs where none is to be, with the first characters of its arguments."""
    text = ItemText.shorten(" ".join(words), length)
    return ItemText(f"process {pid} ({text}) {what}", f"process {pid} ({text.items[0]}) {what}")


def format_day(moment: float | None) -> str:
    """When something was, of seconds since the epoch."""
    if moment is None:
        return "never"
    try:
        return datetime.fromtimestamp(moment, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return "an invalid date"


MOST = 3
"""Differences that are shown; the others are counted."""


def expect_none(found: Iterable[str], expected: str, remedy: Remedy, restarts: Iterable[str] = ()) -> None:
    """Say what there is that is not to be, or pass.

    Args:
        found: The things.
        expected: The state without them.
        remedy: The way there.
        restarts: Services whose restart ends it, where a deploy may restart them.

    Raises:
        Drift: there is some, and waivers do not cover it.
    """
    if told := [*{list_items(one): one for one in found}.values()]:
        report_drift(Drift(expected, ItemText.from_items(told, "; ", MOST), remedy, restarts=restarts))
