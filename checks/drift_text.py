"""Words for people about what was found."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

LISTED = 3


def format_first_lines(lines: Sequence[str]) -> str:
    """The first few of many."""
    more = f", and {len(lines) - LISTED} more" if len(lines) > LISTED else ""
    return ", ".join(lines[:LISTED]) + more


def format_day(moment: float | None) -> str:
    """When something was, of seconds since the epoch."""
    if moment is None:
        return "never"
    try:
        return datetime.fromtimestamp(moment, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return "an invalid date"
