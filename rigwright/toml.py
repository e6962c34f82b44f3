"""TOML files into models, with the file named in every mistake."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from rigwright.problems import Invalid, Problem, of_validation

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

M = TypeVar("M", bound=BaseModel)


def parse(path: Path, model: type[M]) -> M:
    """Read a file into a model.

    Raises:
        Invalid: it is no TOML, or not what the model wants.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise Invalid([Problem(str(path), "the file", f"cannot be read as TOML: {error}")]) from error
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise Invalid(of_validation(error, model, str(path), "")) from error
