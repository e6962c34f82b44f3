"""A terminal of so many columns, for a command that is to find one."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress

LIMIT = 120  # seconds, for a machine with much else to do


def run_on_terminal(command: Sequence[str], environment: Mapping[str, str], columns: int = 80) -> tuple[int, str]:
    """Run a command on a terminal; returns its exit status, and all that it wrote there."""
    kept = {key: value for key, value in environment.items() if key not in ("COLUMNS", "NO_COLOR")}
    # in a process of its own: reading here would keep gevent, which tests have, from all else
    words = [sys.executable, __file__, str(columns), *command]
    made = {"TERM": "xterm-256color", **kept}
    done = subprocess.run(words, env=made, capture_output=True, text=True, timeout=LIMIT, check=False)
    return done.returncode, done.stdout


def _set_size_and_run(columns: int, command: Sequence[str]) -> int:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        with suppress(OSError):  # the terminal is closed on all sides
            while part := os.read(ours, 65536):
                os.write(1, part)
    return process.returncode


if __name__ == "__main__":
    sys.exit(_set_size_and_run(int(sys.argv[1]), sys.argv[2:]))
