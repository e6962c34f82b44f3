"""Reading a file without disturbing the page cache: served files stay in memory, and nothing else comes in.

With O_DIRECT (open(2)) the bytes come from the disk itself, which is what a search for rotten ones wants. Where that is
refused, they are read as usual and what was not in memory before is dropped afterwards.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CHUNK = 8 << 20  # bytes
ALIGNED = 4096  # bytes: the unit of O_DIRECT's offsets and lengths on every disk
# the error of a file system that cannot do it for this file
REFUSED = (errno.EINVAL, errno.EOPNOTSUPP)
# the errors of a disk that has lost bytes: ext4, xfs and btrfs have one each; a block that fs-verity refuses is EIO
LOST = (errno.EIO, errno.EUCLEAN, errno.EBADMSG)


class FileTruncated(Exception):
    """The file has become shorter while it was read."""


@contextmanager
def open_direct(path: str, direct: bool) -> Iterator[tuple[int, bool]]:
    """Open a file that is no link; gives its handle, and whether it is read around the page cache.

    Args:
        path: The file.
        direct: Whether to try.

    Raises:
        OSError: it cannot be opened.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        handle = os.open(path, flags | (os.O_DIRECT if direct else 0))
    except OSError as error:
        if not direct or error.errno not in REFUSED:
            raise
        direct, handle = False, os.open(path, flags)
    try:
        yield handle, direct
    finally:
        os.close(handle)


def read_direct(handle: int, size: int, direct: bool, take: Callable[[memoryview], object]) -> Iterator[int]:
    """Read a file's bytes from its beginning; yields after every chunk how many there have been.

    Args:
        handle: An open file.
        size: Bytes to read.
        direct: Whether it was opened with O_DIRECT.
        take: Is given each chunk, which is good until it returns.

    Raises:
        OSError: the disk does not give them; REFUSED before the first byte where the file system cannot do O_DIRECT.
        FileTruncated: there are fewer.
    """
    if not direct:
        # read ahead would bring in pages beyond the chunk, which would then seem to have been there before
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)
    done = 0
    # memory of its own is aligned to pages, as O_DIRECT needs it
    with mmap.mmap(-1, CHUNK) as buffer, memoryview(buffer) as view:
        while done < size:
            absent = [] if direct else _uncached_ranges(handle, done, min(CHUNK, size - done))
            got = min(os.preadv(handle, [view], done), size - done)
            if done + got < size:
                got -= got % ALIGNED
            if not got:
                raise FileTruncated
            take(view[:got])
            for start, length in absent:
                os.posix_fadvise(handle, start, length, os.POSIX_FADV_DONTNEED)
            done += got
            yield done


def digest_from_disk(
    path: Path,
    seen: Callable[[int], object],
    *,
    around: bool = True,
    right: Callable[[os.stat_result], bool] = lambda found: True,
) -> str:
    """SHA-256 of a file as its disk has it; empty when it became shorter meanwhile, or is not the right one.

    Args:
        path: The file.
        seen: Gets the number of hashed bytes.
        around: Whether to try to read it around the page cache.
        right: Whether it is the file that is meant; asked before and after.

    Raises:
        OSError: it cannot be read.
    """
    try:
        return _digest_once(path, seen, around, right)
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        return _digest_once(path, seen, False, right)


def _digest_once(
    path: Path, seen: Callable[[int], object], around: bool, right: Callable[[os.stat_result], bool]
) -> str:
    hashed = hashlib.sha256()
    with suppress(FileTruncated), open_direct(str(path), around) as (handle, around):
        found = os.fstat(handle)
        if right(found):
            for done in read_direct(handle, found.st_size, around, hashed.update):
                seen(done)
            if right(os.fstat(handle)):
                return hashed.hexdigest()
    return ""


def _uncached_ranges(handle: int, start: int, length: int) -> list[tuple[int, int]]:
    """Ranges (offset, bytes) of a part of a file that are not in memory; none where that cannot be told.

    mincore(2) and not a read with RWF_NOWAIT: that one starts to fetch the pages that it asks for.
    """
    pages = -(-length // mmap.PAGESIZE)
    seen = (ctypes.c_ubyte * pages)()
    with suppress(OSError, ValueError), mmap.mmap(handle, length, access=mmap.ACCESS_COPY, offset=start) as mapped:
        # only for its address; while it exists, the mapping cannot be closed
        anchor = ctypes.c_char.from_buffer(mapped)
        status = ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(anchor)), ctypes.c_size_t(length), seen)
        del anchor
        if status == 0:
            return _group_pages([not page & 1 for page in seen], start)
    return []


def _group_pages(absent: list[bool], start: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for page, gone in enumerate(absent):
        place = start + page * mmap.PAGESIZE
        if gone and found and sum(found[-1]) == place:
            found[-1] = (found[-1][0], found[-1][1] + mmap.PAGESIZE)
        elif gone:
            found.append((place, mmap.PAGESIZE))
    return found
