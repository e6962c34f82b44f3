"""Bytes that no process can change any more: a process may still have a file open that another user has put there.

A read lease (fcntl(2), F_SETLEASE) is given only where no process has the file open for writing, not even a mapped one,
and it is broken as soon as one opens it so. It costs nothing, whatever the file's size. The kernel says so with SIGIO
too, which has to be ignored: it would end the process.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from contextlib import suppress
from glob import iglob
from pathlib import Path
from types import TracebackType

from .http import available_bytes
from .spec import FetchRefused

CLONE = 0x40049409  # ioctl_ficlone(2), FICLONE: the copy shares the blocks
WRITTEN_TO = "it is being written to: deploy again when that has ended"


class LeaseUnsupported(Exception):
    """The file's system cannot say whether anybody writes there: network file systems, mostly."""


class FileLease:
    """A file that is not written to, until the end of the block.

    Raises:
        FetchRefused: another process has it open to write to it.
        LeaseUnsupported: it cannot be determined.
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.fcntl(self.handle, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError as error:
            os.close(self.handle)
            if error.errno == errno.EAGAIN and has_writers(path):
                raise FetchRefused(WRITTEN_TO) from None
            raise LeaseUnsupported from error

    def __enter__(self) -> FileLease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.handle)

    def check_unchanged(self, path: Path) -> None:
        """See that it is the file that has this name now, and that no process has opened it to write to it since.

        Raises:
            FetchRefused: a process has, or waits to, or has put another file there.
        """
        kept = fcntl.fcntl(self.handle, fcntl.F_GETLEASE) == fcntl.F_RDLCK
        if not kept or not os.path.samestat(os.fstat(self.handle), path.lstat()):
            raise FetchRefused(WRITTEN_TO)


def copy_file(source: Path, target: Path, reserve: int) -> None:
    """Copy a file, so that a process that still writes to it writes elsewhere; blocks are shared where the file system
    can.

    Args:
        source: The file.
        target: Its copy, on the disk that has to have the room.
        reserve: Bytes that are to stay free there.

    Raises:
        FetchRefused: the room is not there.
    """
    target.unlink(missing_ok=True)
    with source.open("rb") as old, target.open("xb") as new:
        with suppress(OSError):
            fcntl.ioctl(new, CLONE, old.fileno())
            return
        size, there = os.fstat(old.fileno()).st_size, available_bytes(target.parent)
        if size + reserve > there:
            raise FetchRefused(
                f"whether anybody still writes to {source} cannot be told on its file system, so it has to be copied; "
                f"that takes {size / 10**9:.2f} GB, and {reserve / 10**9:.2f} GB are to stay free, but the disk has "
                f"{there / 10**9:.2f} GB left: make room, or take the file away"
            )
        shutil.copyfileobj(old, new, 8 << 20)


def has_writers(path: Path) -> bool:
    """Whether a process of this host has a file open to write to it: proc(5), fd and fdinfo."""
    sought = path.stat()
    # the glob of Path fails, up to Python 3.11, where a process ends meanwhile
    for handle in map(Path, iglob("/proc/[0-9]*/fd/*")):  # noqa: PTH207
        with suppress(OSError, StopIteration):  # it has ended, or was closed
            there = handle.stat()
            if (there.st_dev, there.st_ino) == (sought.st_dev, sought.st_ino):
                lines = (handle.parents[1] / "fdinfo" / handle.name).read_text().splitlines()
                flags = next(int(line.split()[1], 8) for line in lines if line.startswith("flags:"))
                if flags & os.O_ACCMODE != os.O_RDONLY:
                    return True
    return False
