"""The process that boots one throwaway host again and again until it gets a stop.

`python -m lab.host_supervisor HOST_FOLDER` reads host.json there, moves into a cgroup of its own and runs
systemd-nspawn. With --keep-unit, nspawn answers a reboot inside by exiting with 133 and expects to be run again.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from lab import cgroups

REBOOT = 133  # systemd-nspawn's exit status for a reboot of the payload under --keep-unit
CLONE_NEWTIME = 0x80  # unshare(2); os.unshare came with Python 3.12


def start_time_anew() -> None:
    """Have whatever this process forks from now on see an uptime that counts from zero.

    /proc/uptime is the outer kernel's, and what waits for a reboot looks for a shrunken uptime. unshare(1) is no help:
    from util-linux 2.39 on it takes no negative offset.

    Raises:
        OSError: the kernel refuses.
    """
    uptime = int(float(Path("/proc/uptime").read_text().split()[0]))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWTIME):
        error = ctypes.get_errno()
        raise OSError(error, f"no time namespace: {os.strerror(error)}")
    Path("/proc/self/timens_offsets").write_text(f"boottime -{uptime} 0\n")


def boot_command(folder: Path, host: dict[str, object]) -> list[str]:
    """The command line of one boot."""
    namespace = str(host["namespace"])
    return [
        *("systemd-nspawn", "--quiet", "--boot", "--directory", str(folder / "root"), "--machine", namespace),
        *("--register=no", "--keep-unit", "--resolv-conf=off", "--console=pipe", "--link-journal=no"),
        f"--network-namespace-path=/run/netns/{namespace}",
        "--capability=CAP_NET_ADMIN",  # dropped by --network-namespace-path
        "--system-call-filter=add_key keyctl bpf @memlock",  # container engines inside; mlock of model weights
        *(str(option) for option in host["boot_options"]),  # type: ignore[attr-defined]
    ]


def main() -> None:
    """Boot, and boot again after each reboot; ends with the exit status of the last boot."""
    folder = Path(sys.argv[1])
    host = json.loads((folder / "host.json").read_text())
    # --keep-unit puts the payload below the caller's cgroup: two hosts in one would share every unit's cgroup inside.
    # A cgroup that passes controllers on takes no process, so this process and each boot have one of their own.
    cgroups.join_cgroup(f"{host['namespace']}/supervisor")
    # only cgroup v2 inside, on any machine: a current distribution boots with it
    environment = os.environ | {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}
    for boot in itertools.count():
        start_time_anew()
        # With a function to run in the child, subprocess does not vfork: before Linux 6.3 a child that shares memory
        # cannot enter another time namespace.
        join_own = partial(cgroups.join_cgroup, f"{host['namespace']}/boot-{boot}")
        status = subprocess.call(boot_command(folder, host), env=environment, preexec_fn=join_own)
        print(f"{host['namespace']}: systemd-nspawn exited with {status}", flush=True)
        if status != REBOOT:
            sys.exit(status)


if __name__ == "__main__":
    main()
