"""A layer for hosts with kernels of their own: the tools and packages of such a host, and the stand-ins for a boot."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lab import base_images, machine_requirements, network
from lab.hosts import HostSpec
from lab.machine_requirements import CACHE, UnsupportedMachine
from rigwright.file_lock import file_lock
from tests.stand_ins.nvidia.card_models import render_card_files
from tests.stand_ins.nvidia.debian_packages import StandInDeb
from tests.stand_ins.nvidia.kernel_packages import kernel_packages

INSIDE = Path(__file__).resolve().parent / "inside"
# Where each stand-in lies in a host. /usr/local is first on the PATH of users and services, but apt leaves it out of
# that of packages' scripts: uname, which those ask too, stands in the real one's place, as a package has it there.
PLACES = {
    "kernel": "usr/local/lib/lab/kernel",
    "modprobe": "usr/local/sbin/modprobe",
    "initramfs-hook": "etc/initramfs-tools/hooks/lab",
    "initramfs.conf": "etc/initramfs-tools/conf.d/lab",
    "lab-kernel.service": "etc/systemd/system/lab-kernel.service",
}
WANTS_LINK = "etc/systemd/system/sysinit.target.wants/lab-kernel.service"
# The files that a server that boots by itself has, and a container lacks
PACKAGES = ("kmod", "initramfs-tools")
METAPACKAGE = "amd64"  # behind linux-image-: the same in every release of Debian
INSTALL = """\
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install --yes --no-install-recommends {packages}
dpkg --install /debs/*.deb
apt-get clean
rm -rf /debs /var/lib/apt/lists/*
"""

UNAME = StandInDeb(
    "lab-uname",
    "1",
    "lab-uname",
    files={"usr/bin/uname": (INSIDE / "uname").read_text()},
    scripts={
        "preinst": "uname=$(dpkg -L coreutils | grep '/bin/uname$')\n"
        'dpkg-divert --package lab-uname --rename --divert /usr/local/lib/lab/uname.real --add "$uname"\n'
    },
)
"""The stand-in for uname."""


def prepare_kernel_host(
    name: str,
    release: str,
    kernels: Sequence[str],
    cards: tuple[str, ...],
    layers: tuple[str, ...] = (),
    disks: tuple[str, ...] = (),
    image_version: str = "",
) -> HostSpec:
    """Describe a host that boots one of these kernels, with its modules, and has cards; the layer is built if missing.

    Args:
        name: The host's.
        release: Of Debian, such as debian-12.
        kernels: Releases of installed kernels, the oldest first.
        cards: `vendor:device` of each card.
        layers: As HostSpec has them; they lie over that of the kernels.
        disks: As HostSpec has them.
        image_version: As of `kernel_packages`.

    Raises:
        UnsupportedMachine: this machine cannot run a lab, or a package cannot be installed.
    """
    machine_requirements.require_lab()
    layer = build_layer(release, kernels, image_version)
    return HostSpec(name, release, (*layers, layer), cards, files=render_card_files(name, cards), disks=disks)


def build_layer(release: str, releases: Sequence[str], image_version: str = "") -> str:
    """Return a layer with these kernels installed, building it first where it is missing (about ten seconds).

    Args:
        release: Of Debian, such as debian-12.
        releases: Of the kernels, the oldest first, such as 6.1.0-40-amd64; the metapackage brings the last one.
        image_version: As of `kernel_packages`.

    Raises:
        UnsupportedMachine: a package cannot be installed; the text names the log.
    """
    base = base_images.build_base(base_images.RELEASES[release])
    kernels = kernel_packages(releases, METAPACKAGE, image_version)
    debs = [UNAME, *(deb for deb in kernels if deb.name.startswith("linux-image-"))]
    inputs = [base.name, *PACKAGES, INSTALL, *map(repr, debs), *map(repr, PLACES.items())]
    inputs += [(INSIDE / name).read_text() for name in PLACES]
    made = CACHE / f"{release}-kernels-{hashlib.sha256(chr(0).join(inputs).encode()).hexdigest()[:12]}"
    with file_lock(made.with_suffix(".lock"), f"installing kernels of {release}"):
        if not made.exists():
            _make_layer(made, base, debs)
    return str(made)


def _make_layer(made: Path, base: Path, debs: Sequence[StandInDeb]) -> None:
    print(f"installing kernels in {made}", file=sys.stderr, flush=True)
    new = made.with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)
    upper, root = new / "upper", new / "root"
    for folder in (upper / "debs", new / "work", root):
        folder.mkdir(parents=True)
    _put_stand_ins(upper)
    for deb in debs:
        deb.build_package(upper / "debs")
    options = f"lowerdir={base},upperdir={upper},workdir={new / 'work'}"
    network.run_program("mount", "-t", "overlay", "lab-kernels", "-o", options, str(root))
    try:
        _install_packages(root, made.with_suffix(".log"))
    finally:
        network.run_program("umount", str(root))
    for path in ("etc/resolv.conf", "etc/machine-id"):
        (upper / path).unlink(missing_ok=True)
    upper.rename(made)
    shutil.rmtree(new)


def _put_stand_ins(upper: Path) -> None:
    for name, place in PLACES.items():
        target = upper / place
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(INSIDE / name, target)
        target.chmod(0o644 if name.endswith((".service", ".conf")) else 0o755)
    wanted = upper / WANTS_LINK
    wanted.parent.mkdir(parents=True)
    wanted.symlink_to(f"/{PLACES['lab-kernel.service']}")


def _install_packages(root: Path, log: Path) -> None:
    """Install in a tree that has not booted, as debootstrap does, with this machine's own way to the archive."""
    nameservers = "".join(f"nameserver {address}\n" for address in network.forwarded_nameservers())
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    (root / "etc/resolv.conf").write_text(nameservers)
    script = INSTALL.format(packages=" ".join(PACKAGES))
    command = ["unshare", "--mount", "--pid", "--fork", f"--mount-proc={root / 'proc'}"]
    command += ["chroot", str(root), "/bin/sh", "-c", script]
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
    with open(log, "w") as output:
        kept = {name: value for name, value in os.environ.items() if name.endswith("_proxy")}
        done = subprocess.run(command, env=environment | kept, stdout=output, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        last = " ".join(log.read_text().splitlines()[-1:])
        raise UnsupportedMachine(f"kernels could not be installed ({last}); the whole log is {log}")
