"""Mistakes in the operator's files: all of them, collected in one text."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, time
from types import UnionType
from typing import Annotated, ClassVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from rigwright.name_suggestions import MOST_NAMES as MOST_NAMES
from rigwright.name_suggestions import describe_unknown as describe_unknown
from rigwright.name_suggestions import shorten_text
from rigwright.name_suggestions import suggestion as suggestion
from rigwright.safe_text import has_secret_form, hide_tokens
from rigwright.safe_text import printable as printable


class FrozenModel(BaseModel):
    """Base of everything read from a file: immutable, and a key it does not know is a mistake."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", str_strip_whitespace=False, allow_inf_nan=False, defer_build=True
    )
    RENAMED: ClassVar[dict[str, str]] = {}
    """Former name of a key -> its name. `translate_validation` refuses a former name and gives the new one. The scripts
    in docs/reference/inventory.md convert files.
    """

    FOREIGN: ClassVar[dict[str, str]] = {}
    """Name that another program has for a key, in lowercase letters and digits -> the key, or where it is declared."""
    EXAMPLE: ClassVar[str] = ""
    """A valid table, for a message about another type."""

    @model_validator(mode="before")
    @classmethod
    def _validate_renamed_keys(cls, data: object) -> object:
        """Have the value of a former name validated as well: one message per mistake in it, all at once."""
        if not cls.RENAMED or not isinstance(data, dict):
            return data
        return {new: data[old] for old, new in cls.RENAMED.items() if old in data} | data


class InventoryModel(FrozenModel):
    """Base of an inventory's keys. Python has bytes and sets, which pydantic would take for text and lists."""

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_foreign_types(cls, value: object) -> object:
        if _has_bytes(value):
            raise ValueError("text, without b before its quotes")
        # the order of a set differs in each run, and the result of a deploy with it
        if any(isinstance(one, set | frozenset) for one in (value.values() if isinstance(value, dict) else (value,))):
            raise ValueError("a list: [ ] in place of { }")
        return value


def _has_bytes(value: object, depth: int = 8) -> bool:
    """Whether a value contains bytes, down to a depth; the types refuse deeper values."""
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return depth > 0 and any(_has_bytes(one, depth - 1) for one in value)
    return isinstance(value, bytes | bytearray)


@dataclass(frozen=True, order=True)
class Problem:
    """One mistake: its file, its key and the problem."""

    file: str
    key: str
    text: str

    def __str__(self) -> str:
        return printable(hide_tokens(": ".join(part for part in (self.file, self.key, self.text) if part)))


class Invalid(Exception):
    """Input that is refused, with every mistake found in it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = sorted(set(problems))
        super().__init__("\n".join(str(problem) for problem in self.problems))


class CausedError(ValueError):
    """A value that breaks a rule, and why."""

    def __init__(self, rule: str, cause: str) -> None:
        super().__init__(rule)
        self.cause = cause
        """The problem of this value; empty where the rule tells it."""


def format_count(number: int, noun: str) -> str:
    """`1 card`, `2 cards`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def describe_renamed(new: str) -> str:
    """The text of a key with its former name."""
    return f"is now called {new}"


# pydantic's words where they do not follow "must be"
WORDS = {
    "string_type": "text",
    "string_too_short": "non-empty text",
    "too_short": "a non-empty list",
    "tuple_type": "a list",
    "dict_type": "a table of names",
    "model_type": "a table of keys",
    "model_attributes_type": "a table of keys",
    "invalid_key": "text as key",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a whole number of fewer digits",
    "finite_number": "a finite number",
    "string_unicode": "text on one line, without half characters (surrogates)",
}


# ... and those with a number, with the name that pydantic has for it
BOUNDS = {"greater_than_equal": ("at least", "ge"), "less_than_equal": ("at most", "le")}


