"""Files that an operator asks for: whole or not at all, and never through a link that another user has put there."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from cli.exit_codes import NotAsDeclared
from rigwright.local_files import write_atomically
from rigwright.problems import printable

# links there lead to a process's open files, and only root can have put one there
SYSTEM_FOLDERS = (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))


def make_output_folder(folder: Path) -> None:
    """Create a folder that an operator asks for, with those above it.

    Raises:
        NotAsDeclared: it cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotAsDeclared(f"{printable(str(folder))} cannot be created: {error.strerror}") from None


def write_output(path: str | Path, text: str) -> None:
    """Write a file in one step; a link of that name is replaced, and what it points at stays as it is.

    A device or a pipe is written to as it is.

    Raises:
        NotAsDeclared: it cannot be written; the earlier file is as it was.
    """
    place = Path(path)
    try:
        with suppress(FileNotFoundError):
            mode = os.lstat(place).st_mode
            if not stat.S_ISREG(mode) and (not stat.S_ISLNK(mode) or place.parent in SYSTEM_FOLDERS):
                place.write_text(text)
                return
        write_atomically(place, text)
    except OSError as error:
        raise NotAsDeclared(f"{printable(str(path))} cannot be written: {error.strerror}") from None
