"""Answers of the survey's sections for tests: the least that a shape allows, with what a test changes."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints


def empty_answer(shape: Any) -> Any:
    """The least JSON value of a type: no rows, no text, zero."""
    origin, arguments = get_origin(shape), get_args(shape)
    if origin is Annotated:
        return empty_answer(arguments[0])
    if origin is Literal:
        return arguments[0]
    if origin in (Union, types.UnionType):
        return None if type(None) in arguments else empty_answer(arguments[0])
    if is_dataclass(shape):
        hints = get_type_hints(shape, include_extras=True)
        needed = [one for one in fields(shape) if one.default is MISSING and one.default_factory is MISSING]
        return {one.name: empty_answer(hints[one.name]) for one in needed}
    kind = origin or shape
    if issubclass(kind, Mapping):
        return {}
    return kind() if kind in (str, int, float, bool) else [] if issubclass(kind, Iterable) else None


def filled_answer(shape: Any, number: str) -> Any:
    """A JSON value of a type with one element in each collection, each optional value, and a text for each float."""
    origin, arguments = get_origin(shape), get_args(shape)
    if origin is Annotated:
        return filled_answer(arguments[0], number)
    if origin in (Union, types.UnionType):
        return filled_answer(next(one for one in arguments if one is not type(None)), number)
    if is_dataclass(shape):
        hints = get_type_hints(shape, include_extras=True)
        return {one.name: filled_answer(hints[one.name], number) for one in fields(shape)}
    kind = origin or shape
    if kind is float:
        return number
    if origin is tuple and arguments[-1:] != (...,):
        return [filled_answer(one, number) for one in arguments]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {filled_answer(arguments[0], number): filled_answer(arguments[1], number)}
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return [filled_answer(arguments[0], number)]
    return empty_answer(shape)
