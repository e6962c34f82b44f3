"""Judges the fields of a request by rules that are data: settings.json has them, and the catalogue their reasons.

A rule has a kind of `KINDS` and places. A place is a path of names from the outermost object: `a.b` is the member b of
a, `a[].b` the member b of each entry of a. An object where a list is expected counts as its only entry. `null` passes
every rule, as engines take it for a missing field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from .body import DECODER, Refused

KINDS = (
    "absent",
    "scalars",
    "entries",
    "prompts",
    "number",
    "size",
    "words",
    "schemes",
    "regex",
    "patterns",
    "references",
    "counts",
    "stamp",
)
"""What a rule demands of the value at its places:

absent: no value, or an empty one: false, an empty text or list. scalars: an object of the named members, each a number,
true, false or a text of at most `most` bytes. entries: at most `most` entries of a list, or members of an object.
prompts: at most `most` entries, where a list of numbers is one. number: `least` to `most`, or a text of such a number.
size: at most `most` bytes, of the value as it is written for an outermost member, else of a text. words: a text that is
none of `names`. schemes: a text that begins with one of `names`. regex: a text of at most `most` bytes that is a modest
regular expression. patterns: the same of each regular expression in a JSON Schema, and `PATTERNS` times as much of all.
references: no `$ref` of a JSON Schema leads to itself without a property or an entry in between. counts: each of
ENTRY_COUNTS in a JSON Schema is at most `most`, all together `PATTERNS` times as much, and each of LENGTHS at most
`LONGEST`. For these three, a text is the JSON of an object. stamp: a text that begins with one of `names` has no
`STAMP`, or behind its first one `most` ASCII characters and `STAMP_END`.
"""
ENTRY_COUNTS = frozenset(("minItems", "maxItems", "minContains", "maxContains", "minProperties", "maxProperties"))
"""Keywords of a JSON Schema that say how many entries or members a value has; an engine may have a symbol for each."""
LENGTHS = frozenset(("minLength", "maxLength"))
COUNTS = ENTRY_COUNTS | LENGTHS
LONGEST = 1_000_000
"""The most that LENGTHS may say. Of 10**9 no compiler was slow (xgrammar 0.2.1, llguidance 1.3.0)."""
MOST_SCHEMA = 512 << 10
"""Bytes of a JSON Schema that is a text."""
MOST_STEPS = 200_000
"""Members that are looked at for the references of one JSON Schema."""
MOST_SCHEME = 16
"""Characters of a text that are compared with schemes: it may be of 64 MiB."""
ENTRY = "[]"
STAMP = "cch="
STAMP_END = ";"
PATTERNS = 4
"""Times the limit of one regular expression that all of a JSON Schema may have together."""
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
class FieldRule:
    """One rule, as settings.json has it."""

    name: str
    """By which an operator allows what the rule refuses."""
    kind: str
    """One of `KINDS`."""
    places: tuple[tuple[str, ...], ...]
    names: frozenset[str]
    least: float
    most: float
    demand: str
    """What it demands and why, as the end of a sentence that begins with the field."""
    paths: frozenset[str] = frozenset()
    """Of the API, after /v1/, that it is for; none: all."""


@dataclass
class _Node:
    """The rules for a value, and for what is in it."""

    rules: list[tuple[FieldRule, str]] = field(default_factory=list)
    """Each with its place, for people."""
    members: dict[str, _Node] = field(default_factory=dict)
    entries: _Node | None = None


class Violation(Exception):
    """A field that a rule refuses."""

    def __init__(self, place: str, rule: FieldRule) -> None:
        super().__init__(f"{place} {rule.demand}")
        self.place = place


class RuleSet:
    """Rules that requests to a model are judged by."""

    def __init__(self, rules: Sequence[FieldRule]) -> None:
        self._root = _Node()
        for rule in rules:
            for place in rule.places:
                node = self._root
                for step in place:
                    if step == ENTRY:
                        node.entries = node.entries or _Node()
                        node = node.entries
                    else:
                        node = node.members.setdefault(step, _Node())
                node.rules.append((rule, ".".join(place).replace(f".{ENTRY}", ENTRY)))

    @property
    def names(self) -> Mapping[str, object]:
        """The outermost members that some rule is about."""
        return self._root.members

    def judge(self, members: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
        """Judge the outermost object of a body.

        Args:
            members: its members, numbers as floats.
            sizes: bytes of each of them as it is written.

        Raises:
            Violation: a field breaks a rule.
        """
        for name, node in self._root.members.items():
            if members.get(name) is not None:
                _judge(node, members[name], sizes[name])


def _judge(node: _Node, value: Any, written: int | None) -> None:
    """Judge a value, and what is in it as deep as there are rules."""
    for rule, place in node.rules:
        if not _DEMANDS[rule.kind](rule, value, written):
            raise Violation(place, rule)
    if node.entries is not None:
        for entry in value if isinstance(value, list) else (value,):
            # texts and numbers of a list have no members, and are most of a long one
            if node.entries.rules or isinstance(entry, (dict, list)):
                _judge(node.entries, entry, None)
    if node.members and isinstance(value, dict):
        for name, one in value.items():
            inner = node.members.get(name)
            if inner is not None and one is not None:
                _judge(inner, one, None)


def _is_empty(_: FieldRule, value: Any, __: int | None) -> bool:
    return value is False or value == "" or value == []


def _has_scalars(rule: FieldRule, value: Any, _: int | None) -> bool:
    scalar = isinstance(value, dict) and all(_is_scalar(one, rule.most) for one in value.values())
    return scalar and rule.names.issuperset(value)


def _has_few_entries(rule: FieldRule, value: Any, _: int | None) -> bool:
    return not isinstance(value, (list, dict)) or len(value) <= rule.most


def _has_few_prompts(rule: FieldRule, value: Any, _: int | None) -> bool:
    return not isinstance(value, list) or len(value) <= rule.most or all(isinstance(one, float) for one in value)


def _is_within(rule: FieldRule, value: Any, _: int | None) -> bool:
    return (number := _number(value)) is not None and rule.least <= number <= rule.most


def _is_small(rule: FieldRule, value: Any, written: int | None) -> bool:
    return (len(value) if written is None and isinstance(value, str) else written or 0) <= rule.most


def _is_no_word(rule: FieldRule, value: Any, _: int | None) -> bool:
    return not isinstance(value, str) or value not in rule.names


def _has_scheme(rule: FieldRule, value: Any, _: int | None) -> bool:
    return not isinstance(value, str) or value[:MOST_SCHEME].lower().startswith(tuple(rule.names))


def _has_regular_stamp(rule: FieldRule, value: Any, _: int | None) -> bool:
    if not isinstance(value, str) or not value.startswith(tuple(rule.names)):
        return True
    first = value.find(STAMP)
    if first < 0:
        return True
    end = first + len(STAMP) + int(rule.most)
    # the engine counts bytes, of which another character has several
    return value[first:end].isascii() and value.startswith(STAMP_END, end)


def _is_modest_text(rule: FieldRule, value: Any, _: int | None) -> bool:
    return not isinstance(value, str) or is_modest(value, rule.most)


def _has_modest_patterns(rule: FieldRule, value: Any, _: int | None) -> bool:
    if isinstance(value, str) and (value := _parsed(value)) is None:
        return False
    left, copies = PATTERNS * rule.most, PATTERNS * MOST_COPIES
    for one in _patterns(value):
        left -= len(one)
        # together, too: each character is a round in Python
        if left < 0 or (size := _copies(one, rule.most)) is None:
            return False
        copies -= size
    return copies >= 0


def _has_small_counts(rule: FieldRule, value: Any, _: int | None) -> bool:
    if isinstance(value, str) and (value := _parsed(value)) is None:
        return False
    left = PATTERNS * rule.most
    for name, count in _counts(value):
        if name in LENGTHS:
            if count > LONGEST:
                return False
        elif count > rule.most or (left := left - max(count, 0)) < 0:
            return False
    return True


def _has_finite_references(_: FieldRule, value: Any, __: int | None) -> bool:
    if isinstance(value, str) and (value := _parsed(value)) is None:
        return False
    return not _References(value).are_endless()


_DEMANDS: Mapping[str, Callable[[FieldRule, Any, int | None], bool]] = {
    "absent": _is_empty,
    "scalars": _has_scalars,
    "entries": _has_few_entries,
    "prompts": _has_few_prompts,
    "number": _is_within,
    "size": _is_small,
    "words": _is_no_word,
    "schemes": _has_scheme,
    "regex": _is_modest_text,
    "patterns": _has_modest_patterns,
    "references": _has_finite_references,
    "counts": _has_small_counts,
    "stamp": _has_regular_stamp,
}


def _is_scalar(value: Any, most: float) -> bool:
    return value is None or isinstance(value, (bool, float)) or (isinstance(value, str) and len(value) <= most)


def _number(value: Any) -> float | None:
    """A number, or the text of one, which pydantic takes for it; None where it is neither."""
    if isinstance(value, (bool, float)) or (isinstance(value, str) and len(value) <= 32):
        try:
            return float(value)
        except ValueError:
            return None
    return None


def _patterns(schema: Any) -> Iterator[str]:
    """The regular expressions of a JSON Schema, wherever they are in it."""
    for one in _objects(schema):
        if isinstance(pattern := one.get("pattern"), str):
            yield pattern
        if isinstance(patterns := one.get("patternProperties"), dict):
            yield from patterns


def _counts(schema: Any) -> Iterator[tuple[str, float]]:
    """The counts of a JSON Schema, wherever they are in it."""
    for one in _objects(schema):
        for name in COUNTS.intersection(one):
            if isinstance(count := one[name], float):
                yield name, count


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """The objects in a value, however deep."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
        if isinstance(one, (dict, list)):
            inner = one.values() if isinstance(one, dict) else one
            waiting.extend(each for each in inner if isinstance(each, (dict, list)))


