"""Work on many hosts at the same time. A host that is waited for holds no place of another."""

from __future__ import annotations

import resource
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

import gevent
from gevent.pool import Pool

T = TypeVar("T")
P = ParamSpec("P")
STARTED_AT_ONCE = 16
"""Hosts on which work begins without a look at the processor."""
BUSY_S = 0.5
"""The wait of a further host for a controller that is busy with earlier ones, at most."""
FILES_BESIDE = 64
"""Open files of a process besides one for each host."""


class TooManyHosts(ValueError):
    """The process may not open as many files as it has hosts; the text has both numbers and the remedy."""


def wait_for_processor() -> None:
    """Let greenlets that can go on do so first. Hosts begin as fast as the controller works, however many hang."""
    with gevent.Timeout(BUSY_S, False):
        gevent.idle()


class PacedPool(Pool):
    """pyinfra's pool without a number of places."""

    def spawn(self, *arguments: Any, **options: Any) -> Any:
        """Begin work on a further host."""
        if len(self) >= STARTED_AT_ONCE:
            wait_for_processor()
        return super().spawn(*arguments, **options)


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
    state.pool, state.fact_pool = PacedPool(), PacedPool()


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
