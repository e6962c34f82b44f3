"""Mistakes in what the operator wrote: collected, all of them, and said in one text."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, ValidationError


class Frozen(BaseModel):
    """Base of everything read from a file: immutable, and a key it does not know is a mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=False)


@dataclass(frozen=True, order=True)
class Problem:
    """One mistake: where it stands and what is wrong with it."""

    file: str
    key: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}: {self.key}: {self.text}"


class Invalid(Exception):
    """Input that is refused, with every mistake found in it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(set(problems))
        super().__init__("\n".join(str(problem) for problem in self.problems))


def suggestion(value: str, names: Iterable[str]) -> str:
    """`; did you mean "x"?` for the nearest valid name, and the valid names where there are few."""
    allowed = sorted(names)
    near = difflib.get_close_matches(value, allowed, n=1, cutoff=0.5)
    parts = [f'did you mean "{near[0]}"?'] if near else []
    if len(allowed) <= 24:
        parts.append("allowed: " + (", ".join(allowed) or "none"))
    return "; " + "; ".join(parts) if parts else ""


def unknown(kind: str, value: str, names: Iterable[str]) -> str:
    """The text of a name that nothing goes by."""
    return f'no {kind} is called "{value}"{suggestion(value, names)}'


def of_validation(error: ValidationError, model: type[BaseModel], file: str, prefix: str) -> list[Problem]:
    """Translate pydantic's errors into problems, with the nearest valid name for unknown keys."""
    found = []
    for detail in error.errors(include_url=False):
        where = [str(part) for part in detail["loc"]]
        key = ".".join(part for part in (prefix, *where) if part)
        if detail["type"] == "extra_forbidden":
            found.append(Problem(file, key, "unknown key" + suggestion(where[-1], _fields(model, detail["loc"][:-1]))))
        elif detail["type"] == "missing":
            found.append(Problem(file, key, "missing"))
        else:
            message = detail["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
            found.append(Problem(file, key, f"{_shown(detail['input'])} is refused: must be {message}"))
    return found


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _fields(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """The keys that are valid at a place inside a model."""
    current: object = model
    for part in loc:
        if isinstance(current, type) and issubclass(current, BaseModel) and part in current.model_fields:
            current = current.model_fields[str(part)].annotation
        else:
            arguments = getattr(current, "__args__", ())
            current = next((a for a in reversed(arguments) if a not in (Ellipsis, type(None))), None)
    arguments = getattr(current, "__args__", ())
    for candidate in (current, *arguments):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return sorted(candidate.model_fields)
    return []
