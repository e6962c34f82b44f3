"""Files that an operator asks for: whole or not at all, and never through a link that somebody has put there."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from cli.ending import Failed
from rigwright.problems import printable

# links there lead to what a process has open, and nobody but root can have put one there
SYSTEMS_OWN = (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))


def put(path: str | Path, text: str) -> None:
    """Write a file in one step; a link of that name is replaced, and what it points at stays as it is.

    A device or a pipe is written to as it is.

    Raises:
        Failed: it cannot be written; what was there is as it was.
    """
    place = Path(path)
    try:
        with suppress(FileNotFoundError):
            mode = os.lstat(place).st_mode
            if not stat.S_ISREG(mode) and (not stat.S_ISLNK(mode) or place.parent in SYSTEMS_OWN):
                place.write_text(text)
                return
        _replace(place, text)
    except OSError as error:
        raise Failed(f"{printable(str(path))} cannot be written: {error.strerror}") from None


def _replace(place: Path, text: str) -> None:
    """Write beside it, under a name that nobody can know, and put that in its place."""
    made, name = tempfile.mkstemp(prefix=f".{place.name[:100]}.", dir=place.parent)
    beside = Path(name)
    try:
        with open(made, "w", encoding="utf-8") as file:
            file.write(text)
        if place.is_file() and not place.is_symlink():
            there = place.stat()
            with suppress(PermissionError):
                os.chown(beside, there.st_uid, there.st_gid)
            beside.chmod(stat.S_IMODE(there.st_mode) & 0o777)
        else:
            mask = os.umask(0)
            os.umask(mask)
            beside.chmod(0o666 & ~mask)
        beside.replace(place)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
