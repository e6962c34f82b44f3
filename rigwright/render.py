"""Templates into text. They only print values; a value they miss is an error, never an empty string."""

from __future__ import annotations

import marshal
import shlex
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from rigwright.project_root import ROOT, cache_folder
from rigwright.system_calls import filter_lines

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def _environment() -> Environment:
    # a rig is declared without templates, and importing this takes as long as judging one
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from rigwright.template_cache import TemplateCache

    folder = cache_folder()
    # nothing here is HTML: units and shell scripts. In the latter each value passes one of three filters: `sh` makes it
    # one word of a command, `words` a list of such, and `number` lets digits through
    environment = Environment(  # noqa: S701
        loader=FileSystemLoader(ROOT / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
        bytecode_cache=TemplateCache(folder, Path(__file__)) if folder else None,
    )
    environment.filters["sh"] = lambda value: shlex.quote(str(value))
    environment.filters["words"] = lambda values: shlex.join(str(value) for value in values)
    environment.filters["number"] = int
    environment.globals["system_calls"] = filter_lines
    return environment


KEPT = 512
"""Texts of plain values that are kept: hosts of a fleet have most of them in common."""
_texts: dict[tuple[str, bytes], str] = {}


def render(template: str, **values: object) -> str:
    """Render templates/TEMPLATE.

    Raises:
        jinja2.UndefinedError: the template names a value that is not given.
    """
    try:
        # values are equal if their bytes are: types count
        key = template, marshal.dumps(values, 2)
    except ValueError:
        return _environment().get_template(template).render(**values)
    if (text := _texts.get(key)) is None:
        text = _environment().get_template(template).render(**values)
        if len(_texts) >= KEPT:
            _texts.pop(next(iter(_texts)), None)
        _texts[key] = text
    return text
