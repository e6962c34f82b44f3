"""The use of this machine by a throwaway host while something is done to it: disk and memory, at their highest."""

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from lab import cgroups
from lab.hosts import LabHost

EVERY = 0.5
"""Seconds between two looks."""


@dataclass
class ResourcePeak:
    """The highest that was seen."""

    disk_bytes: int = 0
    """More than at the beginning, on the disk that the host's files lie on. Other writers there are counted, too."""
    memory_bytes: int = 0
    """Of its processes' own (RssAnon and RssShmem, proc_pid_status(5)); not what the kernel keeps of files."""


@contextmanager
def measure_peak(host: LabHost) -> Iterator[ResourcePeak]:
    """Look while the block runs."""
    found, ended = ResourcePeak(), threading.Event()
    before = shutil.disk_usage(host.folder).used

    def look() -> None:
        while not ended.wait(EVERY):
            found.disk_bytes = max(found.disk_bytes, shutil.disk_usage(host.folder).used - before)
            found.memory_bytes = max(
                found.memory_bytes, sum(map(_private_bytes, cgroups.list_processes(host.namespace)))
            )

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield found
    finally:
        ended.set()
        looking.join()


def _private_bytes(process: int) -> int:
    """Bytes that a process has for itself; 0 once it has ended."""
    if process == os.getpid():
        return 0
    with suppress(OSError):
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        return 1024 * sum(int(fields.get(name, "0 kB").split()[0]) for name in ("RssAnon", "RssShmem"))
    return 0
