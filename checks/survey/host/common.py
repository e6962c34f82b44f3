"""What all sections of the survey share."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

MOST = 1 << 20  # bytes that are read of a file for people or systemd; none of them is as long


def run(*words: str, limit: float = 15.0, stdin: str = "", status: bool = False) -> str:
    """What a program prints on standard output.

    Raises:
        RuntimeError: it fails, unless `status` says that it may.
        subprocess.TimeoutExpired: after `limit` seconds.
    """
    done = subprocess.run(words, input=stdin.encode(), capture_output=True, timeout=limit, check=False)
    if done.returncode and not status:
        said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        raise RuntimeError(f"{words[0]}: {said[-1] if said else f'exit status {done.returncode}'}")
    return done.stdout.decode(errors="replace")


def ended(*words: str, limit: float = 15.0) -> tuple[int, str, str]:
    """What a program ends with, and prints on standard output and standard error; one that is not there ends with 127.

    Raises:
        subprocess.TimeoutExpired: after `limit` seconds.
    """
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit, check=False)
    except (FileNotFoundError, PermissionError):
        return 127, "", ""
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def read(path: str | Path, most: int = MOST) -> str | None:
    """A file's text; None for no file, or none that can be read. A device or pipe is never opened for it."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            return None
        with os.fdopen(os.dup(opened), "rb") as file:
            return file.read(most).decode(errors="surrogateescape").encode(errors="replace").decode()
    except OSError:
        return None
    finally:
        os.close(opened)
