"""Narrow podman's own filter of system calls, from standard input to standard output: a container gets no namespaces of
its own, no mounts, and none of the system calls that the arguments name (rigwright/system_calls.py).

Root runs this on the host, by the distribution's Python. What podman ships lets each container make namespaces, in
which it has all privileges over parts of the kernel that nothing in a box needs. Docker's filter does not, nor does the
sandbox of other instances.
"""

from __future__ import annotations

import json
import sys
from typing import Any

# Of no use to what has no capabilities but to make namespaces and mounts (those of Docker's default that it has with
# CAP_SYS_ADMIN alone, or not at all).
NEVER = (
    *("bpf", "fanotify_init", "fsconfig", "fsmount", "fsopen", "fspick", "lookup_dcookie", "mount", "mount_setattr"),
    *("move_mount", "open_tree", "perf_event_open", "pivot_root", "quotactl", "quotactl_fd", "setdomainname"),
    *("sethostname", "setns", "syslog", "umount", "umount2", "unshare"),
)
# CLONE_NEWCGROUP, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET and _NEWNS (linux/sched.h); CLONE_NEWTIME is clone3's.
SPACES = 0x7E020000
EPERM, ENOSYS = 1, 38


def narrowed(profile: dict[str, Any], forbidden: list[str]) -> dict[str, Any]:
    """A profile, as the OCI runtime specification's users have it, without NEVER and without `forbidden`."""
    never = sorted({*NEVER, *forbidden})
    mine = {*never, "clone", "clone3"}
    rules = [{**rule, "names": [name for name in rule["names"] if name not in mine]} for rule in profile["syscalls"]]
    none_of = [{"index": 0, "value": SPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]
    own = [
        {"names": never, "action": "SCMP_ACT_ERRNO", "args": [], "errnoRet": EPERM, "errno": "EPERM"},
        {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": none_of},
        # what its pointer leads to cannot be judged: libraries try the other one then
        {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "args": [], "errnoRet": ENOSYS, "errno": "ENOSYS"},
    ]
    return {**profile, "syscalls": [*(rule for rule in rules if rule["names"]), *own]}


if __name__ == "__main__":
    json.dump(narrowed(json.load(sys.stdin), sys.argv[1:]), sys.stdout)
