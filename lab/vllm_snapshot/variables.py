"""Variables that vLLM reads (vllm/envs.py), each tried with some values."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

Json = dict[str, Any]
_YES, _NO = ("1", "true", "True"), ("0", "false", "False")


def environment_variables() -> Json:
    """Each variable that vLLM knows, and what it takes."""
    return {
        name: _describe_variable(name, read)
        for name, read in sorted(import_module("vllm.envs").environment_variables.items())
    }


def _describe_variable(name: str, read: Any) -> Json:
    """The values that a variable takes, found by trials."""
    for cell in getattr(read, "__closure__", None) or ():
        if isinstance(cell.cell_contents, list) and cell.cell_contents:
            kind = "list of choices" if "list" in read.__qualname__ or "set" in read.__qualname__ else "choice"
            return {"kind": kind, "choices": [str(choice) for choice in cell.cell_contents]}
    said = {value: _try_value(name, read, value) for value in (*_YES, *_NO, "2", "1.5", "x", "", "{}")}
    if all(isinstance(one, bool) for value, one in said.items() if one is not _REFUSED and value not in ("", "{}")):
        words = [value for value in _YES if said[value] is True] + [value for value in _NO if said[value] is False]
        return {"kind": "switch", "choices": words}
    if said["x"] is not _REFUSED:
        return {"kind": "text"}
    if said["{}"] is not _REFUSED:
        return {"kind": "json"}
    return {"kind": "int" if said["1.5"] is _REFUSED else "float"}


_REFUSED = object()


def _try_value(name: str, read: Callable[[], Any], value: str) -> Any:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        return read()
    except Exception:  # whatever it says, such a value ends the server
        return _REFUSED
    finally:
        del os.environ[name]
        os.environ |= {} if before is None else {name: before}
