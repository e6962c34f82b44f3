"""Judges the fields of a request by rules that are data: settings.json has them, and the catalogue their reasons.

A rule has a kind of `KINDS` and places. A place is a path of names from the outermost object: `a.b` is the member b of
a, `a[].b` the member b of each entry of a. An object where a list is expected counts as its only entry. `null` passes
every rule, as engines take it for a missing field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .json_schema import LENGTHS, SchemaReferences, list_counts, list_patterns, parse_schema
from .regular_expressions import MOST_COPIES, count_copies, is_modest

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
LONGEST = 1_000_000
"""The most that LENGTHS may say. Of 10**9 no compiler was slow (xgrammar 0.2.1, llguidance 1.3.0)."""
MOST_SCHEME = 16
"""Characters of a text that are compared with schemes: it may be of 64 MiB."""
ENTRY = "[]"
STAMP = "cch="
STAMP_END = ";"
PATTERNS = 4
"""Times the limit of one regular expression that all of a JSON Schema may have together."""


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
    if isinstance(value, str) and (value := parse_schema(value)) is None:
        return False
    left, copies = PATTERNS * rule.most, PATTERNS * MOST_COPIES
    for one in list_patterns(value):
        left -= len(one)
        # together, too: each character is a round in Python
        if left < 0 or (size := count_copies(one, rule.most)) is None:
            return False
        copies -= size
    return copies >= 0


def _has_small_counts(rule: FieldRule, value: Any, _: int | None) -> bool:
    if isinstance(value, str) and (value := parse_schema(value)) is None:
        return False
    left = PATTERNS * rule.most
    for name, count in list_counts(value):
        if name in LENGTHS:
            if count > LONGEST:
                return False
        elif count > rule.most or (left := left - max(count, 0)) < 0:
            return False
    return True


def _has_finite_references(_: FieldRule, value: Any, __: int | None) -> bool:
    if isinstance(value, str) and (value := parse_schema(value)) is None:
        return False
    return not SchemaReferences(value).are_endless()


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
