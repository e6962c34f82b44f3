"""Programs that tests and what they test start, without a copy of this process.

gevent's Popen forks. In a process that has imported everything that takes longer than most programs run, for the copy's
pages are made twice: here, and again in the copy while it closes what it was given. Python's own Popen has the kernel
lend the memory until the program begins, as is done here; the wait for the program is gevent's, as it was.
"""

import os
import sys
from _posixsubprocess import fork_exec
from typing import Any

from gevent import subprocess
from gevent.monkey import get_original
from gevent.os import _watch_child

_close, _wait = get_original("os", ["close", "waitpid"])
_forked = subprocess.Popen._execute_child


def _start_process(
    self: Any, args: Any, executable: Any, preexec: Any, close: bool, kept: Any, cwd: Any, env: Any, *rest: Any
) -> None:
    """Start a program as gevent's Popen does; by its own way where something is asked for that is seldom."""
    shell, ends = rest[3], rest[4:10]
    restored, gid, gids, uid, umask, session, group = rest[10:]
    words = [args] if isinstance(args, str | bytes | os.PathLike) else list(args)
    words = ["/bin/sh", "-c", *words] if shell else words
    name = os.fsencode(words[0])
    usual = not preexec and not executable and all(one in (None, -1) for one in (gid, gids, uid, umask, group))
    pid = 0
    if usual:
        path = [os.fsencode(one) for one in os.get_exec_path(env)]
        places = [name] if b"/" in name else [one + b"/" + name for one in path]
        known = os.environ if env is None else env
        variables = [os.fsencode(key) + b"=" + os.fsencode(value) for key, value in known.items()]
        told, tells = os.pipe()
        groups = (-1, None, None, None, -1) if sys.version_info >= (3, 11) else (None, None, None, -1)
        lent = (True,) if sys.version_info >= (3, 11) else ()
        try:
            pid = fork_exec(
                list(map(os.fsencode, words)),
                tuple(places),
                *(close, tuple(sorted((*map(int, kept), tells))), cwd, variables),
                *(*ends, told, tells, restored, session, *groups, None, *lent),
            )
        finally:
            _close(tells)
        failed = os.read(told, 1)
        _close(told)
        if failed:
            _wait(pid, 0)
            pid = 0
    if not pid:  # which says why, too
        _forked(self, args, executable, preexec, close, kept, cwd, env, *rest)
        return
    self.pid, self._child_created = pid, True
    devnull = getattr(self, "_devnull", None)
    for ours, theirs in ((ends[1], ends[0]), (ends[2], ends[3]), (ends[4], ends[5])):
        if -1 not in (ours, theirs) and theirs != devnull:
            _close(theirs)
    if devnull is not None:
        _close(devnull)
    self._closed_child_pipe_fds = True
    # nothing has run since that takes its end up, so that it cannot have been missed
    _watch_child(pid, self._on_child, self._loop, True)


def install_fast_start() -> None:
    """Have whatever this process starts started so."""
    subprocess.Popen._execute_child = _start_process
