"""Locks that only root can hold: files in a folder of root's.

Any user that can open a file or a folder can lock it (flock(2)), so Rigwright never locks a file that others may read.
"""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .spec import FetchRefused

PAUSE = 0.2
"""Seconds between two tries to get a lock that another one has."""


class LockHeldElsewhere(FetchRefused):
    """Another process has the lock; the message says which one, and since when."""


@contextmanager
def hold_lock(
    folder: Path, name: str, patience: float = 0.0, behind: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Hold a lock while the block runs. Nothing stays behind of it, however this process ends.

    Args:
        folder: Of all locks; made where it is not there.
        name: The lock's.
        patience: Seconds for which another holder is waited for.
        behind: Called once with the holder, before the wait for it.

    Raises:
        LockHeldElsewhere: another process had it all the time.
        FetchRefused: others could open the folder, or it is a link.
    """
    handle = _open_lock_file(folder, name)
    try:
        _acquire_lock(handle, patience, behind)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{_own_unit()}\n".encode(), 0)
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def _open_lock_file(folder: Path, name: str) -> int:
    folder.parent.mkdir(0o755, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(0o700)
    try:
        inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except NotADirectoryError:
        raise FetchRefused(_describe_unsafe_folder(folder)) from None
    try:
        there = os.fstat(inside)
        if (there.st_uid, stat.S_IMODE(there.st_mode)) != (os.geteuid(), 0o700):
            raise FetchRefused(_describe_unsafe_folder(folder))
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600, dir_fd=inside)
    finally:
        os.close(inside)


def _describe_unsafe_folder(folder: Path) -> str:
    return f"{folder} has to be a folder that root alone can open: remove it"


def _acquire_lock(handle: int, patience: float, behind: Callable[[str], None] | None) -> None:
    end = time.monotonic() + patience
    told = False
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            who = os.pread(handle, 500, 0).decode(errors="replace").strip() or "another process"
        if time.monotonic() >= end:
            raise LockHeldElsewhere(who)
        if behind and not told:
            behind(who)
            told = True
        time.sleep(PAUSE)


def _own_unit() -> str:
    # cgroups(7): the last component of a service's is its unit
    try:
        unit = Path("/proc/self/cgroup").read_text().strip().rpartition("/")[2]
    except OSError:
        unit = ""
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    return f"{unit or 'a process of no unit'} (process {os.getpid()}) since {at}"
