"""Checks: assert one aspect of a rig from outside, never by asking the role that made it so. The domain computes the
rig's target state for both.

`rigwright check INVENTORY` runs them on every host of an inventory; `pytest checks --inventory INVENTORY` does too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, TypeVar, get_args

from checks.remedy import DEPLOY as DEPLOY
from checks.remedy import Remedy, as_remedy, describe_steps

Severity = Literal["critical", "high", "low"]
F = TypeVar("F", bound=Callable[..., None])


SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""The gravest first."""


def check(identifier: str, title: str, *, severity: Severity, why: str, blind: str = "") -> Callable[[F], F]:
    """Mark a function as a check.

    Args:
        identifier: Short and stable: waivers and reports name it. A letter for the role and two digits.
        title: The statement that holds when it is green.
        severity: `critical` when nothing is served right, `high` when something is at risk, `low` otherwise.
        why: The consequence when it is red.
        blind: Its own limits, in addition to those of all that it reads.
    """
    import pytest  # a run that only looks at hosts marks nothing, and it is a tenth of a second

    return pytest.mark.check(identifier=identifier, title=title, severity=severity, why=why, blind=blind)


class ItemText(str):
    """A text that lists items, of which it may show the first few; `items` has all of them."""

    __slots__ = ("items",)
    items: tuple[str, ...]

    @classmethod
    def from_items(cls, items: Sequence[str], separator: str = ", ", shown: int | None = None) -> ItemText:
        """The first `shown` items, or all, and the number of the others."""
        more = f", and {len(items) - shown} more" if shown is not None and len(items) > shown else ""
        made = cls(separator.join(items[:shown]) + more)
        made.items = tuple(items)
        return made


class Drift(AssertionError):
    """A host does not match its rig. Its texts are single lines: names from the host cannot control a terminal."""

    items: tuple[tuple[str, str], ...]
    """(expected, found) of each thing that is not as it should be, also of those that the text only counts."""

    def __init__(self, expected: object, found: object, remedy: Remedy | str, since: str = "") -> None:
        """The expected and the observed state, the remedy, and since when it is so, where known.

        Of a user's own check the remedy may be a text, which counts as an instruction.
        """
        self.expected, self.found, self.since = (strip_control_characters(str(one)) for one in (expected, found, since))
        steps = as_remedy(remedy).steps
        self.remedy = Remedy(tuple(replace(one, text=strip_control_characters(one.text)) for one in steps))
        self.cure = describe_steps(self.remedy.steps, "the host")
        listed = found.items if isinstance(found, ItemText) else (self.found,)
        self.items = tuple((self.expected, strip_control_characters(one)) for one in listed)
        told = f" (since {self.since})" if since else ""
        super().__init__(f"expected {self.expected}, found {self.found}{told}; {self.cure}")

    @classmethod
    def combine(cls, drifts: Sequence[Drift]) -> Drift:
        """One for several, none of which hides another."""
        expected, found = (" and ".join(getattr(one, what) for one in drifts) for what in ("expected", "found"))
        made = cls(expected, found, Remedy(tuple(dict.fromkeys(step for one in drifts for step in one.remedy.steps))))
        made.args = (". And ".join(str(one) for one in drifts),)
        made.items = tuple(item for one in drifts for item in one.items)
        return made


def strip_control_characters(message: str) -> str:
    """A text for people, on one line and without what would steer a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in message)


def expect(found: object, expected: object, next_step: Remedy, *, holds: bool | None = None) -> None:
    """Compare, and say in one line what was expected, what was found and what to do.

    Args:
        found: The host's value.
        expected: The target value; compared with `==` unless `holds` is given.
        next_step: The remedy; of a user's own check a text may be given.
        holds: The verdict, where it is not equality.

    Raises:
        Drift: they differ.
    """
    __tracebackhide__ = True
    if not (found == expected if holds is None else holds):
        raise Drift(expected, found, next_step)
