"""Texts of drifts: lists of things that must not be there, and shortened values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone

from checks import Drift, ItemText
from checks.remedy import Remedy

LISTED = 3


def format_first_lines(lines: Sequence[str]) -> str:
    """The first few of many."""
    return ItemText.from_items(lines, shown=LISTED)


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


def expect_none(found: Iterable[str], expected: str, remedy: Remedy) -> None:
    """Say what there is that is not to be, or pass.

    Raises:
        Drift: there is some.
    """
    if told := [*dict.fromkeys(found)]:
        raise Drift(expected, ItemText.from_items(told, "; ", MOST), remedy)
