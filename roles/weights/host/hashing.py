"""Hashing a file while something else writes it, so that its bytes are read once, from the page cache."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

CHUNK = 1 << 20
"""Bytes hashed at once."""
IDLE = 0.02
"""Seconds until the next look when there is nothing new."""


def digest_file(path: Path, seen: Callable[[int], None] = lambda done: None) -> str:
    """SHA-256 of a file; `seen` gets the number of hashed bytes."""
    follower = GrowingFileHasher(path, seen)
    follower.finish()
    return follower.digest


class GrowingFileHasher(threading.Thread):
    """Hashes a file that grows at its end. One that is replaced, or cut, is hashed from its beginning again.

    `path` may be set anew when the file gets another name.
    """

    def __init__(self, path: Path, seen: Callable[[int], None] = lambda done: None) -> None:
        super().__init__(daemon=True)
        self.path, self.seen = path, seen
        self.error: OSError | None = None
        self._whole = threading.Event()
        self._abandoned = False
        self._chunk = memoryview(bytearray(CHUNK))
        self._file = -1
        self._begin()

    @property
    def digest(self) -> str:
        """Of what was read; of the whole file after `finish`."""
        return self._hash.hexdigest()

    @property
    def size(self) -> int:
        """Bytes read."""
        return self._done

    def finish(self) -> None:
        """Hash the rest, after the last writer has closed it.

        Raises:
            OSError: the file cannot be read.
        """
        self._whole.set()
        if self.ident is not None:
            self.join()
        else:
            self.run()
        if self.error:
            raise self.error

    def abandon(self) -> None:
        """The hash is no longer needed."""
        self._abandoned = True
        self._whole.set()

    def run(self) -> None:
        """Follow until `finish` is called and everything is read."""
        try:
            while not self._abandoned:
                last = self._whole.is_set()
                if self._hash_piece():
                    continue
                if last:
                    return
                self._whole.wait(IDLE)
        except OSError as error:
            self.error = error
        finally:
            self._close()

    def _begin(self) -> None:
        self._close()
        self._hash = hashlib.sha256()
        self._done = 0

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _hash_piece(self) -> bool:
        """Hash a piece; False when there is none now."""
        try:
            there = self.path.lstat()
        except FileNotFoundError:  # not yet, or on its way to another name
            return False
        if self._file >= 0:
            mine = os.fstat(self._file)
            if (mine.st_dev, mine.st_ino) != (there.st_dev, there.st_ino) or mine.st_size < self._done:
                self._begin()
        if self._file < 0:
            self._file = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        count = os.readv(self._file, [self._chunk])
        if not count:
            return False
        self._hash.update(self._chunk[:count])
        self._done += count
        self.seen(self._done)
        return True
