"""Suggestions for unknown names: the nearest valid one, and the valid ones."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from rigwright.safe_text import HIDDEN, has_secret_form


def suggestion(value: str, names: Iterable[str]) -> str:
    """`; did you mean "x"?` for the nearest valid name, and the valid names where there are few, or none is near."""
    allowed = sorted(names)
    spelt = {name.casefold(): name for name in allowed}
    near = [one for one in difflib.get_close_matches(value, allowed, cutoff=0.5) if _is_near(value, one)]
    if not near:
        folded = difflib.get_close_matches(value.casefold(), spelt, cutoff=0.5)
        near = [spelt[name] for name in folded if _is_near(value.casefold(), name)]
    inside = [name for name in allowed if value.casefold() in name.casefold().split("/")]
    if inside and value not in inside:
        near = inside if len(inside) == 1 else []
    if inside and not near:
        more = ", ..." if len(inside) > MOST_NAMES else ""
        return f"; did you mean one of {', '.join(inside[:MOST_NAMES])}{more}?"
    parts = [f'did you mean "{near[0]}"?'] if near else []
    if len(allowed) <= (24 if near else 40):
        parts.append("allowed: " + (", ".join(allowed) or "none"))
    return "; " + "; ".join(parts) if parts else ""


def _is_near(value: str, name: str) -> bool:
    """Whether the last parts of two close names are close: a common first part of `engine/name` is not enough."""
    first, _, last = value.rpartition("/")
    other_first, _, other_last = name.rpartition("/")
    return first != other_first or not first or bool(difflib.get_close_matches(last, [other_last], cutoff=0.5))


MOST_NAMES = 8
"""Names with a common part that a message lists."""
LONGEST_NAME = 200
"""Characters that are compared with valid names, which takes the product of both lengths."""


def describe_unknown(kind: str, value: str, names: Iterable[str], spelling: str = "") -> str:
    """The text of an unknown name.

    Args:
        kind: The noun for such names.
        value: The name.
        names: The valid names.
        spelling: The text that is compared with them instead of the name.
    """
    shown = HIDDEN if has_secret_form(value) else shorten_text(value)
    return f'there is no {kind} "{shown}"{suggestion((spelling or value)[:LONGEST_NAME], names)}'


def shorten_text(text: str) -> str:
    """A text of at most 80 characters, cut with an ellipsis."""
    return text if len(text) <= 80 else text[:77] + "..."