def _parsed(text: str) -> dict[str, Any] | None:
    """The object that a text is the JSON of; None where it is not, or is too large."""
    if len(text) > MOST_SCHEMA:
        return None
    try:
        value = DECODER.decode(text)
    except (ValueError, RecursionError, Refused):
        return None
    return value if isinstance(value, dict) else None


class _References:
    """The references of a JSON Schema, which may be anywhere in a value."""

    def __init__(self, value: Any) -> None:
        self._parents: dict[int, Any] = {}
        """Objects and lists that hold another, by its id."""
        self._starts: list[dict[str, Any]] = []
        self._steps = MOST_STEPS
        waiting = [value]
        while waiting:
            one = waiting.pop()
            if isinstance(one, dict) and isinstance(one.get("$ref"), str):
                self._starts.append(one)
            for inner in one.values() if isinstance(one, dict) else one if isinstance(one, list) else ():
                if isinstance(inner, (dict, list)):
                    self._parents[id(inner)] = one
                    waiting.append(inner)

    def are_endless(self) -> bool:
        """Whether one leads to itself, or looking for that takes too long."""
        done: dict[int, bool] = {}
        for start in self._starts:
            path = [(start, iter([start]))]
            while path:
                _, following = path[-1]
                one = next(following, None)
                if self._steps < 0:
                    return True
                if one is None:
                    done[id(path.pop()[0])] = True
                elif id(one) not in done:
                    done[id(one)] = False
                    path.append((one, iter(self._following(one))))
                elif not done[id(one)]:
                    return True
        return False

    def _following(self, one: dict[str, Any]) -> list[dict[str, Any]]:
        """The schemas that hold for the same value as one does."""
        inner = [one.get(name) for name in ("not", "if", "then", "else")]
        for name in ("allOf", "anyOf", "oneOf"):
            if isinstance(several := one.get(name), list):
                inner += several
        self._steps -= len(inner)
        found = [schema for schema in inner if isinstance(schema, dict)]
        if isinstance(pointer := one.get("$ref"), str) and pointer.startswith("#/"):
            root: Any = one
            # which object is the schema's outermost one is the engine's to say
            while root is not None and self._steps >= 0:
                found += self._targets(root, pointer[2:].split("/"))
                root = self._parents.get(id(root))
        return found

    def _targets(self, root: Any, names: list[str]) -> list[dict[str, Any]]:
        targets = [root]
        for name in names:
            plain = unquote(name).replace("~1", "/").replace("~0", "~")
            targets = [inner for one in targets for inner in self._named(one, {name, plain})]
            if not targets or self._steps < 0:
                return []
        return [one for one in targets if isinstance(one, dict)]

    def _named(self, one: Any, names: set[str]) -> list[Any]:
        self._steps -= 1
        if isinstance(one, list):
            places = {int(name) for name in names if name.isascii() and name.isdigit() and len(name) < 7}
            return [one[at] for at in places if at < len(one)]
        if not isinstance(one, dict):
            return []
        found = [one[name] for name in names if name in one]
        # a character may be in one text as it is, in another one escaped
        if not all(name.isascii() for name in names):
            self._steps -= len(one)
            return [inner for name, inner in one.items() if not name.isascii()] if self._steps >= 0 else []
        return found


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
    return _copies(pattern, most) is not None


def _copies(pattern: str, most: float) -> int | None:
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
