"""Resolution of many boxes with few declarations: boxes that differ only in name and address are resolved once."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeVar

from rigwright.problems import Invalid, Problem

T = TypeVar("T")


class _OpenBlocks:
    """Open blocks of `share_resolutions`. They have one table: of pyinfra's greenlets none inherits a context."""

    def __init__(self) -> None:
        self.count, self.results, self.lock = 0, dict[object, object](), Lock()

    def add(self, number: int) -> None:
        """Count blocks that begin, or end; without one, nothing is kept."""
        with self.lock:
            self.count += number
            self.results = self.results if self.count else {}

    @property
    def table(self) -> dict[object, object] | None:
        """Results by key; None outside of a block."""
        return self.results if self.count else None


_OPEN = _OpenBlocks()


@contextmanager
def share_resolutions() -> Iterator[None]:
    """Read catalogues, locks and the files of rigs once while the block runs, and resolve equal declarations once.

    Files that change in the meantime are not read again: a block loads the rigs of an inventory, and does nothing else.
    """
    _OPEN.add(1)
    try:
        yield
    finally:
        _OPEN.add(-1)


def read_once(key: object, read: Callable[[], T]) -> T:
    """The result of a function, called once per key in a block of `share_resolutions`; a key belongs to one type."""
    results = _OPEN.table
    if results is None:
        return read()
    if key not in results:
        results[key] = read()
    return results[key]  # type: ignore[return-value]


def resolve_once(name: str, declaration: Any, resolve: Callable[[], T]) -> T:
    """The result of a rig's declaration, resolved once in a block of `share_resolutions`: perhaps for another rig.

    Args:
        name: The rig.
        declaration: All that the result depends on, except the name. Declarations are equal if their bytes are: types
            and the order of keys count, and values of a type that only a program can make are equal to none.
        resolve: Resolves it.

    Raises:
        Invalid: the declaration is refused, with the problems of this rig.
    """
    results = _OPEN.table
    try:
        key = marshal.dumps(declaration, 2) if results is not None else b""
    except ValueError:
        results, key = None, b""
    if results is None:
        return resolve()
    if isinstance(first := results.get(key), _SharedRefusal):
        raise first.of_rig(name)
    if first is not None:
        return first  # type: ignore[return-value]
    try:
        results[key] = result = resolve()
    except Invalid as error:
        if not any(_mentions(name, one) for one in error.problems):
            results[key] = _SharedRefusal(name, error)
        raise
    return result


class _SharedRefusal:
    """The problems of a declaration that several rigs have."""

    def __init__(self, name: str, error: Invalid) -> None:
        self.name, self.error = name, error

    def of_rig(self, name: str) -> Invalid:
        """The same problems, of another rig."""
        start = f"{self.name}."
        return Invalid(
            Problem(one.file, f"{name}.{one.key[len(start) :]}", one.text) if one.key.startswith(start) else one
            for one in self.error.problems
        )


def _mentions(name: str, problem: Problem) -> bool:
    """Whether a problem has a rig's name elsewhere than at the beginning of its key."""
    return name in problem.text or name in problem.key.removeprefix(f"{name}.")
