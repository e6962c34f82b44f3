"""Checks: assert one aspect of a rig from outside, never by asking the role that made it so. The domain computes the
rig's target state for both.

`rigwright check INVENTORY` runs them on every host of an inventory; `pytest checks --inventory INVENTORY` does too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Literal, TypeVar, get_args

from checks.remedy import DEPLOY as DEPLOY
from checks.remedy import Remedy, as_remedy, describe_steps
from rigwright.safe_text import printable

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
    """A text that shows its items in part, such as the first few; `items` has all of them, with their whole values."""

    __slots__ = ("has_values", "items", "pieces")
    items: tuple[str, ...]
    pieces: tuple[str, ...]
    """Each item as people read it."""
    has_values: bool
    """Whether the host's survey has the values that it is about; without them no waiver covers it."""

    def __new__(cls, shown: str, *items: str) -> ItemText:
        """A text for people, and the whole value of each thing that it is about."""
        made = super().__new__(cls, shown)
        made.items, made.has_values = items, True
        made.pieces = (shown,) if len(items) == 1 else items
        return made

    @classmethod
    def from_items(
        cls, items: Sequence[str], separator: str = ", ", shown: int | None = None, *, counts: bool = True
    ) -> ItemText:
        """The first `shown` items, or all, and the number of the others unless another text `counts` them."""
        more = f", and {len(items) - shown} more" if counts and shown is not None and len(items) > shown else ""
        made = cls(separator.join(items[:shown]) + more, *(one for item in items for one in list_items(item)))
        made.pieces = tuple(one for item in items for one in list_pieces(item))
        made.has_values = all(map(has_values, items))
        return made

    @classmethod
    def without_value(cls, shown: str) -> ItemText:
        """A text about a value that the survey does not have, such as the bytes of a deleted file."""
        made = cls(shown, shown)
        made.has_values = False
        return made

    @classmethod
    def shorten(cls, text: str, length: int, begin: str = "") -> ItemText:
        """The first characters of a text after `begin`; its item has a digest of the whole text if that is longer."""
        shown = f"{begin}{text[:length]}"
        return cls(shown, shown if len(text) <= length else f"{shown}... (SHA-256 {digest_text(text)})")


def digest_text(text: str) -> str:
    """The SHA-256 of a text, which a host may have written with bytes that are no text."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


_ESCAPE_CODE = re.compile(r"\\(?:[\\nrt]|x(?:[01][0-9a-f]|7f|[89][0-9a-f]|a0|ad)|u[0-9a-f]{4}|U[0-9a-f]{8})")
"""A text that looks like a code of `printable`; the `\\x2d` of a unit's name does not."""


def spell_unambiguously(text: str) -> str:
    """A text as `printable` has it, in which backslashes are doubled if it has codes, or looks so: no two texts give
    the same.
    """
    if text.isprintable() and not _ESCAPE_CODE.search(text):
        return text
    return printable(text.replace("\\", "\\\\"))


def list_items(text: object) -> tuple[str, ...]:
    """The whole values of a text."""
    return text.items if isinstance(text, ItemText) else (str(text),)


def list_pieces(text: object) -> tuple[str, ...]:
    """The things that a text is about, as people read them."""
    return text.pieces if isinstance(text, ItemText) else (str(text),)


def has_values(text: object) -> bool:
    """Whether a text has the values that it is about."""
    return not isinstance(text, ItemText) or text.has_values


MOST_WAIVED = 20
"""Items of a drift that no waiver covers: a host's survey may have left out further ones."""


