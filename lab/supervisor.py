"""The process that boots one throwaway host again and again until it is told to stop.

`python -m lab.supervisor HOST_FOLDER` reads host.json there, moves into a cgroup of its own and runs
systemd-nspawn. With --keep-unit, nspawn answers a reboot inside by exiting with 133 and expects to be run again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from lab import cgroups

REBOOT = 133  # systemd-nspawn's exit status for a reboot of the payload under --keep-unit


def boot_command(folder: Path, host: dict[str, object]) -> list[str]:
    """The command line of one boot.

    /proc/uptime is the outer kernel's, so each boot gets a time namespace that starts at zero: what waits for a
    reboot looks for a shrunken uptime.
    """
    namespace = str(host["namespace"])
    uptime = int(float(Path("/proc/uptime").read_text().split()[0]))
    return [
        *("unshare", "--time", "--fork", "--boottime", f"-{uptime}"),
        *("systemd-nspawn", "--quiet", "--boot", "--directory", str(folder / "root"), "--machine", namespace),
        *("--register=no", "--keep-unit", "--resolv-conf=off", "--console=pipe", "--link-journal=no"),
        f"--network-namespace-path=/run/netns/{namespace}",
        "--capability=CAP_NET_ADMIN",  # dropped by --network-namespace-path
        "--system-call-filter=add_key keyctl bpf @memlock",  # container engines inside; mlock of model weights
        *(str(option) for option in host["boot_options"]),  # type: ignore[attr-defined]
    ]


def main() -> None:
    """Boot, and boot again after each reboot."""
    folder = Path(sys.argv[1])
    host = json.loads((folder / "host.json").read_text())
    # --keep-unit puts the payload below the caller's cgroup: two hosts in one would share every unit's cgroup inside
    cgroups.enter(host["namespace"])
    # cgroup v2 alone inside, whatever this machine has: what a current distribution boots with
    environment = os.environ | {"SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}
    status = REBOOT
    while status == REBOOT:
        status = subprocess.run(boot_command(folder, host), env=environment, check=False).returncode
        print(f"{host['namespace']}: systemd-nspawn exited with {status}", flush=True)


if __name__ == "__main__":
    main()
