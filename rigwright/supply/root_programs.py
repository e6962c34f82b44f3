"""Every program that root starts on a host, and the origin of its bytes.

`docs/design/security.md` has its table from here, a unit test finds each program that scripts, units and roles start,
and `is_run_as_root` decides from it which groups of a lock an inventory may not replace unless it says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from rigwright.supply.artefact import Artefact

Origin = Literal["distribution", "archive", "lock", "rigwright", "build", "operator"]
WHERE: dict[Origin, str] = {
    "distribution": "the distribution's signed archive",
    "archive": "a vendor's archive, signed by the locked key",
    "lock": "Rigwright's own lock, by SHA-256",
    "rigwright": "Rigwright's own files",
    "build": "compiled on the host from a locked source",
    "operator": "the operator",
}
"""Origin -> its description in the documentation."""

TOOLS = "tools"
CUDA = "cuda"
# The hub's own client, for hosts that fetch from it.
HUB_CLIENT = "hub-client"
# The exporter of card metrics.
GPU_EXPORTER = "gpu-exporter"
# Builders of environments: uv and py-rattler.
INSTALLERS = "installers"


@dataclass(frozen=True)
class RootPrograms:
    """Programs of one source."""

    names: tuple[str, ...]
    """As scripts and units write them: a name that PATH finds, or the end of a path, such as `bin/nvcc`."""
    origin: Origin
    source: str
    """Package, group of the lock, or folder."""
    note: str = ""
    """How root uses them, if that is limited."""


DISTRIBUTION = {
    "apt": "apt-cache apt-get apt-mark",
    "cmake": "cmake",
    "coreutils": "base64 basename cat chgrp chmod chown cp cut date df dirname du env head id install ln ls mkdir "
    "mktemp mv nproc od readlink rm rmdir sha256sum sleep sort stat sync tail tee timeout touch tr uname wc",
    "curl": "curl",
    "dash": "sh",
    "diffutils": "cmp",
    "dkms": "dkms",
    "dpkg": "dpkg dpkg-query",
    "findutils": "find xargs",
    "gcc, g++": "gcc g++",
    "grep": "grep",
    "initramfs-tools-core": "unmkinitramfs update-initramfs",
    "iproute2": "ip ss",
    "keepalived": "keepalived",
    "kmod": "modinfo modprobe",
    "libc-bin": "getconf getent",
    "mawk": "awk",
    "mokutil": "mokutil",
    "nginx": "nginx",
    "ninja-build": "ninja",
    "openssh-client": "ssh-keygen",
    "passwd": "useradd userdel usermod",
    "procps": "kill sysctl",
    "python3, python3-venv": "python3",
    "sed": "sed",
    "podman": "conmon crun podman skopeo",
    "systemd": "journalctl systemctl systemd-run systemd-socket-proxyd",
    "tar": "tar",
    "tpm2-tools": "tpm2_createprimary tpm2_flushcontext tpm2_pcrread tpm2_quote",
    "util-linux": "flock mount mountpoint nsenter prlimit setpriv umount unshare",
}
"""Package -> its programs that root starts."""

PROGRAMS: tuple[RootPrograms, ...] = (
    *(RootPrograms(tuple(names.split()), "distribution", package) for package, names in DISTRIBUTION.items()),
    RootPrograms(
        ("nvidia-smi", "nvidia-modprobe"), "archive", "the NVIDIA driver", "or from the operator's own driver"
    ),
    RootPrograms(("nvidia-ctk",), "archive", "the container toolkit"),
    RootPrograms(("docker", "dockerd"), "archive", "Docker", "or the distribution's own"),
    RootPrograms(
        (
            "job scripts",
            "rigwright_weights",
            "rigwright_envs",
            "rigwright_self_check",
            "rigwright_rotation",
            "rigwright_pull",
            "rigwright_residency",
            "the survey of checks",
        ),
        "rigwright",
        "templates/ and roles/",
        "by the distribution's sh and python3; a deploy sends them",
    ),
    RootPrograms(
        ("bin/llama-server",), "build", "llama.cpp", "not as root: a test as `nobody`, then the instance's user"
    ),
    RootPrograms(
        ("bin/llama-server",),
        "rigwright",
        "rigwright/engines/llama_cpp_wheel",
        "not as root: a test of its wheel as `nobody`, then the instance's user",
    ),
    RootPrograms(("bin/pip",), "lock", TOOLS, "the distribution's pip, with the group's modules next to it"),
    RootPrograms(("bin/python",), "lock", HUB_CLIENT, "only at installation; the client runs as its own user"),
    RootPrograms(
        ("bin/python", "bin/uv"), "lock", INSTALLERS, "queries the host's package index; otherwise runs as `nobody`"
    ),
    RootPrograms(("bin/python",), "lock", GPU_EXPORTER, "only `import pynvml`, after it is installed"),
    RootPrograms(("bin/nvcc",), "lock", CUDA, "only `--version`; compiles as `nobody`"),
    RootPrograms(("bin/cuobjdump",), "lock", CUDA, "read-only, for a check"),
    RootPrograms(("bin/nvcc", "bin/cuobjdump"), "operator", "`cuda_root`", "instead of the locked ones"),
)

LOCKED_GROUPS = frozenset(one.source for one in PROGRAMS if one.origin == "lock")
"""Groups of wheels whose programs root starts."""


def is_run_as_root(rows: Iterable[Artefact]) -> bool:
    """Whether root runs what a group of a lock consists of: it is in the list, or a package manager installs it.

    A package's own scripts run as root, and the owner of an archive's key chooses what apt installs from it.

    Args:
        rows: The group's.
    """
    return any(row.group in LOCKED_GROUPS or row.kind in ("deb", "key") for row in rows)
