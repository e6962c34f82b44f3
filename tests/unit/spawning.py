"""gevent's subprocess.Popen, without a copy of this process.

gevent forks, and runs its own code in the copy until the program starts. In a process that has imported everything, and
holds all tests, the copy takes longer than most programs run, and each page that is written to afterwards once more.
Python's own Popen starts a program by vfork, in C: it does so here, and gevent waits for it as ever.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import gevent.subprocess
from gevent.monkey import get_original
from gevent.os import _watch_child

Own: Any = get_original("subprocess", "Popen")


class Popen(gevent.subprocess.Popen):  # type: ignore[misc] # has no types
    """As gevent's is, to who uses it."""

    _close_pipe_fds = Own._close_pipe_fds
    _handle_exitstatus = Own._handle_exitstatus

    def _execute_child(
        self,
        args: object,
        executable: object,
        preexec_fn: object,
        close_fds: bool,
        pass_fds: object,
        cwd: object,
        env: object,
        universal_newlines: object,
        *rest: Any,
    ) -> None:
        *others, process_group = rest
        if sys.version_info >= (3, 11):
            others.append(-1 if process_group is None else process_group)
        self._loop.install_sigchld()
        # gevent's closes once its loop has run, and the end of a pipe would be waited for that this process has itself
        later, os.close = os.close, get_original("os", "close")
        try:
            Own._execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *others)
        finally:
            os.close = later
        _watch_child(self.pid, self._on_child, self._loop, True)


def take_over() -> None:
    """Have whoever starts a program in this process start it so."""
    # what Python's own needs, which gevent takes away: called otherwise in Python 3.10
    for name in {"_fork_exec", "_posixsubprocess"} & set(vars(subprocess)):
        setattr(subprocess, name, get_original("subprocess", name))
    gevent.subprocess.Popen = subprocess.Popen = Popen  # type: ignore[misc]
