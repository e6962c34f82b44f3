"""What has verbs begin sooner: importing what they stand on takes longer than asking a host."""

from __future__ import annotations

import gc
import sys
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

# objects more than before until Python looks for cycles: imports make a hundred thousand, and leave none
CYCLES = 50_000


def begin() -> None:
    """For every verb, before it imports anything."""
    gc.set_threshold(CYCLES)
    # paramiko imports it for a `Match exec` of the operator's SSH configuration alone
    sys.modules.setdefault("invoke", _Later("invoke"))


class _Later(ModuleType):
    """A module that is imported where something of it is used first. (importlib's own lazy module is loaded by the next
    `import` of it already.)
    """

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)


def operations() -> None:
    """For a verb that runs operations: pyinfra orders each by the lines of its callers, and reads all their sources to
    find the text of a line, which it does not use.
    """
    from pyinfra.api import util

    for name in ("stack", "getframeinfo"):
        setattr(util, name, partial(getattr(util, name), context=0))
