"""Verbs begin sooner by this: importing their libraries takes longer than asking a host."""

from __future__ import annotations

import atexit
import dataclasses
import gc
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from types import ModuleType
from typing import Any

# objects more than before until Python looks for cycles: imports and operations make a hundred thousand, and leave some
# hundred in any, of which a look through all of them costs as much as asking a host once
GC_THRESHOLD = 200_000

# dataclasses' own, which compiles a method of its name, arguments and body. Python 3.13 compiles a class's at one go
COMPILE = "_create_fn"


@cache
def speed_up_imports() -> None:
    """For every verb, before it imports anything; once in a process, as each further patch would wrap the one before.

    Seconds of processor with it and without, medians of five to ten runs in turns on two busy cores (CPython 3.11):
    `validate` 0.38 and 0.60, `status` 0.62 and 1.13, a deploy that changes nothing 0.71 and 1.42. Of `status` the two
    patches of the standard library save 0.24, and the threshold of the garbage collector 0.26. `--help` does without.
    """
    gc.set_threshold(GC_THRESHOLD)
    # a process that ends gives all of its memory back at once: Python would look through it for cycles before
    atexit.register(gc.freeze)
    if compiled := dataclasses.__dict__.get(COMPILE):
        dataclasses.__dict__[COMPILE] = partial(_compile_on_call, compiled)
    # none is in the locked environment, and looking for them reads what every package has written down
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    packages = sys.modules.setdefault("importlib.metadata", _LazyMetadata("importlib.metadata"))
    # an import by its whole name does so for a module alone that it has looked for
    vars(importlib).setdefault("metadata", packages)
    # pyinfra holds arguments against their types with it
    sys.modules.setdefault("typeguard", _LazyTypeguard("typeguard"))
    # paramiko imports it for a `Match exec` of the operator's SSH configuration alone
    sys.modules.setdefault("invoke", _LazyModule("invoke"))
    # pyinfra does for operations that are named on its command line, with the facts of a whole system
    sys.modules.setdefault("pyinfra.operations.server", _LazyModule("pyinfra.operations.server"))


def _compile_on_call(compiled: Callable[..., Any], name: str, *given: Any, **options: Any) -> Callable[..., Any]:
    """A dataclass's method that is compiled when it is first called: of the hundreds of such classes that a verb
    imports it makes, compares and prints few, and compiling all that they have takes a fifth of its time.
    """
    made: list[Callable[..., Any]] = []

    def method(self: Any, /, *values: Any, **named: Any) -> Any:
        if not made:
            made.append(compiled(name, *given, **options))
            made[0].__qualname__ = method.__qualname__
            for one in type(self).__mro__:
                if one.__dict__.get(name) is method:
                    setattr(one, name, made[0])
        return made[0](self, *values, **named)

    method.__name__ = name
    return method


class _LazyModule(ModuleType):
    """A module that is imported where something of it is used first. (importlib's own lazy module is loaded by the next
    `import` of it already.)
    """

    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
            self.configure_imported(importlib.import_module(self.__name__))
        return getattr(importlib.import_module(self.__name__), name)

    def configure_imported(self, module: ModuleType) -> None:
        """It has been imported."""


class _LazyMetadata(_LazyModule):
    """importlib.metadata, which reads every installed package's entry points once: gevent alone asks for them 25 times,
    and it would read them anew for each.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        # a package: asked for this, it would have to be imported by the mere `from importlib.metadata import`
        self.__path__ = [f"{importlib.__path__[0]}/metadata"]

    def entry_points(self, **wanted: str) -> Any:
        """The function that pydantic imports, and with its plugins off never calls."""
        return self.__getattr__("entry_points")(**wanted)

    def configure_imported(self, module: ModuleType) -> None:
        """Have it look once."""
        found = cache(module.entry_points)
        module.__dict__["entry_points"] = lambda **wanted: found().select(**wanted) if wanted else found()


class _LazyTypeguard(_LazyModule):
    """typeguard, which imports all that tests are mocked with, and with it asyncio, to leave mocks alone: where nothing
    else has imported those, there are none.
    """

    def __getattr__(self, name: str) -> Any:
        if "unittest.mock" in sys.modules:
            return super().__getattr__(name)
        sys.modules["unittest.mock"] = _StubMockModule("unittest.mock")
        try:
            return super().__getattr__(name)
        finally:
            del sys.modules["unittest.mock"]


class _StubMockModule(ModuleType):
    """The parts of unittest.mock that typeguard needs, while it is imported."""

    class Mock:
        """No object is one."""

    patch = None


@contextmanager
def without_module_locks() -> Iterator[None]:
    """For a block in which gevent takes the place of threads: it looks for locks that are held in every object that
    Python looks through for cycles, and between imports nothing from before the block holds one.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def speed_up_operations() -> None:
    """For a verb that runs operations: pyinfra orders each by the lines of its callers, and reads all their sources to
    find the text of a line, which it does not use; and it works out the same types of the same arguments for each.
    """
    from pyinfra.api import arguments, facts, util

    for name in ("stack", "getframeinfo"):
        setattr(util, name, partial(getattr(util, name), context=0))
    known = arguments.all_global_arguments()
    for module in (arguments, facts):
        module.__dict__["all_global_arguments"] = lambda: known
