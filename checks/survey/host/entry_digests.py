"""Digests of files for the fingerprint: a file that was read before, and is the same by inode, size and times, is not
read."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import stat
import time
from contextlib import suppress
from typing import Any

from checks.survey.host import common

KEY, CACHE = "fingerprint.key", "fingerprint_cache.json"
KEY_BYTES = 32
PIECE = 1 << 20  # bytes
KEPT = 1 << 16  # bytes of a file whose content an entry keeps
LARGEST = 1 << 30  # bytes of a file that are read; of a longer one, size and times tell a change
LARGEST_OF_USERS = 1 << 22
"""The same of a file that is not root's: its owner decides how long it is."""
MOST_OF_USERS = 1 << 27
"""Bytes of all such files that a run reads."""
FRESH = 2.0  # seconds since a change in which another one may have the same times
MOST_CACHE = 16 << 20  # bytes
FORMAT = 1
ROOT_USER = 0

Identity = tuple[int, int, int, int]


class EntryDigests:
    """Reads files once, and remembers their digests by what the file system says about them."""

    def __init__(self, folder: str, *, deep: bool = False) -> None:
        """Read key and cache.

        Args:
            folder: Where they lie; one that root alone may write in. Without it nothing is kept.
            deep: Whether all files are read whatever the cache says.
        """
        self.folder, self.deep = folder, deep
        self.hits = self.reads = 0
        self._left_of_users = MOST_OF_USERS
        self._now = time.time()
        kept = self._load()
        self._cache: dict[str, list[object]] = {} if deep else kept.get("files", {})
        self.memory: dict[str, Any] = kept.get("memory", {})
        """The data that other parts keep until the next run, by their names."""
        self._memory_before = json.dumps(self.memory, sort_keys=True)
        self._used: dict[str, list[object]] = {}
        self.key = private_bytes(f"{folder}/{KEY}", KEY_BYTES) or b""
        """The host's key; empty while there is none."""
        self._working_key = self.key if len(self.key) == KEY_BYTES else secrets.token_bytes(KEY_BYTES)

    def keyed(self, text: bytes) -> str:
        """A digest that tells nothing without the host's key."""
        return hmac.new(self._working_key, text, hashlib.sha256).hexdigest()[:32]

    def make_key(self) -> None:
        """Keep a key on the host, where there is none yet."""
        if len(self.key) != KEY_BYTES:
            write_private(f"{self.folder}/{KEY}", self._working_key)
            self.key = self._working_key

    def file_digests(self, path: str, status: os.stat_result) -> tuple[str, str, bytes | None]:
        """MD5, SHA-256 and, of a short file that was read now, its content.

        Raises:
            OSError: the file cannot be read, or another one has taken its place.
        """
        identity = _identity(status)
        known = self._cache.get(path)
        if known and tuple(known[:4]) == identity:
            self.hits += 1
            self._used[path] = known
            return str(known[4]), str(known[5]), None
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW)
        try:
            there = os.fstat(opened)
            if not stat.S_ISREG(there.st_mode) or (there.st_dev, there.st_ino) != (status.st_dev, status.st_ino):
                raise OSError(f"{path} has changed meanwhile")
            md5, sha256, content = hashlib.md5(usedforsecurity=False), hashlib.sha256(), bytearray()
            is_users = there.st_uid != ROOT_USER
            left = min(LARGEST_OF_USERS, self._left_of_users) if is_users else LARGEST
            while left > 0 and (piece := os.read(opened, PIECE)):
                left -= len(piece)
                self._left_of_users -= len(piece) if is_users else 0
                md5.update(piece)
                sha256.update(piece)
                if len(content) <= KEPT:
                    content += piece
            if left <= 0:
                sha256.update(repr(_identity(there)).encode())
            after = os.fstat(opened)
        finally:
            os.close(opened)
        self.reads += 1
        # a file written within the clock's grain may change once more without another time
        if _identity(after) == _identity(there) and after.st_ctime < self._now - FRESH:
            self._used[path] = [*_identity(after), md5.hexdigest(), sha256.hexdigest()]
        return md5.hexdigest(), sha256.hexdigest(), bytes(content) if len(content) <= KEPT else None

    def save(self) -> None:
        """Keep the digests for the next run; a host without our folder keeps none."""
        changed = json.dumps(self.memory, sort_keys=True) != self._memory_before
        if self.reads or changed or self._used.keys() != self._cache.keys():
            kept = {"format": FORMAT, "files": self._used, "memory": self.memory}
            with suppress(OSError):
                write_private(f"{self.folder}/{CACHE}", json.dumps(kept, separators=(",", ":")).encode())

    def _load(self) -> dict[str, Any]:
        with suppress(ValueError, TypeError, KeyError, RecursionError, AttributeError):
            kept = json.loads(private_bytes(f"{self.folder}/{CACHE}", MOST_CACHE) or b"null")
            if kept["format"] == FORMAT and isinstance(kept["memory"], dict):
                files = {path: row for path, row in kept["files"].items() if isinstance(row, list) and len(row) == 6}
                return {"files": files, "memory": kept["memory"]}
        return {}


def _identity(status: os.stat_result) -> Identity:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def private_bytes(path: str, most: int) -> bytes | None:
    """The contents of a file that only root may write and read; None of any other, and of one that is longer."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return None
    with os.fdopen(opened, "rb") as file:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            return None
        found = file.read(most + 1)
    return found if len(found) <= most else None


def write_private(path: str, content: bytes) -> None:
    """Write a file that root alone may read, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    temporary = f"{path}.{os.getpid()}.{secrets.token_hex(4)}"
    opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(opened, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def is_private_key(content: bytes) -> bool:
    """Whether a file has a private key in it, in a form that tools write."""
    return b"PRIVATE KEY" in content or common.text(content[:64]).startswith("PuTTY-User-Key-File")