def translate_validation(
    error: ValidationError | Sequence[ErrorDetails],
    model: type[BaseModel],
    file: str,
    prefix: str,
    also: frozenset[str] = frozenset(),
    within: tuple[str, ...] = (),
) -> list[Problem]:
    """Translate pydantic's errors into problems, with the nearest valid name for unknown keys.

    Args:
        error: Pydantic's errors, or those of `rigwright.validation_passes.find_all_errors`.
        model: The model of the data.
        file: The file of the data.
        prefix: The key of the data.
        also: Keys that are valid at the top beside the model's own, for suggestions.
        within: The tables of the file that the data stands in.
    """
    found = []
    details = error.errors(include_url=False) if isinstance(error, ValidationError) else error
    for detail in details:
        place = detail["loc"]
        # pydantic counts the items that have no mistake
        if detail["type"] == "too_short" and any(d["loc"][: len(place)] == place != d["loc"] for d in details):
            continue
        # pydantic's own marks, as of a table's key or of the kind of thing an entry is
        loc = [part for part in detail["loc"] if not str(part).startswith("[")]
        key = prefix
        for part in (*within, *loc):
            key += f"[{part}]" if isinstance(part, int) else f"{'.' if key else ''}{shorten_text(str(part))}"
        if detail["type"] == "extra_forbidden":
            allowed = {*_valid_keys(model, tuple(loc[:-1])), *(also if len(loc) == 1 else ())}
            models = [*_nested_models(_find_annotation(model, tuple(loc[:-1])))]
            renamed = (one.RENAMED for one in models if issubclass(one, FrozenModel))
            if new := next((names[str(loc[-1])] for names in renamed if loc[-1] in names), ""):
                found.append(Problem(file, key, describe_renamed(new)))
                continue
            hint = _foreign_hint(models, str(loc[-1]), allowed)
            if hint.startswith(BELONGS):
                found.append(Problem(file, key, f'"{shorten_text(str(loc[-1]))}" {hint}'))
                continue
            text = "unknown key" + (hint or suggestion(str(loc[-1]), allowed))
            found.append(Problem(file, key, text + _quoting_hint(file, [*within, *loc], detail["input"], allowed)))
        elif detail["type"] == "missing":
            if not _is_misspelt(model, tuple(loc), details):
                found.append(Problem(file, key, "missing" + _example_hint(model, tuple(loc), detail)))
        elif detail["type"] in ("union_tag_invalid", "union_tag_not_found"):
            found.append(_describe_kind_problem(file, key, model, tuple(loc), detail))
        else:
            found.append(
                Problem(
                    file,
                    key,
                    f"{format_value(detail['input'], key)} is refused: {_describe_cause(detail)}"
                    f"must be {_describe_rule(file, detail)}" + _example_hint(model, tuple(loc), detail),
                )
            )
    return found


def _is_misspelt(model: type[BaseModel], loc: tuple[int | str, ...], details: Sequence[ErrorDetails]) -> bool:
    """Whether an unknown key of the same table is a missing one with another spelling."""
    key, allowed = str(loc[-1]), _valid_keys(model, loc[:-1])
    others = [
        tuple(one for one in detail["loc"] if not str(one).startswith("["))
        for detail in details
        if detail["type"] == "extra_forbidden"
    ]
    return any(
        suggestion(str(other[-1]), allowed).startswith(f'; did you mean "{key}"?')
        for other in others
        if other[:-1] == loc[:-1]
    )


BELONGS = "belongs in "
"""The beginning of a hint for a key of another table."""


def _foreign_hint(models: Iterable[type[BaseModel]], key: str, allowed: Iterable[str]) -> str:
    """The key that has another name in other programs, or where it is declared; empty for an unknown name."""
    name = re.sub(r"[^a-z0-9]", "", key.casefold())
    hints = (one.FOREIGN.get(name, "") for one in models if issubclass(one, FrozenModel))
    if not (hint := next(filter(None, hints), "")):
        return ""
    if hint.startswith(BELONGS):
        return hint
    return f'; did you mean "{hint}"?' if hint in allowed else f"; {hint}"


