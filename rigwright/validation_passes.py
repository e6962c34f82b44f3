"""Validation in passes: a rule between keys is applied to the valid ones although others are not."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

PASSES = 5
"""A pass removes what the one before refused; rules between keys stand in nested tables, 4 deep."""


def find_all_errors(model: type[BaseModel], data: object) -> list[ErrorDetails]:
    """Errors of all rules of a model. Pydantic itself applies a rule between keys only if each key is valid.

    The first pass finds what Pydantic does. Each further one validates the data without the keys refused before, and
    finds errors of tables; a key that is refused only now may be valid with those.
    """
    found: list[ErrorDetails] = []
    removed: set[tuple[int | str, ...]] = set()
    for number in range(PASSES):
        try:
            model.model_validate(data)
            break
        except ValidationError as error:
            details = error.errors(include_url=False)
        for detail in details:
            place = _path_in_data(detail["loc"])
            is_missing = detail["type"] == "missing"
            if number == 0:
                found.append(detail)
            elif (
                not is_missing
                and isinstance(detail["input"], dict)
                and not any(place[: len(one)] == one for one in removed)
            ):
                found += _without_consequences(detail, {str(one[-1]) for one in removed if one[:-1] == place})
            # the table of a required key goes with it
            gone = place[:-1] if is_missing and number else place
            data = _without(data, gone)
            removed.add(gone)
        if () in removed:
            break
    return found


def _without_consequences(detail: ErrorDetails, removed: Collection[str]) -> list[ErrorDetails]:
    """An error of rules between keys, without the rules that name a removed key: its value is unknown."""
    rules = detail["msg"].split("; and ")
    kept = [rule for rule in rules if not any(re.search(rf"\b{re.escape(key)}\b", rule) for key in removed)]
    if len(kept) == len(rules):
        return [detail]
    return [{**detail, "msg": "; and ".join(kept)}] if kept else []


def _path_in_data(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """The keys down to a value that can be removed: a list loses all items, since the others would move."""
    keys = [part for part in loc if not str(part).startswith("[")]
    at = next((index for index, part in enumerate(keys) if isinstance(part, int)), len(keys))
    return tuple(keys[:at])


def _without(data: Any, keys: Sequence[int | str]) -> Any:
    """A copy of nested tables without one key."""
    if not keys or not isinstance(data, dict):
        return data
    head, *rest = keys
    if head not in data:
        return data
    if rest:
        return data | {head: _without(data[head], rest)}
    return {key: value for key, value in data.items() if key != head}
