"""A cgroup for each process that a lab starts: only its own processes are in it, also after a crash."""

from __future__ import annotations

import math
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from lab.machine_requirements import cgroup_hierarchies

END_LIMIT = 60  # seconds processes may take to die of SIGKILL
# of version 2, for limits of units inside a host
CONTROLLERS = ("cpu", "io", "memory", "pids")


def join_cgroup(name: str) -> None:
    """Move this process into a cgroup of that name, in every hierarchy, with the controllers that the machine has."""
    for hierarchy in cgroup_hierarchies():
        own = hierarchy / name
        own.mkdir(parents=True, exist_ok=True)
        for above in reversed(own.relative_to(hierarchy).parents):
            _pass_controllers_on(hierarchy / above)
        (own / "cgroup.procs").write_text(str(os.getpid()))


def _pass_controllers_on(cgroup: Path) -> None:
    for controller in CONTROLLERS:
        # version 1 has none to pass on, this machine may lack one, and another owner of its cgroups may keep one
        with suppress(OSError):
            (cgroup / "cgroup.subtree_control").write_text(f"+{controller}")


def list_processes(name: str) -> set[int]:
    """Every process in the cgroup or below it."""
    pids: set[int] = set()
    for cgroup in _existing_cgroups(name):
        # a cgroup may go while we look
        for folder, _, _ in os.walk(cgroup):
            with suppress(OSError):
                pids.update(int(line) for line in Path(folder, "cgroup.procs").read_text().split())
    return pids - {0, os.getpid()}


def cpu_seconds(name: str) -> float:
    """Seconds of processors that all processes in or below the cgroup have taken; nan if unknown."""
    for cgroup in _existing_cgroups(name):
        # of the second version alone, which counts without a controller
        with suppress(OSError):
            first, _, _ = (cgroup / "cpu.stat").read_text().partition("\n")
            return int(first.removeprefix("usage_usec ")) / 1e6
    return math.nan


def kill_cgroup(name: str) -> None:
    """End every process in the cgroup at once, as a power cut would, and remove it.

    Raises:
        TimeoutError: a process does not end.
    """
    deadline = time.monotonic() + END_LIMIT
    while pids := list_processes(name):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name}: processes {sorted(pids)} do not end")
        time.sleep(0.01)
    for cgroup in _existing_cgroups(name):
        for folder, _, _ in os.walk(cgroup, topdown=False):
            with suppress(OSError):
                Path(folder).rmdir()


def _existing_cgroups(name: str) -> list[Path]:
    return [hierarchy / name for hierarchy in cgroup_hierarchies() if (hierarchy / name).is_dir()]