_QUOTED_NUMBER = re.compile(r"\s*([0-9]{1,9})\s*[A-Za-z%]{0,4}\s*")
# pydantic's names of errors of types
_TYPE_ERRORS = {"missing", "int_type", "tuple_type", "dict_type", "model_type", "model_attributes_type", "string_type"}


def _example_hint(model: type[BaseModel], loc: tuple[int | str, ...], detail: ErrorDetails) -> str:
    """The right form for a value of another type: the same number without quotes, or an example of the key."""
    kind, value = detail["type"], detail["input"]
    if kind == "bool_type" and isinstance(value, str):
        return ", without quotes"
    if kind == "int_type" and isinstance(value, str) and (found := _QUOTED_NUMBER.fullmatch(value)):
        return f": {found[1]}, without quotes"
    is_item = bool(loc) and isinstance(loc[-1], int)
    if kind not in _TYPE_ERRORS or not loc or (kind == "int_type" and not is_item):
        return ""
    place = loc[:-1] if is_item else loc
    above = [*_nested_models(_find_annotation(model, place[:-1]))]
    examples = [one.model_fields[str(place[-1])].examples for one in above if place[-1] in one.model_fields]
    here = _find_annotation(model, place)
    is_table = isinstance(here, type) or get_origin(here) in (Union, UnionType)
    tables = [one.EXAMPLE for one in _nested_models(here) if is_table and issubclass(one, FrozenModel)]
    shown = next((found[0] for found in examples if found), next(iter(tables), ""))
    return f"{', in a list' if is_item else ','} such as {shown}" if shown else ""


def _describe_kind_problem(
    file: str, key: str, model: type[BaseModel], loc: tuple[int | str, ...], detail: ErrorDetails
) -> Problem:
    """The problem of the key that selects one of several tables."""
    limits = detail["ctx"]
    name = limits["discriminator"].strip("'")
    allowed = {
        str(value) for one in _nested_models(_find_annotation(model, loc)) for value in _allowed_values(one, name)
    }
    if detail["type"] == "union_tag_not_found":
        return Problem(file, f"{key}.{name}", f"missing{suggestion('', allowed)}")
    return Problem(
        file, f"{key}.{name}", f"{format_value(limits['tag'], key)} is refused{suggestion(limits['tag'], allowed)}"
    )


def _allowed_values(model: type[BaseModel], name: str) -> tuple[object, ...]:
    """The values that a model's key of a fixed value may have."""
    return get_args(model.model_fields[name].annotation)


def _describe_cause(detail: ErrorDetails) -> str:
    error = detail.get("ctx", {}).get("error")
    return f"{error.cause}; " if isinstance(error, CausedError) and error.cause else ""


def _describe_rule(file: str, detail: ErrorDetails) -> str:
    """The rule of a value, after "must be"."""
    kind, limits = detail["type"], detail.get("ctx", {})
    if kind == "literal_error" and isinstance(given := detail["input"], str):
        allowed = str(limits["expected"])
        near = difflib.get_close_matches(given, re.findall(r"'([^']*)'", allowed), n=1, cutoff=0.5)
        return allowed + (f'; did you mean "{near[0]}"?' if near else "")
    if kind == "bool_type":
        return "true or false" if file.endswith(".toml") else "True or False"
    if kind == "too_short" and isinstance(detail["input"], dict):
        return "a non-empty table"
    if kind == "too_long":
        return f"a {'table' if isinstance(detail['input'], dict) else 'list'} of at most {limits['max_length']}"
    if kind == "string_too_long":
        return f"text of at most {limits['max_length']} characters"
    if kind in BOUNDS:
        word, limit = BOUNDS[kind]
        return f"{word} {limits[limit]}"
    return WORDS.get(kind, detail["msg"].removeprefix("Value error, ").removeprefix("Input should be "))


def describe_violated_rule(error: ValidationError) -> str:
    """The first rule that a refused value breaks."""
    return _describe_rule("", error.errors(include_url=False)[0])


