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

KINDS = ("absent", "scalars", "entries", "prompts", "number", "size", "words", "schemes", "regex", "patterns")
"""What a rule demands of the value at its places:

absent: no value, or an empty one: false, an empty text or list. scalars: an object of the named members, each a number,
true, false or a text of at most `most` bytes. entries: at most `most` entries of a list, or members of an object.
prompts: at most `most` entries, where a list of numbers is one. number: `least` to `most`, or a text of such a number.
size: at most `most` bytes, of the value as it is written for an outermost member, else of a text. words: a text that is
none of `names`. schemes: a text that begins with one of `names`. regex: a text of at most `most` bytes that is a modest
regular expression. patterns: the same of each regular expression in a JSON Schema, and `PATTERNS` times as much of all.
"""
ENTRY = "[]"
PATTERNS = 4
"""Times the limit of one regular expression that all of a JSON Schema may have together."""
MOST_TIMES = 1000
"""What a regular expression may say that something is repeated at most."""
MOST_OPTIONAL = 64
"""Places where it may say that something comes often or not at all: four tokens of a vocabulary of 300 take llama.cpp a
second with 128 of them in a row, and with 2,000 it gives no answer to any client (measured).
"""
_TIMES = re.compile(r"\{\s*(\d*)\s*(?:,\s*(\d*)\s*)?\}", re.ASCII)
# engines differ on a class that begins with its end: is it empty, or is that one of its characters?
_CLASS = re.compile(r"\[\^?(?:[^\\\]]|\\.)(?:[^\\\]]|\\.)*\]", re.DOTALL)
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
    return not isinstance(value, str) or value.lower().startswith(tuple(rule.names))


def _is_modest_text(rule: FieldRule, value: Any, _: int | None) -> bool:
    return not isinstance(value, str) or is_modest(value, rule.most)


def _has_modest_patterns(rule: FieldRule, value: Any, _: int | None) -> bool:
    left = PATTERNS * rule.most
    for one in _patterns(value):
        left -= len(one)
        # together, too: each character is a round in Python
        if left < 0 or not is_modest(one, rule.most):
            return False
    return True


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
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if isinstance(pattern := one.get("pattern"), str):
                yield pattern
            if isinstance(patterns := one.get("patternProperties"), dict):
                yield from patterns
            waiting.extend(inner for inner in one.values() if isinstance(inner, (dict, list)))
        elif isinstance(one, list):
            waiting.extend(inner for inner in one if isinstance(inner, (dict, list)))


def is_modest(pattern: str, most: float) -> bool:
    """Whether a regular expression is of at most so many bytes, says in few places that something may come often or not
    at all, and repeats nothing that repeats something itself: what engines compile those to grows by multiplication.
    """
    if len(pattern) > most or _FLAGS.search(pattern):
        return False
    groups = [False]  # of each open group, whether something in it is repeated
    repeated = False  # whether the element before this character is, or has something that is
    at = optional = 0
    while at < len(pattern):
        one = pattern[at]
        step, before, repeated = 1, repeated, False
        if one == "\\":
            step = 2
        elif one == "[":
            found = _CLASS.match(pattern, at)
            if found is None:
                return False
            step = found.end() - at
        elif one == "(":
            groups.append(False)
        elif one == ")" and len(groups) > 1:
            repeated = groups.pop()
            groups[-1] = groups[-1] or repeated
        elif one in "*+" or (one == "{" and (found := _TIMES.match(pattern, at))):
            if one == "{" and found:
                step = found.end() - at
                if any(len(digits) > 4 or int(digits) > MOST_TIMES for digits in filter(None, found.groups())):
                    return False
            if before:
                return False
            groups[-1] = repeated = True
            optional += 1
        elif one == "?":
            repeated = before
            optional += 1
        elif one == "|" and (pattern[at - 1 : at] in ("", "(", "|") or pattern[at + 1 : at + 2] in ("", ")", "|")):
            optional += 1
        at += step
    return optional <= MOST_OPTIONAL
