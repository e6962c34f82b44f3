"""rigwright.driver.locked for checkouts that do not have it yet: the same signature, and nothing is ever locked."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from types import ModuleType

from rigwright.lock import Artefact
from rigwright.rig import Rig

NAME = "rigwright.driver.locked"


@dataclass(frozen=True)
class Locked:
    """One driver."""

    version: str
    packages: dict[str, Artefact]
    key: str


def locked(rig: Rig, system: str) -> Locked | None:
    return None


def put_in() -> None:
    """Once, before what imports it."""
    if NAME not in sys.modules and importlib.util.find_spec(NAME) is None:
        module = ModuleType(NAME)
        module.__dict__.update(Locked=Locked, locked=locked)
        sys.modules[NAME] = module