def _quoting_hint(file: str, loc: Sequence[int | str], given: object, allowed: Iterable[str]) -> str:
    """A hint for `[inputs.a-1.5]`, which TOML reads as a table `5` in the table `a-1`."""
    near = difflib.get_close_matches(str(loc[-1]), list(allowed), n=1, cutoff=0.5)
    if near or len(loc) != 3 or not isinstance(given, dict) or not file.endswith(".toml"):
        return ""
    top, *name = map(str, loc)
    return f'; a name with a dot needs quotes: [{top}."{".".join(name)}"]'


# Keys whose values are secrets, and keys whose values look like secrets and are public.
_SECRET_KEY = re.compile(
    r"(?:.*[._-])?(?:pass(?:word|wd|phrase)?|secret|token|api[-_]?key|credentials?|auth(?:orization)?|login(?:_file)?)"
    r"|keys",
    re.IGNORECASE,
)
_SECRET_TABLES = frozenset({"registries"})
_PUBLIC_KEY = re.compile(
    r"(?:.*_)?(?:sha256|digest|version|commit|revision|selection|sources|fingerprint|include|host_key)|file"
)
HIDDEN_VALUE = "a hidden value (it may be a secret)"


def format_value(value: object, key: str = "") -> str:
    """A value as it was declared, for a message: cut if it is long, and hidden if it is or may be a secret.

    Args:
        value: The value.
        key: Its key, with the keys that it is in: `registries.ghcr.login_file`.
    """
    try:
        text = str(value) if isinstance(value, date | time) else repr(value)
    except ValueError:  # a number of more digits than Python prints
        text = "a number of too many digits"
    except Exception:  # an inventory is a program: repr() of its objects may raise anything, or recurse
        text = f"a {type(value).__name__} that cannot be displayed"
    parts = [part for part in re.split(r"[.\[\]]+", key) if part and not part.isdecimal()] or [""]
    may_be_secret = not isinstance(value, bool | int | float) and text not in ("None", "''", "[]", "()", "{}")
    inner = value.items() if isinstance(value, dict) else ()
    if may_be_secret and (
        _SECRET_KEY.fullmatch(parts[-1])
        or not _SECRET_TABLES.isdisjoint(parts)
        or any(isinstance(one, str) and _SECRET_KEY.fullmatch(str(name)) for name, one in inner)
        or hide_tokens(text) != text
        or (has_secret_form(text) and not _PUBLIC_KEY.fullmatch(parts[-1]))
    ):
        return HIDDEN_VALUE
    text = re.sub(r"//[^/@\s]*@", "//...@", text)  # a password in an address
    return shorten_text(re.sub(r"(//[^\s?#'\"]*[?#])[^\s'\"]+", r"\1...", text))  # and in its query


def describe_exception(error: BaseException) -> str:
    """An exception of a foreign program, for people."""
    try:
        text = str(error)
    except Exception:  # it is their program's, too
        text = ""
    return hide_tokens(f"{type(error).__name__}{': ' if text else ''}{text}")


def _valid_keys(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    """The keys that are valid at a place inside a model."""
    return next(
        (
            sorted(field.alias or name for name, field in found.model_fields.items())
            for found in _nested_models(_find_annotation(model, loc))
        ),
        [],
    )


def _find_annotation(model: type[BaseModel], loc: tuple[int | str, ...]) -> object:
    """The annotation at a place inside a model."""
    current: object = model
    for part in loc:
        # an optional or a union is not a level of its own
        held = list(_nested_models(current)) if get_origin(current) in (Annotated, Union, UnionType) else []
        inner = held[0] if len(held) == 1 else current
        if isinstance(inner, type) and issubclass(inner, BaseModel) and part in inner.model_fields:
            current = inner.model_fields[str(part)].annotation
        else:
            arguments = getattr(current, "__args__", ())
            current = next((a for a in reversed(arguments) if a not in (Ellipsis, type(None))), None)
    return current


def _nested_models(annotation: object) -> Iterator[type[BaseModel]]:
    """The models that an annotation holds."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in getattr(annotation, "__args__", ()):
        yield from _nested_models(inner)
