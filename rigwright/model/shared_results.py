"""Results that boxes of a fleet have in common: rigs with equal declarations have the same objects as their parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import wraps
from operator import attrgetter
from typing import ParamSpec, TypeVar

from rigwright.model.rig import Rig

P = ParamSpec("P")
T = TypeVar("T")
KEPT = 64
"""Results of each function that are kept."""
PLAIN = (str, int, type(None))  # bool is an int
"""Arguments of these types are equal by their values, others by being the same object."""
NAMELESS = "-"
"""The name of a rig in a shared result, which depends on none."""
_parts = attrgetter(*(one.name for one in fields(Rig) if one.name != "name"))


def share_results(function: Callable[P, T]) -> Callable[P, T]:
    """Call a function once for the same arguments, which include rigs that differ in their names only.

    All callers share the result, and do not change it. The function gets rigs named NAMELESS, so no name is in it.
    """
    results: dict[object, tuple[object, T]] = {}

    @wraps(function)
    def shared(*args: P.args, **named: P.kwargs) -> T:
        key = (*map(_identify_argument, args), *((name, _identify_argument(value)) for name, value in named.items()))
        if key not in results:
            nameless = {name: _without_name(one) for name, one in named.items()}
            made = function(*map(_without_name, args), **nameless)  # type: ignore[arg-type]
            if len(results) >= KEPT:
                results.pop(next(iter(results)), None)
            # keeps the arguments alive, so that no other object gets their ids
            results[key] = (args, named), made
        return results[key][1]

    return shared


def _without_name(value: object) -> object:
    return replace(value, name=NAMELESS) if isinstance(value, Rig) else value


def _identify_argument(value: object) -> object:
    if isinstance(value, Rig):
        return (Rig, *map(id, _parts(value)))
    return (type(value), value) if isinstance(value, PLAIN) else id(value)