def _pair(wanted: tuple[str, ...], listed: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """(expected, found) of each thing; of another number of expected ones, all of those together."""
    same = len(wanted) == len(listed)
    return tuple(zip(wanted if same else [", ".join(wanted)] * len(listed), listed, strict=True))


class Drift(AssertionError):
    """A host does not match its rig. Its texts are single lines: names from the host cannot control a terminal."""

    items: tuple[tuple[str, str], ...]
    """(expected, found) of each thing that is not as it should be, whole, also of those that the text only counts."""
    shown_items: tuple[tuple[str, str], ...]
    """The same as people read it, which causes and repairs match."""
    is_waivable: bool
    """Whether `items` has all of it, so that waivers may cover it."""
    restarts: frozenset[str]
    """Services whose restart ends it. A deploy takes them from here, for texts repeat words of any process."""

    def __init__(
        self,
        expected: object,
        found: object,
        remedy: Remedy | str,
        since: str = "",
        *,
        is_waivable: bool = True,
        restarts: Iterable[str] = (),
    ) -> None:
        """The expected and the observed state, the remedy, since when it is so, where known, and what to restart.

        Of a user's own check the remedy may be a text, which counts as an instruction.
        """
        self.expected, self.found, self.since = (strip_control_characters(str(one)) for one in (expected, found, since))
        steps = as_remedy(remedy).steps
        self.remedy = Remedy(tuple(replace(one, text=strip_control_characters(one.text)) for one in steps))
        self.cure = describe_steps(self.remedy.steps, "the host")
        self.items = _pair(*(tuple(map(spell_unambiguously, list_items(one))) for one in (expected, found)))
        self.shown_items = _pair(*(tuple(map(strip_control_characters, list_pieces(one))) for one in (expected, found)))
        self.is_waivable = is_waivable and has_values(found)
        self.restarts = frozenset(restarts)
        told = f" (since {self.since})" if since else ""
        super().__init__(f"expected {self.expected}, found {self.found}{told}; {self.cure}")

    @property
    def waivable_items(self) -> tuple[tuple[str, str], ...]:
        """The items that waivers may name; empty for a drift that none covers."""
        return self.items if self.is_waivable and len(self.items) < MOST_WAIVED else ()

    @classmethod
    def combine(cls, drifts: Sequence[Drift]) -> Drift:
        """One for several, none of which hides another."""
        if len(drifts) == 1:
            return drifts[0]
        expected, found = (" and ".join(getattr(one, what) for one in drifts) for what in ("expected", "found"))
        made = cls(expected, found, Remedy(tuple(dict.fromkeys(step for one in drifts for step in one.remedy.steps))))
        made.args = (". And ".join(str(one) for one in drifts),)
        made.items = tuple(item for one in drifts for item in one.items)
        made.shown_items = tuple(item for one in drifts for item in one.shown_items)
        made.is_waivable = all(one.waivable_items for one in drifts)
        made.restarts = frozenset(unit for one in drifts for unit in one.restarts)
        return made


Items = Sequence[tuple[str, str]]
_RUN: ContextVar[tuple[Callable[[Items], bool], list[Drift]] | None] = ContextVar("run", default=None)
"""Of the check that runs: the predicate of items that waivers cover, and its waived drifts."""


@contextmanager
def continue_past_waived(is_waived: Callable[[Items], bool]) -> Iterator[None]:
    """Run a check past drifts that waivers cover as a whole, so that they hide no other; all are raised at its end.

    Raises:
        Drift: all drifts of the check.
    """
    waived: list[Drift] = []
    token = _RUN.set((is_waived, waived))
    try:
        yield
    except Drift as drift:
        raise Drift.combine([*waived, drift]) from None
    except BaseException as error:
        # a check that is left out after a drift has failed
        if waived and type(error).__name__ == "Skipped":
            raise Drift.combine(waived) from None
        raise
    finally:
        _RUN.reset(token)
    if waived:
        raise Drift.combine(waived)


def report_drift(drift: Drift) -> None:
    """End a check with a drift, or note a waived one and go on.

    Raises:
        Drift: waivers do not cover it.
    """
    __tracebackhide__ = True
    run = _RUN.get()
    if run is None or not (drift.waivable_items and run[0](drift.waivable_items)):
        raise drift
    run[1].append(drift)


def strip_control_characters(message: str) -> str:
    """A text for people, on one line and without what would steer a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in message)


def expect(
    found: object, expected: object, next_step: Remedy, *, holds: bool | None = None, is_waivable: bool = True
) -> None:
    """Compare, and say in one line what was expected, what was found and what to do.

    Args:
        found: The host's value.
        expected: The target value; compared with `==` unless `holds` is given.
        next_step: The remedy; of a user's own check a text may be given.
        holds: The verdict, where it is not equality.
        is_waivable: Whether waivers may cover a difference.

    Raises:
        Drift: they differ, and waivers do not cover that.
    """
    __tracebackhide__ = True
    if not (found == expected if holds is None else holds):
        report_drift(Drift(expected, found, next_step, is_waivable=is_waivable))
