"""The lab's needs of the machine it runs on, and how it gets them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path

from packaging.requirements import Requirement

from rigwright.project_root import IS_CLONE

CGROUP_MOUNT = Path("/sys/fs/cgroup")
CACHE = Path("/var/cache/rigwright/lab")
STATE = Path("/var/lib/rigwright-lab")

# program -> the package (same name in Debian and Ubuntu) that brings it
PROGRAMS = {
    "debootstrap": "debootstrap",
    "systemd-nspawn": "systemd-container",
    "nft": "nftables",
    "ip": "iproute2",
    "ssh": "openssh-client",
    "mount": "mount",
    "unshare": "util-linux",
}
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


class UnsupportedMachine(Exception):
    """This machine cannot run a lab; the message is one line for the operator."""


def missing_requirements() -> list[str]:
    """The missing parts on this machine of a lab that is not installed from here, one line each: root, Linux, cgroups,
    namespaces, overlayfs, Python packages.
    """
    if sys.platform != "linux":
        return [f"throwaway hosts need Linux (systemd-nspawn); this is {sys.platform}"]
    found = []
    try:
        require_packages()
    except UnsupportedMachine as error:
        found.append(str(error))
    if os.geteuid() != 0:
        found.append("throwaway hosts need root (mounts, namespaces, cgroups): run this with sudo")
    if not Path("/proc/self/ns/time").exists():
        found.append("this kernel has no time namespaces (CONFIG_TIME_NS), which a host's own uptime needs")
    if not _has_overlayfs():
        found.append("this kernel has no overlayfs, which throwaway hosts are made of")
    if not cgroup_hierarchies():
        found.append(f"no writable cgroup hierarchy under {CGROUP_MOUNT}: is this an unprivileged container?")
    return found


def require_lab() -> None:
    """Check this machine and install the programs it lacks.

    Raises:
        UnsupportedMachine: something is missing that is not installed from here; the text is one line.
    """
    if found := missing_requirements():
        raise UnsupportedMachine("; ".join(found))
    install_programs(PROGRAMS)


def require_packages() -> None:
    """Check that the Python packages are there which no other verb needs: the project's extra `lab`.

    Raises:
        UnsupportedMachine: some are not.
    """
    missing = [
        one.name
        for one in map(Requirement, requires("rigwright") or ())
        if _is_lab_requirement(one) and not _is_installed(one)
    ]
    if missing:
        fix = "`./rig lab` installs them" if IS_CLONE else "install this wheel as `rigwright-VERSION.whl[lab]`"
        raise UnsupportedMachine(f"missing {', '.join(missing)} (the extra `lab`): {fix}")


def _is_lab_requirement(package: Requirement) -> bool:
    asked = package.marker
    return asked is not None and asked.evaluate({"extra": "lab"}) and not asked.evaluate({"extra": ""})


def _is_installed(package: Requirement) -> bool:
    try:
        distribution(package.name)
    except PackageNotFoundError:
        return False
    return True


def cgroup_hierarchies() -> list[Path]:
    """The hierarchies in which a host needs a cgroup of its own: version 2, or version 1's `systemd` beside it."""
    candidates = (CGROUP_MOUNT, CGROUP_MOUNT / "unified", CGROUP_MOUNT / "systemd")
    return [path for path in candidates if os.access(path / "cgroup.procs", os.W_OK)]


def install_programs(programs: dict[str, str]) -> None:
    """Install the packages of the programs that are not on the PATH.

    Raises:
        UnsupportedMachine: there is no apt-get, or it fails.
    """
    missing = missing_packages(programs)
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise UnsupportedMachine(f"missing {', '.join(missing)}, and there is no apt-get here to install them with")
    print(f"installing {', '.join(missing)}", file=sys.stderr, flush=True)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    wanted = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", "install", "--no-install-recommends", "-y", *missing]
    for command in (["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", "update"], wanted):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            raise UnsupportedMachine(f"missing {', '.join(missing)}: `{' '.join(command)}` failed: {' '.join(reason)}")


def missing_packages(programs: dict[str, str]) -> list[str]:
    """The packages of the programs that are not on the PATH, sorted, and debootstrap's keys."""
    missing = sorted({package for program, package in programs.items() if not shutil.which(program)})
    if "debootstrap" in programs and not KEYRING.exists():
        missing.append("debian-archive-keyring")
    return missing


def _has_overlayfs() -> bool:
    if "\toverlay\n" in Path("/proc/filesystems").read_text():
        return True
    return subprocess.run(["modprobe", "overlay"], capture_output=True, check=False).returncode == 0
