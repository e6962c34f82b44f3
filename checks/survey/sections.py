"""All sections of the survey: those that its modules have."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from typing import Any

import typing_extensions
from pydantic import ConfigDict, TypeAdapter, with_config

from checks import survey
from checks.survey.section import Phase, Section


@cache
def list_sections(*phases: Phase) -> tuple[Section[Any], ...]:
    """The sections of these phases, of each phase in the order in which they start.

    Args:
        *phases: Without any, those of the survey: of what a probe has found, then those that are asked at once.
    """
    modules = (import_module(f"{survey.__name__}.{one.name}") for one in pkgutil.iter_modules(survey.__path__))
    found = {one.name: one for module in modules for one in vars(module).values() if isinstance(one, Section)}
    in_order = sorted(found.values(), key=lambda one: (one.start_order, one.name))
    return tuple(one for phase in phases or ("probed", "early") for one in in_order if one.phase == phase)


@cache
def survey_validator() -> TypeAdapter[dict[str, dict[str, Any]]]:
    """The validator of all answers of a survey in one pass, a third of the time for each section by itself."""
    make: Any = typing_extensions.TypedDict

    def answer_shape(section: Section[Any]) -> Any:
        return make(f"Answer_{section.name}", {"told": section.shape, "took": Any, "failed": Any}, total=False)

    whole = make("Answers", {one.name: answer_shape(one) for one in list_sections()}, total=False)
    # nested dataclasses without a configuration of their own have this one, too
    return TypeAdapter(with_config(ConfigDict(extra="forbid", allow_inf_nan=False))(whole))
