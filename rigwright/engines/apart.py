"""How a host runs what came from outside before it serves: as nobody, who exists for as long as that and owns nothing.

Sources, their build scripts and the binaries made of them are somebody else's programs. What systemd 252 (Debian 12)
and 257 (Debian 13) make of these properties was tried on both; `RestrictAddressFamilies=none` neither takes for a
transient unit, so that sockets are kept from what needs none by the system call.
"""

from __future__ import annotations

from rigwright.declaration.entry import Roots

WORK = "/tmp/work"  # noqa: S108 - in a /tmp of its own
"""Where such a program sees the only folder that it may write to."""
SCRIPT = "/tmp/script"  # noqa: S108
"""Where it sees the script that it runs."""
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
    "SystemCallFilter=@system-service",
    "SystemCallErrorNumber=EPERM",
    "LimitCORE=0",
    "UMask=0022",
)
# io_uring opens sockets without that call
OFFLINE = (
    "PrivateNetwork=yes",
    "RestrictAddressFamilies=AF_UNIX",
    "SystemCallFilter=~socket io_uring_setup io_uring_enter io_uring_register",
)


def options(roots: Roots) -> tuple[str, ...]:
    """The options of systemd-run for a program that came from outside.

    Args:
        roots: Where things lie on its host: weights and records are nothing that it sees.
    """
    hidden = f"InaccessiblePaths=-{roots.models} -{roots.state}"
    properties = (*PROPERTIES, hidden, *OFFLINE)
    environment = ("--setenv=HOME=/tmp", "--setenv=LC_ALL=C.UTF-8")
    waiting = ("--quiet", "--wait", "--collect", "--pipe", "--service-type=exec", "--nice=5")
    return (*waiting, *(f"--property={one}" for one in properties), *environment)


def command(roots: Roots, words: tuple[str, ...], folder: str = "") -> tuple[str, ...]:
    """A command that runs a program without the network.

    Args:
        roots: Where things lie on its host.
        words: The program and its arguments.
        folder: What it may write to, seen as WORK; nothing without one.
    """
    seen = (f"--property=BindPaths={folder}:{WORK}", f"--property=WorkingDirectory={WORK}") if folder else ()
    return ("systemd-run", *options(roots), *seen, "--", *words)
