"""Keys that were called otherwise in the version before."""

from __future__ import annotations

from functools import cache
from typing import Any, get_args

from pydantic import BaseModel

from rigwright.problems import FrozenModel


def rename_deprecated_keys(model: type[BaseModel], data: object, key: str = "") -> tuple[Any, list[str]]:
    """Data with the keys that a model has today, and what to tell whoever wrote those of the version before.

    A key that is there under both names is left as it is, and refused by the model.

    Args:
        model: What the data is to be.
        data: As it was read.
        key: What it stands under, for messages; empty, or with a dot at its end.
    """
    if not isinstance(data, dict) or not issubclass(model, FrozenModel) or not _has_deprecated_keys(model):
        return data, []
    said = []
    made = {}
    for name, value in data.items():
        today = model.RENAMED.get(name) if isinstance(name, str) else None
        if today and today not in data:
            said.append(f"{key}{name} is now called {key}{today}; the next version refuses the old name")
        else:
            today = name
        for one in _nested_models(model).get(today, ()) if isinstance(value, dict) and isinstance(today, str) else ():
            value, more = rename_deprecated_keys(one, value, f"{key}{today}.")
            said += more
        made[today] = value
    return made, said


@cache
def _nested_models(model: type[FrozenModel]) -> dict[str, tuple[type[FrozenModel], ...]]:
    """Key -> the models of tables that it may have."""
    found = {name: (field.annotation, *get_args(field.annotation)) for name, field in model.model_fields.items()}
    return {
        name: tuple(one for one in kinds if isinstance(one, type) and issubclass(one, FrozenModel))
        for name, kinds in found.items()
    }


@cache
def _has_deprecated_keys(model: type[FrozenModel]) -> bool:
    """Whether it or a table in it has a key that was called otherwise in the version before."""
    every = [model]
    for one in every:
        every += [inner for kinds in _nested_models(one).values() for inner in kinds if inner not in every]
    return any(one.RENAMED for one in every)
