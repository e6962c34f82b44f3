"""TOML files into models, with the file named in every mistake."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import TypeVar, cast

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
        return cast(M, _parsed(path.read_text(encoding="utf-8"), model))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise Invalid([Problem(str(path), "the file", f"cannot be read as TOML: {error}")]) from error
    except ValidationError as error:
        raise Invalid(of_validation(error, model, str(path), "")) from error


@cache
def _parsed(text: str, model: type[BaseModel]) -> BaseModel:
    """The same text is the same: each rig of an inventory reads the catalogues and locks of all of them."""
    return model.model_validate(tomllib.loads(text))
