"""How several things of one kind that are not to be are told in one line."""

from __future__ import annotations

from collections.abc import Iterable

from checks import Drift

MOST = 3
"""That are told; the others are counted."""


def expect_none(found: Iterable[str], expected: str, cure: str) -> None:
    """Say what there is that is not to be, or pass.

    Raises:
        Drift: there is some.
    """
    if told := [*dict.fromkeys(found)]:
        more = f", and {len(told) - MOST} more" if len(told) > MOST else ""
        raise Drift(expected, "; ".join(told[:MOST]) + more, cure)
