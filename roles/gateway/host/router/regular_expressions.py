"""The size of a regular expression with its repetitions multiplied out: engines compile it to that."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MOST_TIMES = 2000
"""The largest count that a regular expression may have in braces: what llama.cpp's grammars accept."""
MOST_COPIES = 10_000
"""Characters and classes that it may have with all counts multiplied out."""
MOST_OPTIONAL = 64
"""Places where it may say that something comes often or not at all, with the counts around them multiplied out: four
tokens of a vocabulary of 300 take llama.cpp a second with 128 of them in a row, and with 2,000 it gives no answer to
any client (measured).
"""
# linear: no character is behind two opening braces
_BRACES = re.compile(r"\{([^{}]*)\}")
_SPACE = " \t\n\r\f\v"
# engines differ on a class that begins with its end: is it empty, or is that one of its characters?
_CLASS = re.compile(r"\[(?!\^?\])(?:[^\\\]]|\\.)+\]", re.DOTALL)
_OPENING = re.compile(r"\((?:\?(?:P?<\w+>|(?P<around><?[=!])|:|[ims]+(?:(?P<flags>\))|:)))?")
# by flags an expression may change its own syntax: with x, white space may part a group and its repetition
_FLAGS = re.compile(r"\(\?(?![:=!<]|P<|[ims]+[:)])")


@dataclass(frozen=True)
class _Size:
    """What a part of a regular expression is compiled to."""

    copies: int
    """Characters and classes."""
    optional: int
    """Places with a choice."""
    nullable: bool
    """Whether it matches an empty text."""


_POSITIONS = frozenset("bBAZzGkK123456789")
"""What stands behind a backslash for a position, or for what a group has matched."""
_CHARACTER = _Size(1, 0, nullable=False)
_POSITION = _Size(1, 0, nullable=True)


@dataclass
class _Group:
    """An open group."""

    around: bool = False
    """Whether it looks ahead or behind, and takes no character."""
    branches: list[_Size] = field(default_factory=list)
    """Before the last `|`."""
    sequence: list[_Size] = field(default_factory=list)
    """Behind it."""

    def end_branch(self) -> None:
        optional = sum(one.optional for one in self.sequence) if self.sequence else 1
        nullable = all(one.nullable for one in self.sequence)
        self.branches.append(_Size(sum(one.copies for one in self.sequence), optional, nullable))
        self.sequence = []

    def size(self) -> _Size:
        self.end_branch()
        nullable = self.around or any(one.nullable for one in self.branches)
        copies = sum(one.copies for one in self.branches)
        return _Size(copies, sum(one.optional for one in self.branches), nullable)


def is_modest(pattern: str, most: float) -> bool:
    """Whether a regular expression is of at most so many bytes, and small with its repetitions multiplied out."""
    return count_copies(pattern, most) is not None


def count_copies(pattern: str, most: float) -> int | None:
    """Characters and classes of a modest regular expression, multiplied out; None where it is not modest."""
    if len(pattern) > most or _FLAGS.search(pattern):
        return None
    groups = [_Group()]
    at = 0
    repeatable = lazy = False  # whether a repetition, or the mark of a lazy one, may come next
    while at < len(pattern):
        one, sequence = pattern[at], groups[-1].sequence
        if (times := _times(pattern, at)) is not None:
            least, highest, step = times
            if repeatable:
                size = _repeat(sequence[-1], least, highest)
                if size is None:
                    return None
                sequence[-1] = size
            elif one != "?" or not lazy:
                return None
            repeatable, lazy = False, repeatable
            at += step
            continue
        step, repeatable, lazy = 1, True, False
        if one == "\\":
            step = 2
            sequence.append(_POSITION if pattern[at + 1 : at + 2] in _POSITIONS else _CHARACTER)
        elif one == "[":
            if (found := _CLASS.match(pattern, at)) is None:
                return None
            step = found.end() - at
            sequence.append(_CHARACTER)
        elif one == "(":
            if (found := _OPENING.match(pattern, at)) is None:
                return None
            step, repeatable = found.end() - at, False
            if not found["flags"]:
                groups.append(_Group(around=bool(found["around"])))
        elif one == ")":
            size = groups.pop().size()
            if not groups:
                return None
            groups[-1].sequence.append(size)
        elif one == "|":
            groups[-1].end_branch()
            repeatable = False
        else:
            sequence.append(_POSITION if one in "^$" else _CHARACTER)
        at += step
    whole = groups.pop().size()
    return whole.copies if not groups and whole.copies <= MOST_COPIES and whole.optional <= MOST_OPTIONAL else None


def _times(pattern: str, at: int) -> tuple[int, int | None, int] | None:
    """How often something comes at least and at most, and the length of what says so; None where nothing does."""
    if (one := pattern[at]) in "*+?":
        return int(one == "+"), 1 if one == "?" else None, 1
    found = _BRACES.match(pattern, at) if one == "{" else None
    if found is None:
        return None
    numbers = [number.strip(_SPACE) for number in found[1].split(",", 2)]
    if len(numbers) > 2 or not all(number == "" or (number.isascii() and number.isdigit()) for number in numbers):
        return None
    # a long number is above all limits
    least, highest = (int(one if len(one) < 10 else "9" * 9) if one else None for one in (numbers[0], numbers[-1]))
    return least or 0, highest, len(found[0])


def _repeat(size: _Size, least: int, highest: int | None) -> _Size | None:
    """The size of a repetition; None where it is too large for an engine."""
    if max(least, highest or 0) > MOST_TIMES:
        return None
    if highest is None:
        # llama.cpp expands without an end what may be empty and comes without an end
        if size.nullable:
            return None
        # what comes without an end in itself doubles the ways to read a text
        copies = least + 1 if least > 1 else 1
        made = _Size(copies * size.copies, 2 * copies * size.optional + 1, nullable=least == 0)
    else:
        copies = max(least, highest)
        nullable = size.nullable or min(least, highest) == 0
        made = _Size(max(copies, 1) * size.copies, copies * size.optional + (least != highest), nullable)
    return made if made.copies <= MOST_COPIES and made.optional <= MOST_OPTIONAL else None
