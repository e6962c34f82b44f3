"""A folder of verified weights, for the tests of what keeps them verified."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

from roles.weights.host import records, rehash
from roles.weights.host.records import File

DAY = 86_400
NOW = time.time()


class Shelf:
    """Models with their records."""

    def __init__(self, folder: Path) -> None:
        self.root, self.records, self.locks = folder / "models", folder / "weights", folder / "run/locks"
        self.root.mkdir()
        self.records.mkdir()

    def file(self, name: str, content: bytes = b"weights", age_days: float = 30) -> File:
        """A verified file that was hashed so long ago."""
        (self.root / name).write_bytes(content)
        file = File(name, hashlib.sha256(content).hexdigest(), len(content))
        records.write(self.records, self.root, file)
        os.utime(self.deep(file), (NOW - age_days * DAY, NOW - age_days * DAY))
        return file

    def deep(self, file: File) -> Path:
        return self.records / "deep" / records.name(file)

    def wrong(self, file: File) -> Path:
        return self.records / "wrong" / records.name(file)

    def holds(self, file: File) -> bool:
        return records.holds(self.records, self.root, file)

    def rot(self, file: File, content: bytes) -> None:
        """Other bytes that nobody has written: the record knows nothing of them."""
        path = self.root / file.path
        path.write_bytes(content)
        (self.records / records.name(file)).write_text(f"{records.state(path)} {path}\n")

    def run(self, *options: str) -> int:
        return rehash.main([str(self.records), str(self.locks), *options])


def fresh(path: Path) -> bool:
    return path.stat().st_mtime > NOW - 1
