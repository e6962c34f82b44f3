"""Work on many hosts at the same time. A host that is waited for holds no place of another."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

import gevent
from gevent.event import Event
from gevent.pool import Pool
from pyinfra.api.state import BaseStateCallback

T = TypeVar("T")
P = ParamSpec("P")
STARTED_AT_ONCE = 16
"""Hosts on which work begins without a look at the processor."""
BUSY_S = 0.5
"""The wait of a further host for a controller that is busy with earlier ones, at most."""
HANDSHAKES = 16 * len(os.sched_getaffinity(0))
"""SSH handshakes under way at the same time: a processor completes so many long before their limit of 15 s."""
HANDSHAKE_S = 3.0
"""Seconds after which the handshake of a host that hangs no longer counts."""
FILES_BESIDE = 64
"""Open files of a process besides one for each host."""


class TooManyHosts(ValueError):
    """The process may not open as many files as it has hosts; the text has both numbers and the remedy."""


def wait_for_processor() -> None:
    """Let greenlets that can go on do so first. Hosts begin as fast as the controller works, however many hang."""
    with gevent.Timeout(BUSY_S, False):
        gevent.idle()


class TimedPlaces:
    """A number of places. A holder that hangs loses its place after some seconds."""

    def __init__(self, number: int, seconds: float) -> None:
        self.number, self.seconds = number, seconds
        self.holders: dict[Hashable, float] = {}
        """Holder -> when it loses its place; the first is the next."""
        self._freed = Event()

    def take(self, holder: Hashable) -> None:
        """Wait for a place and take it."""
        while len(self.holders) >= self.number:
            first, end = next(iter(self.holders.items()))
            if (left := end - time.monotonic()) <= 0:
                self.holders.pop(first)
            else:
                self._freed.clear()
                self._freed.wait(left)
        self.holders[holder] = time.monotonic() + self.seconds

    def give_back(self, holder: Hashable) -> None:
        """Free the place of a holder, if it has one."""
        if self.holders.pop(holder, None) is not None:
            self._freed.set()

    def open(self) -> None:
        """Have a place for each holder from now on."""
        self.number = 1 << 30
        self._freed.set()


class PacedPool(Pool):
    """pyinfra's pool without a limit of hosts at work; a limited number of them connects at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.handshakes = TimedPlaces(HANDSHAKES, HANDSHAKE_S)

    def spawn(self, *arguments: Any, **options: Any) -> Any:
        """Begin work on a further host. It connects first: `end_handshake` ends that."""
        if len(self) >= STARTED_AT_ONCE:
            wait_for_processor()
        place = object()
        self.handshakes.take(place)
        greenlet = super().spawn(*arguments, **options)
        greenlet.handshake = place
        greenlet.link(self.end_handshake)
        return greenlet

    def end_handshake(self, greenlet: Any) -> None:
        """Let a further host connect: that of this greenlet is connected, or out of reach."""
        self.handshakes.give_back(getattr(greenlet, "handshake", None))


class HandshakeEnds(BaseStateCallback):
    """pyinfra's callbacks at the end of each handshake."""

    def __init__(self, pool: PacedPool) -> None:
        self.pool = pool

    def host_connect(self, state: Any, host: Any) -> None:  # type: ignore[override]
        """End the handshake of a connected host."""
        self.pool.end_handshake(gevent.getcurrent())

    def host_connect_error(self, state: Any, host: Any, error: BaseException) -> None:  # type: ignore[override]
        """End the handshake of a host out of reach."""
        self.pool.end_handshake(gevent.getcurrent())


class HostThreads(ThreadPoolExecutor):
    """A thread for each host: gevent's, which cost some kilobytes."""

    def __init__(self, hosts: int) -> None:
        super().__init__(max_workers=max(hosts, 1))
        self.begun = 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Begin work on a further host."""
        self.begun += 1
        if self.begun > STARTED_AT_ONCE:
            wait_for_processor()
        return super().submit(fn, *args, **kwargs)


def pace_hosts(state: Any) -> None:
    """Have pyinfra work on all hosts of a state at the same time; its own pools have 20 places for each processor."""
    state.pool, state.fact_pool = PacedPool(), Pool()
    state.callback_handlers.append(HandshakeEnds(state.pool))


def raise_file_limit(hosts: int) -> None:
    """Raise the soft limit of open files to what so many connections need.

    Raises:
        TooManyHosts: the hard limit is lower.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = hosts + FILES_BESIDE
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise TooManyHosts(
            f"{hosts} hosts need {needed} open files, and the hard limit of this process is {hard}: "
            f"raise it with `ulimit -n {needed}` as root, or take fewer hosts with --limit"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
