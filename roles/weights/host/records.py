"""Which files were verified, and what they looked like then: one small record a file.

A record is `STATE PATH`. STATE is what the kernel reports about the file (size, mtime, ctime, inode): every write to
the file, replacement or change of its mode changes that too, so that asking is enough where reading 100 GB would be
needed else. Beside the records lie `deep/NAME`, whose mtime says when the bytes were last hashed, and `wrong/NAME`,
which says that they were other ones then.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

DEEP = "deep"
WRONG = "wrong"
# the name of a record; anything else in the folder, such as a half-written one, is ignored
NAME = re.compile(r"([0-9a-f]{64})-[0-9a-f]{12}")


@dataclass(frozen=True)
class LockedFile:
    """A file that is locked."""

    path: str
    """From the models' root."""
    sha256: str
    size: int
    """Bytes."""


@dataclass(frozen=True)
class VerifiedRecord:
    """The contents of one record."""

    name: str
    state: str
    path: Path
    """The file's absolute path."""

    @property
    def sha256(self) -> str:
        """The SHA-256 of the file's bytes as read."""
        return self.name[:64]


def record_name(file: LockedFile) -> str:
    """The name of the file's record: by content and place, for two models may have one file in common."""
    return f"{file.sha256}-{hashlib.sha256(file.path.encode()).hexdigest()[:12]}"


def file_state(path: Path) -> str:
    """The kernel's facts about a file, in the words of `stat -c '%s %.9Y %.9Z %i'`; a link is not followed.

    Raises:
        OSError: it is not there.
    """
    return format_file_state(os.lstat(path))


def format_file_state(found: os.stat_result) -> str:
    """A state, of what has been asked already."""
    return f"{found.st_size} {_format_seconds(found.st_mtime_ns)} {_format_seconds(found.st_ctime_ns)} {found.st_ino}"


def _format_seconds(nanoseconds: int) -> str:
    whole, rest = divmod(abs(nanoseconds), 10**9)
    return f"{'-' if nanoseconds < 0 else ''}{whole}.{rest:09}"


def write_record(folder: Path, root: Path, file: LockedFile) -> None:
    """Record that a file's bytes have just been hashed, and are the locked ones.

    The record comes last and in one step: a run that is cut off leaves none, and the file is hashed once more.

    Raises:
        OSError: the file is not there, or the record cannot be written.
    """
    record, path = folder / record_name(file), root / file.path
    line = f"{file_state(path)} {path}\n"
    (folder / DEEP).mkdir(parents=True, exist_ok=True)
    mark_hashed(folder, record.name)
    replace_text(record, line)


def replace_text(path: Path, text: str) -> None:
    """Write a small file in one step, whatever ends this process or the machine."""
    new = path.with_name(f"{path.name}.new")
    with new.open("w") as half:
        half.write(text)
        half.flush()
        os.fsync(half.fileno())
    new.replace(path)
    _sync_records(path.parent)


def mark_hashed(folder: Path, record: str) -> None:
    """Note that a recorded file's bytes were hashed now, and were right."""
    (folder / DEEP / record).touch()
    (folder / WRONG / record).unlink(missing_ok=True)


def withdraw_record(folder: Path, record: str, found: str) -> None:
    """Take a record back: its file counts as not verified from now on, and is marked as wrong.

    The mark comes first: a process that ends between the two finds the record still due, and hashes once more.

    Args:
        folder: Where the records lie.
        record: The record's name.
        found: The SHA-256 of its bytes as read, in one line.
    """
    (folder / WRONG).mkdir(exist_ok=True)
    replace_text(folder / WRONG / record, f"{found}\n")
    (folder / record).unlink(missing_ok=True)
    _sync_records(folder)


def is_wrong(folder: Path, record: str) -> bool:
    """Whether a file's bytes were other ones when they were last hashed."""
    return (folder / WRONG / record).exists()


def _sync_records(folder: Path) -> None:
    # without this, a power cut could bring back the folder as it was
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_record_valid(folder: Path, root: Path, file: LockedFile) -> bool:
    """Whether the file was verified, and is unchanged since."""
    path = root / file.path
    try:
        return (folder / record_name(file)).read_text() == f"{file_state(path)} {path}\n"
    except (OSError, UnicodeDecodeError):
        return False


def list_records(folder: Path) -> list[VerifiedRecord]:
    """All records of a folder, by name; unreadable ones are left out."""
    found = []
    for path in sorted(folder.glob("*-*")) if folder.is_dir() else []:
        if not NAME.fullmatch(path.name):
            continue
        with suppress(OSError, UnicodeDecodeError, ValueError):
            *state, where = path.read_text().removesuffix("\n").split(" ", 4)
            if len(state) == 4 and where.startswith("/"):
                found.append(VerifiedRecord(path.name, " ".join(state), Path(where)))
    return found
