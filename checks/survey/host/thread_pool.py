"""Calls at the same time, without concurrent.futures: with the logging that it brings, importing that takes as long as
many a section.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any


class Call:
    """One that is under way."""

    def __init__(self, room: threading.Semaphore, call: Callable[[], Any]) -> None:
        self.room, self.call = room, call
        self.returned: Any = None
        self.raised: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        with self.room:
            try:
                self.returned = self.call()
            except BaseException as error:
                self.raised = error

    def result(self) -> Any:
        """Wait for what it returns; raises what it has raised."""
        self.thread.join()
        if self.raised is not None:
            raise self.raised
        return self.returned


class Pool:
    """At most so many calls at the same time, all of them ended when its block ends."""

    def __init__(self, most: int) -> None:
        self.room = threading.Semaphore(most)
        self.calls: list[Call] = []

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *raised: object) -> None:
        for call in self.calls:
            call.thread.join()

    def submit(self, function: Callable[..., Any], *words: Any, **options: Any) -> Call:
        """Begin a call."""
        call = Call(self.room, partial(function, *words, **options))
        self.calls.append(call)
        return call

    def map(self, function: Callable[..., Any], each: Iterable[Any]) -> Iterator[Any]:
        """Begin a call for each; yields what they return, in their order."""
        calls = [self.submit(function, one) for one in each]
        return (call.result() for call in calls)
