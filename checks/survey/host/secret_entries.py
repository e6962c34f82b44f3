"""Entries of the fingerprint for copies of secrets that others may read: in files, their extended attributes and packed
archives.
"""

from __future__ import annotations

import glob
import hashlib
import heapq
import os
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from checks.survey.host import common, entry_files, entry_privileges
from checks.survey.host.host_entry import HostEntry, text_entry

MOST_READ = {False: 5000, True: 500_000}
"""Files that are compared with secrets, without and with `deep`."""
SHORTEST = 16  # characters of a line of a secret that do not occur by chance
PIECE = 1 << 18  # bytes
LIMITS = {False: (4 << 20, 16 << 20, 64 << 20), True: (1 << 28, 1 << 30, 4 << 30)}
"""Bytes of a file, of what one comes to unpacked, and of all; without and with `deep`."""
MOST_ATTRIBUTES = 20  # of a file
MEMORY = "secret_copies"


def secret_copies(kind: str, asked: dict[str, Any]) -> Iterator[HostEntry]:
    """Files that others may read and that have a line of one of our secrets, or of the host's private keys."""
    needles = _needles(asked["credentials"])
    if not needles:
        return
    search = SecretSearch(needles, asked)
    for path, status in search.candidates():
        if name := search.secret_in(path, status):
            yield text_entry(kind, path, f"has the secret {name}, and others may read it", path)
    search.keep()


