"""TOML files into models, with the file named in every mistake."""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from rigwright import local_files
from rigwright.problems import Invalid, Problem, translate_validation
from rigwright.validation_passes import find_all_errors

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

M = TypeVar("M", bound=BaseModel)
LARGEST = 64 << 20
"""Bytes of a file; the largest lock that is shipped has 0.13 MB, and each model's config.json in one may have 4 MiB."""

# The subset that TOML and JSON write alike; the rest is left to TOML's own reader, which takes ten times as long for a
# lock of some hundred rows.
_STRING = r'"[^"\\\x00-\x1f\x7f]*(?:\\["\\bfnrt][^"\\\x00-\x1f\x7f]*)*"'
_LINE = rf"[a-z0-9_]+ = (?:{_STRING}|0|[1-9][0-9]{{0,17}}|true|false|\[(?:{_STRING}(?:, {_STRING})*)?\])\n"
_PLAIN = re.compile(rf"(?:#[^\x00-\x08\x0a-\x1f\x7f]*\n)?(?:{_LINE})*(?:\n\[\[artefact\]\]\n(?:{_LINE})+)+")
_ESCAPED = re.compile(r"[^\x00-\x7e]")
_PARTS = re.compile(r"^(?:\[\[artefact\]\]|([a-z0-9_]+) = (.*))$", re.MULTILINE)


def _unquoted_name(text: str, message: str) -> str:
    """The header of a table with its name in quotes, for an error in a header such as `[variants.llamacpp/65k]`."""
    number = re.search(r"at line ([0-9]+)", message)
    line = text.splitlines()[int(number[1]) - 1] if number else ""
    found = re.fullmatch(r"\s*\[(\w+)\.([^\]\"']*[/ ][^\]\"']*)\]\s*", line)
    return f'[{found[1]}."{found[2]}"]' if found else ""


def load_toml(path: Path, model: type[M]) -> M:
    """Read a file into a model.

    Raises:
        Invalid: it is no TOML, or not what the model wants.
    """
    try:
        content = local_files.read_content(path, LARGEST)
    except ValueError as error:
        raise Invalid([Problem(str(path), "", str(error))]) from error
    text = ""
    try:
        text = content.decode()
        if text.startswith("\ufeff"):
            raise ValueError("it begins with a byte order mark: save it as UTF-8 without one")
        return cast("M", _parse_cached(text, model))
    except ValidationError as error:
        details = find_all_errors(model, tomllib.loads(text))
        raise Invalid(translate_validation(details, model, str(path), "")) from error
    # a number of more digits than Python reads is a ValueError, too
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else error
        if "int_max_str_digits" in str(error):
            why = "a number has too many digits"
        elif name := _unquoted_name(text, str(error)):
            why = f"{error}; a name with a slash or a space needs quotes: {name}"
        raise Invalid([Problem(str(path), "the file", f"cannot be read as TOML: {why}")]) from error


def load_sound_entries(path: Path, model: type[M]) -> tuple[M | None, list[Problem]]:
    """Read a file of tables of entries: those without a mistake, and all mistakes; None where nothing can be read."""
    try:
        return load_toml(path, model), []
    except Invalid as error:
        if not isinstance(error.__cause__, ValidationError):
            return None, error.problems
        data = tomllib.loads(local_files.read_content(path, LARGEST).decode())
        for detail in error.__cause__.errors():
            table, *inner = (str(part) for part in detail["loc"] or ("",))
            entries = data.get(table)
            if inner and isinstance(entries, dict):
                entries.pop(inner[0], None)
            else:
                data.pop(table, None)
        try:
            return model.model_validate(data), error.problems
        except ValidationError:
            return None, error.problems


@cache
def _parse_cached(text: str, model: type[BaseModel]) -> BaseModel:
    """The same text is the same: each rig of an inventory reads the catalogues and locks of all of them."""
    return model.model_validate(parse_lock_text(text) or tomllib.loads(text))


def parse_lock_text(text: str) -> dict[str, Any] | None:
    """The tables of a text that has only tables called `artefact`, as locks are written; None for any other."""
    if not _PLAIN.fullmatch(text):
        return None
    parts = _PARTS.findall(text)
    values = iter(json.loads(f"[{','.join(value for key, value in parts if key)}]"))
    table: dict[str, Any] = {}
    tables = [table]
    for key, _ in parts:
        if key:
            table[key] = next(values)
        else:
            table = {}
            tables.append(table)
    top, *rows = tables
    # a key that is listed twice is no TOML
    if "artefact" in top or sum(map(len, tables)) + len(rows) != len(parts):
        return None
    return top | {"artefact": rows}


def render_value(value: object) -> str:
    """A text, number, list or table as TOML has it: as JSON does, but for what neither of JSON's ways suits.

    TOML has no escapes for halves of a character, and takes a DEL only as an escape.
    """
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{render_key(name)} = {render_value(inner)}' for name, inner in value.items())} }}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(render_value, value))}]"
    return _ESCAPED.sub(
        lambda found: f"\\U{code:08x}" if (code := ord(found[0])) > 0xFFFF else f"\\u{code:04x}",
        json.dumps(value, ensure_ascii=False),
    )


def render_key(name: str) -> str:
    """A key as TOML has it: in quotes where it has to be."""
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else render_value(name)
