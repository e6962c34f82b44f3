"""Who holds a card while the host is to be rebooted."""

from __future__ import annotations

from collections.abc import Iterable

from rigwright.host.channel import Schema, number, path, read, said
from rigwright.render import render

# The driver's own daemon, and what we start ourselves: both end by themselves, and come back
PERSISTENCE = "nvidia-persistenced"
# What the kernel keeps of a process's name (proc_pid_comm(5))
KEPT = 15
SLICE = "/rigwright.slice/"


TOLD: Schema = {"holder": (number, said, said, path)}


def script() -> str:
    """The script that asks a host; what it prints is for `strangers`."""
    return render("nvidia_driver/holders.sh.j2")


def strangers(output: Iterable[str]) -> list[str]:
    """Processes of somebody else's, each with its pid, name and card, from what the script has printed.

    Raises:
        ValueError: it is not what a host can tell.
    """
    found: dict[tuple[int, str, str], list[str]] = {}
    for pid, name, cgroup, device in read(output, TOLD).many("holder"):
        if name.strip()[:KEPT] != PERSISTENCE[:KEPT] and not cgroup.startswith(SLICE):
            found.setdefault((pid, name.strip(), cgroup), []).append(device)
    return [
        f"pid {pid} ({name}{f', in {cgroup}' if cgroup not in ('', '/') else ''}) holds {', '.join(devices)}"
        for (pid, name, cgroup), devices in sorted(found.items())
    ]
