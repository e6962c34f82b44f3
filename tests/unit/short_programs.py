"""Short programs, started and waited for without gevent's loop.

A test whose program asks a server of this process needs the subprocess module that it finds, which is gevent's: nothing
else goes on here meanwhile.

gevent replaces os.posix_spawn and os.waitpid, too: a wait is for a signal then, which its loop takes up with the first
process that it watches. The first program of a test run or of a plugin of pytest could have ended before, and was
waited for without end. So both are the system's own here.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import CalledProcessError, CompletedProcess

from gevent.monkey import get_original

_spawn, _wait = get_original("os", ["posix_spawn", "waitpid"])


def run_program(
    command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, input: str = "", check: bool = False
) -> CompletedProcess[str]:
    """Run a program to its end, as subprocess.run does it with captured text.

    Raises:
        CalledProcessError: with check, it failed.
        FileNotFoundError: there is no such program on the PATH that it is given.
    """
    streams = [os.memfd_create("stream") for _ in range(3)]
    try:
        os.write(streams[0], input.encode())
        os.lseek(streams[0], 0, os.SEEK_SET)
        places = [(os.POSIX_SPAWN_DUP2, stream, number) for number, stream in enumerate(streams)]
        variables = os.environ if env is None else env
        program = shutil.which(command[0], path=variables.get("PATH", os.defpath))
        if program is None:
            raise FileNotFoundError(command[0])
        pid = _spawn(program, list(map(str, command)), variables, file_actions=places)
        status = os.waitstatus_to_exitcode(_wait(pid, 0)[1])
        out, error = (_read_stream(stream) for stream in streams[1:])
    finally:
        for stream in streams:
            os.close(stream)
    if check and status:
        raise CalledProcessError(status, command, out, error)
    return CompletedProcess(command, status, out, error)


def _read_stream(stream: int) -> str:
    os.lseek(stream, 0, os.SEEK_SET)
    with open(stream, closefd=False) as file:
        return file.read()
