"""File systems, and whether they answer: a process that looks at one without its server or disk waits for it."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import time
from collections.abc import Iterable

from checks.survey.host import mount_table

PATIENCE = 5.0  # seconds until a file system answers; a disk that sleeps takes as long
BEGINS = 20.0  # seconds until a process is under way that looks; on a host that is busy it takes some
GLANCE = 50  # milliseconds between two looks at how far it is
SILENT = 3  # of them that do not answer, after which no more are waited for
# File systems without a disk or server, or that look for one when they are looked at (autofs)
KERNELS_OWN = re.compile(
    r"autofs|binfmt_misc|bpf|cgroup2?|configfs|debugfs|dev(?:pts|tmpfs)|efivarfs|fusectl|hugetlbfs"
    r"|mqueue|nsfs|overlay|proc|pstore|rpc_pipefs|securityfs|selinuxfs|sysfs|tmpfs|tracefs|squashfs"
)


def silent(folders: Iterable[str], limit: float = 0.0) -> list[str]:
    """Folders whose file system does not answer: its server or disk is gone, and a process that looks there waits for
    it.

    Args:
        folders: Looked into in turn, by a process that the survey does not wait for.
        limit: Seconds for each; PATIENCE without. Once SILENT do not answer in time, all that are left count as silent.
    """
    left, found = [*folders], list[str]()
    while left:
        if len(found) == SILENT:
            return [*found, *left]
        left = left[_answered(left, limit or PATIENCE) :]
        found += left[:1]
        left = left[1:]
    return found


def _answered(folders: list[str], limit: float) -> int:
    """How many answer before one does not."""
    # in memory: the disk that a file lies on may be the one that is gone
    with open(os.memfd_create("answered"), "rb") as told:
        # a copy of this process: Python would begin for longer than all of it takes
        if not (pid := os.fork()):
            _probe_folders(folders, told.fileno())
        marks, since = 0, time.monotonic()
        with open(os.pidfd_open(pid), "rb") as ending:
            # select(2) takes none of a process that has opened over a thousand files
            ends = select.poll()
            ends.register(ending, select.POLLIN)
            while not ends.poll(GLANCE):
                if (now := os.fstat(told.fileno()).st_size) > marks:
                    marks, since = now, time.monotonic()
                if time.monotonic() - since > (limit if marks else BEGINS):
                    # a process that waits in the kernel does not even die, and is not waited for
                    os.kill(pid, signal.SIGKILL)
                    break
            else:
                os.waitpid(pid, 0)
        return max(0, os.fstat(told.fileno()).st_size - 1)


def _probe_folders(folders: list[str], told: int) -> None:
    """Look into folders, in a process of its own that ends with it: a mark once it is under way, and one for each."""
    try:
        os.dup2(told, 1)
        # a reader that waits for the end of this process's open files would wait as long as it does
        for one in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if one != "1":
                    os.close(int(one))
        os.write(1, b".")
        for folder in folders:
            with contextlib.suppress(OSError):
                look(folder)
            os.write(1, b".")
    finally:
        os._exit(0)


def look(folder: str) -> None:
    """Look into a folder."""
    with os.scandir(folder) as entries:
        any(entries)


def mounted() -> list[str]:
    """Where file systems are mounted that have a disk or a server."""
    # one of each: a bind mount elsewhere is the same
    there = {one.point: one for one in mount_table.list_mounts()}
    found = {one.device: one.point for one in reversed(there.values()) if not KERNELS_OWN.fullmatch(one.kind)}
    return list(found.values())


def mount_points() -> frozenset[str]:
    """Where anything is mounted."""
    return frozenset(one.point for one in mount_table.list_mounts())
