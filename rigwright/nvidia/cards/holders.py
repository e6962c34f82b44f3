"""Who holds a card while the host is to be rebooted."""

from __future__ import annotations

from collections.abc import Iterable

# The driver's own daemon, and what we start ourselves: both end by themselves, and come back
PERSISTENCE = "nvidia-persistenced"
# What the kernel keeps of a process's name (proc_pid_comm(5))
KEPT = 15
SLICE = "/rigwright.slice/"


def strangers(lines: Iterable[str]) -> list[str]:
    """Processes of somebody else's, each with its pid, name and card, from templates/nvidia_driver/holders.sh.j2."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for line in lines:
        pid, name, cgroup, device = line.split("\t")
        if name.strip()[:KEPT] != PERSISTENCE[:KEPT] and not cgroup.startswith(SLICE):
            found.setdefault((pid, name.strip(), cgroup), []).append(device)
    return [
        f"pid {pid} ({name}{f', in {cgroup}' if cgroup not in ('', '/') else ''}) holds {', '.join(devices)}"
        for (pid, name, cgroup), devices in sorted(found.items())
    ]
