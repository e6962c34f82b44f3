"""A host on which Debian's own driver was really compiled: kept, because that takes minutes."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lab.hosts import Host, HostSpec
from lab.labs import Lab
from lab.machine import CACHE
from lab.nvidia import kernels
from lab.nvidia.deb import Deb


@dataclass(frozen=True)
class Compiled:
    """What of Debian's archive is compiled for which kernel. The archive drops old ones within weeks."""

    codename: str
    package: str
    module: str
    """Its name to DKMS."""
    older: tuple[str, str]
    """A kernel for which it compiles: release and version of its packages."""
    newer: tuple[str, str]
    newer_compiles: bool


RELEASES = {
    "debian-12": Compiled(
        codename="bookworm",
        package="nvidia-kernel-dkms",
        module="nvidia-current",
        older=("6.1.0-47-amd64", "6.1.170-3"),
        newer=("6.1.0-50-amd64", "6.1.176-1"),
        newer_compiles=True,
    ),
    # 550.163 calls pci_resize_resource() with fewer arguments than 6.12.107 has for it
    "debian-13": Compiled(
        codename="trixie",
        package="nvidia-open-kernel-dkms",
        module="nvidia-current-open",
        older=("6.12.94+deb13-amd64", "6.12.94-1"),
        newer=("6.12.107+deb13-amd64", "6.12.107-1"),
        newer_compiles=False,
    ),
}
NOUVEAU = "blacklist nouveau"
APT = "DEBIAN_FRONTEND=noninteractive apt-get -q --yes --no-install-recommends"


def layer(lab: Lab, release: str) -> str:
    """Return a layer with the driver compiled for the older kernel, which alone is there.

    The first time takes two to five minutes.

    A host on it: `HostSpec(name, release, (layer,), cards, kernels=kernels_of(release))`.

    Raises:
        RuntimeError: the archive has those versions no more, or it does not compile.
    """
    about = RELEASES[release]
    inputs = hashlib.sha256(f"{about} {NOUVEAU}".encode()).hexdigest()[:12]
    made = CACHE / f"{release}-real-dkms-{inputs}"
    if not made.exists():
        (host,) = lab.up([HostSpec("dkms", release, cards=("10de:2204",), kernels=kernels_of(release))])
        try:
            compile_driver(host)
        except BaseException:
            host.destroy()
            raise
        host.run("rm -rf /var/log/journal/* /var/lib/apt/lists/*; apt-get clean")
        host.freeze(made)
    return str(made)


def kernels_of(release: str) -> tuple[str, ...]:
    """What a host's specification names: the older kernel."""
    return (RELEASES[release].older[0],)


def compile_driver(host: Host) -> None:
    """Install what compiles the driver, as an operator would."""
    about = RELEASES[host.spec.release]
    # of the archive's own version, which headers of Debian 13 ask for: the true image is 108 MB
    put_image(host, *about.older)
    host.run("dpkg --install --force-downgrade /root/linux-image-*.deb && rm /root/linux-image-*.deb")
    source = f"deb ARCHIVE {about.codename} main contrib non-free non-free-firmware"
    host.run(f"echo '{source}' > /etc/apt/sources.list; {APT} update")
    host.run(f"{APT} install dkms linux-headers-{about.older[0]}")
    host.run(f"{APT} install {about.package}")
    host.run(f"echo {NOUVEAU} > /etc/modprobe.d/nouveau.conf; update-initramfs -u -k all")


def put_image(host: Host, release: str, version: str) -> None:
    """Put the stand-in for a kernel's image, and the metapackage that brings it, into root's folder there."""
    flavour = "amd64"
    meta = Deb(f"linux-image-{flavour}", version, "linux-signed", (f"linux-image-{release} (= {version})",))
    with tempfile.TemporaryDirectory() as folder:
        for deb in (dataclasses.replace(kernels.image(release), version=version), meta):
            file = deb.build(Path(folder))
            content = base64.b64encode(file.read_bytes()).decode()
            host.run(f"echo {content} | base64 -d > /root/{file.name}")


def install_newer(host: Host) -> str:
    """Install the newer kernel with its headers as an upgrade does, in one transaction; returns what apt said."""
    release, version = RELEASES[host.spec.release].newer
    put_image(host, release, version)
    host.run(f"{APT} update")
    return host.run(
        f"{APT} install /root/linux-image-*.deb linux-headers-{release} 2>&1; echo apt-get exited with $?", check=False
    )
