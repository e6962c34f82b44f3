"""Engines: one folder per kind, with all that the other packages need of it (`Kind` in engine_interface.py).

An engine kind from outside Rigwright is a Python package that its inventory imports and registers.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rigwright.engines.engine_interface import Kind
    from rigwright.model.instance import Instance

_registered: dict[str, Kind] = {}


def register(kind: Kind) -> None:
    """Add a kind of engine, before an inventory declares rigs that use it.

    Raises:
        ValueError: another kind has its name.
    """
    if kinds().setdefault(kind.name, kind) is not kind:
        raise ValueError(f"a kind of engine named {kind.name} already exists")


def kinds() -> dict[str, Kind]:
    """All kinds of engines, by name."""
    if not _registered:
        for folder in pkgutil.iter_modules(__path__):
            if folder.ispkg:
                kind = import_module(f"{__name__}.{folder.name}").KIND
                _registered[kind.name] = kind
    return _registered


def kind_of(instance: Instance) -> Kind:
    """The kind of an instance's engine."""
    return kinds()[instance.engine.kind]