class SecretSearch:
    """Looks for lines of secrets in files, newest first, up to a number of bytes."""

    def __init__(self, needles: dict[bytes, str], asked: dict[str, Any]) -> None:
        """Begin.

        Args:
            needles: Line of a secret -> its name.
            asked: `deep`, whether nothing is taken from memory and more is read; `memory`, of earlier runs.
        """
        self.needles, self.deep = needles, bool(asked["deep"])
        self.longest, self.most_unpacked, self.left = LIMITS[self.deep]
        self.overlap = max(map(len, needles)) - 1
        self.memory: dict[str, Any] = asked.get("memory", {})
        known = self.memory.get(MEMORY)
        # secrets that came later have not been looked for
        self.digest = hashlib.sha256(b"\n".join(sorted(needles))).hexdigest()
        same = isinstance(known, dict) and known.get("needles") == self.digest and not self.deep
        self.known: dict[str, list[int]] = known["clean"] if same and isinstance(known, dict) else {}
        self.clean: dict[str, list[int]] = {}

    def candidates(self) -> list[tuple[str, os.stat_result]]:
        """Files that others may read, the newest first; of all disks with `deep`."""
        files = entry_privileges.full_scan() if self.deep else entry_privileges.usual_scan(entry_files.ROOT)[0]
        found = (
            (path, status)
            for path, status in files
            # systemd opens a folder below it to its service alone
            if status.st_mode & 0o044 and stat.S_ISREG(status.st_mode) and not path.startswith("/run/credentials/")
        )
        return heapq.nlargest(MOST_READ[self.deep], found, key=lambda row: row[1].st_ctime)

    def secret_in(self, path: str, status: os.stat_result) -> str:
        """The name of the secret that a file or an extended attribute of it has; empty for none."""
        identity = [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
        if self.known.get(path) != identity:
            size = min(status.st_size, self.longest)
            if self.left < size:
                return ""
            self.left -= size
            try:
                if name := self._find_in_attributes(path) or self._find(f"{entry_files.ROOT}{path}"):
                    return name
            except OSError:
                # such as a file with a lease of its owner: the next run looks at it again
                return ""
        self.clean[path] = identity
        return ""

    def _find_in_attributes(self, path: str) -> str:
        with suppress(OSError):
            for name in os.listxattr(f"{entry_files.ROOT}{path}", follow_symlinks=False)[:MOST_ATTRIBUTES]:
                if found := self._name_in(os.getxattr(f"{entry_files.ROOT}{path}", name, follow_symlinks=False)):
                    return found
        return ""

    def keep(self) -> None:
        """Remember files without a secret for the next run, by inode, size and times."""
        newest = dict([*self.clean.items()][: MOST_READ[False]])
        self.memory[MEMORY] = {"needles": self.digest, "clean": newest}

    def _name_in(self, text: bytes) -> str:
        return next((name for needle, name in self.needles.items() if needle in text), "")

    def _find(self, path: str) -> str:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW)
        with os.fdopen(opened, "rb") as file:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                return ""
            if name := self._name_in_pieces(list_pieces(file.read, self.longest)):
                return name
            file.seek(0)
            return self._name_in_pieces(self._charged(unpacked_pieces(list_pieces(file.read, self.longest))))

    def _charged(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """The unpacked bytes, as far as the limits of a file and of all of them reach."""
        most = self.most_unpacked
        for piece in pieces:
            yield piece
            most -= len(piece)
            self.left -= len(piece)
            if most <= 0 or self.left <= 0:
                return

    def _name_in_pieces(self, pieces: Iterable[bytes]) -> str:
        end = b""
        for piece in pieces:
            text = end + piece
            if name := self._name_in(text):
                return name
            end = text[-self.overlap :] if self.overlap else b""
        return ""


def list_pieces(read: Any, most: int) -> Iterator[bytes]:
    """The contents of a file, up to a number of bytes."""
    while most > 0 and (piece := read(min(PIECE, most))):
        most -= len(piece)
        yield piece


def unpacked_pieces(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """All members of a file that gzip, bzip2 or xz has packed, unpacked; nothing of another file."""
    unpacker: Any = None
    for piece in pieces:
        waiting = piece
        while True:
            if unpacker is None:
                # zeros may fill up a member
                waiting = waiting.lstrip(b"\0")
                if not waiting:
                    break
                unpacker = _unpacker(waiting)
                if unpacker is None:
                    return
            try:
                made = unpacker.decompress(waiting, PIECE)
            except Exception:  # each module has errors of its own: each of them says that this is no archive
                return
            if made:
                yield made
            if unpacker.eof:
                waiting, unpacker = unpacker.unused_data, None
                continue
            waiting = getattr(unpacker, "unconsumed_tail", b"")
            if not waiting and getattr(unpacker, "needs_input", len(made) < PIECE):
                break


def _unpacker(begin: bytes) -> Any:
    if begin.startswith(b"\x1f\x8b"):
        return zlib.decompressobj(wbits=31)
    # Debian's smallest Python has neither of these modules
    with suppress(ImportError):
        if begin.startswith(b"BZh"):
            import bz2

            return bz2.BZ2Decompressor()
        if begin.startswith(b"\xfd7zXZ"):
            import lzma

            return lzma.LZMADecompressor(memlimit=128 << 20)
    return None


def _needles(folder: str) -> dict[bytes, str]:
    """A line of each secret -> its name."""
    found: dict[bytes, str] = {}
    names = sorted(os.listdir(f"{entry_files.ROOT}{folder}")) if os.path.isdir(f"{entry_files.ROOT}{folder}") else []
    keys = [
        path.removeprefix(entry_files.ROOT) for path in sorted(glob.glob(f"{entry_files.ROOT}/etc/ssh/ssh_host_*_key"))
    ]
    for path in [*(f"{folder}/{name}" for name in names), *keys]:
        with suppress(OSError, RuntimeError):
            if needle := _needle(common.data(f"{entry_files.ROOT}{path}", 1 << 20) or b""):
                found.setdefault(needle, path.rpartition("/")[2])
    return found


def _needle(content: bytes) -> bytes:
    """A line by which a copy of a secret is known; of a certificate with its key, one of the key's."""
    lines = content.split(b"\n")
    begins = [number for number, line in enumerate(lines) if b"PRIVATE KEY-----" in line and line.startswith(b"-----B")]
    if begins:
        lines = lines[begins[0] + 2 :]  # the first line of a key is the same in all of its kind
    elif b"-----BEGIN CERTIFICATE" in content:
        return b""
    return next((line for line in lines if len(line) >= SHORTEST and not line.startswith((b"-----", b"#"))), b"")
