"""JSON Schemas in requests: their regular expressions, counts and references."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from .body import DECODER, InvalidBody

ENTRY_COUNTS = frozenset(("minItems", "maxItems", "minContains", "maxContains", "minProperties", "maxProperties"))
"""Keywords of a JSON Schema that say how many entries or members a value has; an engine may have a symbol for each."""
LENGTHS = frozenset(("minLength", "maxLength"))
COUNTS = ENTRY_COUNTS | LENGTHS
MOST_SCHEMA = 512 << 10
"""Bytes of a JSON Schema that is a text."""
MOST_STEPS = 200_000
"""Members that are looked at for the references of one JSON Schema."""


def list_patterns(schema: Any) -> Iterator[str]:
    """The regular expressions of a JSON Schema, wherever they are in it."""
    for one in _list_objects(schema):
        if isinstance(pattern := one.get("pattern"), str):
            yield pattern
        if isinstance(patterns := one.get("patternProperties"), dict):
            yield from patterns


def list_counts(schema: Any) -> Iterator[tuple[str, float]]:
    """The counts of a JSON Schema, wherever they are in it."""
    for one in _list_objects(schema):
        for name in COUNTS.intersection(one):
            if isinstance(count := one[name], float):
                yield name, count


def _list_objects(value: Any) -> Iterator[dict[str, Any]]:
    """The objects in a value, however deep."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
        if isinstance(one, (dict, list)):
            inner = one.values() if isinstance(one, dict) else one
            waiting.extend(each for each in inner if isinstance(each, (dict, list)))


def parse_schema(text: str) -> dict[str, Any] | None:
    """The object that a text is the JSON of; None where it is not, or is too large."""
    if len(text) > MOST_SCHEMA:
        return None
    try:
        value = DECODER.decode(text)
    except (ValueError, RecursionError, InvalidBody):
        return None
    return value if isinstance(value, dict) else None


class SchemaReferences:
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
