"""Validation in passes: a rule between keys is applied to the valid ones although others are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

PASSES = 5
"""A pass removes what the one before refused; rules between keys stand in nested tables, 4 deep."""


def find_all_errors(model: type[BaseModel], data: object) -> list[ErrorDetails]:
    """Errors of all rules of a model. Pydantic itself applies a rule between keys only if each key is valid."""
    found: list[ErrorDetails] = []
    removed: set[tuple[int | str, ...]] = set()
    for _ in range(PASSES):
        try:
            model.model_validate(data)
            break
        except ValidationError as error:
            details = error.errors(include_url=False)
        places = [_path_in_data(detail["loc"]) for detail in details]
        new = [
            (place, detail)
            for place, detail in zip(places, details, strict=True)
            if not any(place[: len(one)] == one for one in removed)
        ]
        found += [detail for _, detail in new]
        for place in places:
            # a required key that is removed is missing: what it stands in goes, too
            gone = place[:-1] if place in removed else place
            data = _without(data, gone)
            removed.add(gone)
        if () in removed:
            break
    return found


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
