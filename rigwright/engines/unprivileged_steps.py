"""How a host runs programs from outside before it serves: as a user `nobody` that exists for as long as that and owns
nothing.

Sources, their build scripts and the binaries made of them are untrusted programs. The effects of these properties were
tried on systemd 252 (Debian 12) and 257 (Debian 13); `RestrictAddressFamilies=none` neither takes for a transient unit,
so that the system call keeps sockets from steps that need none.
"""

from __future__ import annotations

from dataclasses import dataclass

from rigwright import system_calls
from rigwright.model.roots import Roots

WORK = "/tmp/work"  # noqa: S108 - in a /tmp of its own
"""Where such a program sees the only folder that it may write to."""
SCRIPT = "/tmp/script"  # noqa: S108
"""Where it sees the script that it runs."""


@dataclass(frozen=True)
class StepLimits:
    """The most that a step of a job may take of its host: an untrusted program may never end, nor stop writing."""

    seconds: int = 6 * 3600
    """Compiling llama.cpp for three CUDA architectures takes up to 90 minutes on slow hosts."""
    work_kib: int = 32 << 20
    """The size of its files. Measured: that build 3 GiB (llama_cpp/build.py), vLLM's environment 7.9 GB (envs/env.py).
    """
    free_kib: int = 512 << 10
    """The space that its file systems keep free: half of what preflight asks for in addition to a build
    (preflight.DISK_RESERVE)."""
    file_bytes: int = 8 << 30
    """One file. The largest of llama.cpp's is its library of CUDA code, whose own calls do not reach beyond 2 GiB."""
    log_bytes: int = 64 << 20
    """The size of its output. Measured: a CPU build of llama.cpp prints 19 KB."""
    memory: str = "80%"
    """Of the host's. Compilers are as many as fit into the memory that is available (llama_cpp/compile.sh.j2)."""
    tasks: int = 4096
    """Processes and threads. A compilation has eight for each processor: nvcc, a shell, and what they start."""

    @property
    def properties(self) -> tuple[str, ...]:
        """Those that systemd holds a unit to."""
        return (
            f"RuntimeMaxSec={self.seconds}",
            f"LimitFSIZE={self.file_bytes}",
            f"MemoryMax={self.memory}",
            f"TasksMax={self.tasks}",
            # its pages count as the unit's memory, but the folder would be the host's
            "TemporaryFileSystem=/dev/shm:mode=1777,size=10%",
        )


LIMITS = StepLimits()
PROPERTIES = (
    "DynamicUser=yes",
    "NoNewPrivileges=yes",
    "CapabilityBoundingSet=",
    "ProtectSystem=strict",
    # of that it leaves out, and everybody may write to /run/lock
    "ReadOnlyPaths=/run",
    "ProtectHome=yes",
    "PrivateTmp=yes",
    "PrivateDevices=yes",
    "PrivateUsers=yes",
    "PrivateMounts=yes",
    "PrivateIPC=yes",
    "ProtectClock=yes",
    "ProtectHostname=yes",
    "ProtectKernelTunables=yes",
    "ProtectKernelModules=yes",
    "ProtectKernelLogs=yes",
    "ProtectControlGroups=yes",
    "ProtectProc=invisible",
    "LockPersonality=yes",
    "RestrictNamespaces=yes",
    "RestrictRealtime=yes",
    "RestrictSUIDSGID=yes",
    "SystemCallArchitectures=native",
    *system_calls.filter_lines(base=system_calls.OF_JOBS),
    "LimitCORE=0",
    "UMask=0022",
)
OFFLINE = (
    "PrivateNetwork=yes",
    "RestrictAddressFamilies=AF_UNIX",
    "SystemCallFilter=~socket",
)


def systemd_run_options(roots: Roots) -> tuple[str, ...]:
    """The options of systemd-run for a program that came from outside.

    Args:
        roots: Where things lie on its host: weights and records are nothing that it sees.
    """
    hidden = f"InaccessiblePaths=-{roots.models} -{roots.state}"
    properties = (*PROPERTIES, *LIMITS.properties, hidden, *OFFLINE)
    environment = ("--setenv=HOME=/tmp", "--setenv=LC_ALL=C.UTF-8")
    waiting = ("--quiet", "--wait", "--pipe", "--service-type=exec", "--nice=5")
    return (*waiting, *(f"--property={one}" for one in properties), *environment)


def unprivileged_command(roots: Roots, words: tuple[str, ...], folder: str = "") -> tuple[str, ...]:
    """A command that runs a program without the network.

    Args:
        roots: Where things lie on its host.
        words: The program and its arguments.
        folder: The folder that it may write to, seen as WORK; none without one.
    """
    seen = (f"--property=BindPaths={folder}:{WORK}", f"--property=WorkingDirectory={WORK}") if folder else ()
    return ("systemd-run", "--collect", *systemd_run_options(roots), *seen, "--", *words)
