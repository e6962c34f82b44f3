"""Words of others, as they may be shown. It stands on nothing: what only helps or complains loads nothing more."""

from __future__ import annotations


def printable(line: str) -> str:
    """A line whose newlines and escape codes are spelt: they would break it, or write on the terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)
