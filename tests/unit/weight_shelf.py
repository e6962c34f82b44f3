"""A folder of verified weights, for the tests of what keeps them verified."""

import hashlib
import os
import time
from pathlib import Path

from roles.weights.host import records, rehash
from roles.weights.host.records import LockedFile

DAY = 86_400
NOW = time.time()


class WeightShelf:
    """Models with their records."""

    def __init__(self, folder: Path) -> None:
        self.root, self.records, self.locks = folder / "models", folder / "weights", folder / "run/locks"
        self.root.mkdir()
        self.records.mkdir()

    def add_file(self, name: str, content: bytes = b"weights", age_days: float = 30) -> LockedFile:
        """A verified file that was hashed so long ago."""
        (self.root / name).write_bytes(content)
        file = LockedFile(name, hashlib.sha256(content).hexdigest(), len(content))
        records.write_record(self.records, self.root, file)
        os.utime(self.deep_record(file), (NOW - age_days * DAY, NOW - age_days * DAY))
        return file

    def deep_record(self, file: LockedFile) -> Path:
        return self.records / "deep" / records.record_name(file)

    def wrong_record(self, file: LockedFile) -> Path:
        return self.records / "wrong" / records.record_name(file)

    def has_file(self, file: LockedFile) -> bool:
        return records.is_record_valid(self.records, self.root, file)

    def corrupt_file(self, file: LockedFile, content: bytes) -> None:
        """Other bytes without a writer: the record knows nothing of them."""
        path = self.root / file.path
        path.write_bytes(content)
        (self.records / records.record_name(file)).write_text(f"{records.file_state(path)} {path}\n")

    def run_rehash(self, *options: str) -> int:
        return rehash.main([str(self.records), str(self.locks), *options])


def is_fresh(path: Path) -> bool:
    return path.stat().st_mtime > NOW - 1
