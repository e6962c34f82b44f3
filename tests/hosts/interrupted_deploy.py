"""deploy.py, cut off at the operation named by KILL_AT: KILL_AFTER seconds into it, or at its beginning.

The controller ends, without a word, as with a closed laptop; or, with KILL_HOST, that host of a lab, as with a cut
cable of the box itself.
"""

import os
import runpy
import signal

import gevent
from pyinfra import state
from pyinfra.api.state import BaseStateCallback, State

from lab import cgroups
from rigwright.project_root import ROOT


def kill_target() -> None:
    """End what is to be ended."""
    if namespace := os.environ.get("KILL_HOST"):
        cgroups.kill_cgroup(namespace)
    # the run has no controller any more, and waiting for that would only take time
    os.kill(os.getpid(), signal.SIGKILL)


class OperationKiller(BaseStateCallback):
    """Acts when the operation begins."""

    @staticmethod
    def operation_start(state: State, op_hash: str) -> None:
        if os.environ["KILL_AT"] not in state.get_op_meta(op_hash).names:
            return
        if after := float(os.environ.get("KILL_AFTER", "0")):
            gevent.spawn_later(after, kill_target)
        else:
            kill_target()


state.add_callback_handler(OperationKiller())
runpy.run_path(str(ROOT / "deploy.py"))
