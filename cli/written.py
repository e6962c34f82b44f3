"""Files that an operator asks for: whole or not at all, and never through a link that somebody has put there."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from cli.ending import Failed
from rigwright.problems import printable


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
            # /dev/stdout is a link to what it is, which nobody but root can have put there
            if not stat.S_ISREG(mode) and (not stat.S_ISLNK(mode) or place.is_relative_to("/dev")):
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
        with open(made, "w") as file:
            file.write(text)
        mask = os.umask(0)
        os.umask(mask)
        beside.chmod(0o666 & ~mask)
        beside.replace(place)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
