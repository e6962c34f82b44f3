"""Locks between processes of the operator's machine: files that their owner alone can open.

Any user with the right to open a file or a folder can lock it, even one opened for reading (flock(2)). A lock on what
others may read can therefore be held by any of them without end.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rigwright.host.deploy_lock_state import parse_holder, render_holder_record

PAUSE = 0.1  # seconds between two attempts
NOTICE = 2.0  # seconds of waiting after which the holder is named
RECORD = 4096  # bytes read of what a holder has written


class FileLockHeld(Exception):
    """Another process held the lock for all the time allowed; the text names it."""


def _print_notice(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


@contextmanager
def file_lock(
    path: Path, doing: str, patience: float | None = None, notify: Callable[[str], object] = _print_notice
) -> Iterator[None]:
    """Hold an exclusive lock while the block runs. The kernel releases it however this process ends.

    Args:
        path: The lock file, created with mode 0600 where it is missing; it stays there.
        doing: The command or step, which a waiting process names.
        patience: Seconds to wait for another holder; None for no limit.
        notify: Receives one line that names the holder, once, after `NOTICE` seconds of waiting.

    Raises:
        FileLockHeld: another process held it all the time.
        OSError: the file cannot be opened, is a link, or belongs to another user.
    """
    handle = _open_lock(path)
    try:
        _acquire(handle, path, patience, notify)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{render_holder_record(doing)}\n".encode(), 0)
        yield
    finally:
        # gevent closes it later
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)


def _open_lock(path: Path) -> int:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "is a symbolic link: remove it", str(path)) from None
        raise
    try:
        found = os.fstat(handle)
        # the folder's owner can replace whatever lies in it
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in (os.geteuid(), path.parent.stat().st_uid):
            raise OSError(errno.EPERM, "is not a file of your own: remove it", str(path))
        if found.st_nlink != 1:
            raise OSError(errno.EMLINK, "has other names: remove it", str(path))
        if found.st_mode & 0o077:
            # of an earlier version, which let others open it
            os.fchmod(handle, 0o600)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _acquire(handle: int, path: Path, patience: float | None, notify: Callable[[str], object]) -> None:
    begin = time.monotonic()
    noticed = False
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            return
        waited = time.monotonic() - begin
        if patience is not None and waited >= patience:
            raise FileLockHeld(_describe_holder(handle, path))
        if not noticed and waited >= NOTICE:
            noticed = True
            notify(f"waiting: {_describe_holder(handle, path)}")
        time.sleep(PAUSE)


def _describe_holder(handle: int, path: Path) -> str:
    lines = os.pread(handle, RECORD, 0).decode(errors="replace").splitlines()
    return parse_holder(lines[0] if lines else "").describe(f"the lock {path}")
