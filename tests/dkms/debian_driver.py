"""Debian's own driver, which DKMS really compiles, and the kernels that it does and does not compile for."""

import base64
import dataclasses
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.hosts import LabHost
from rigwright.model.nvidia_tables import SHIPPED
from tests.stand_ins.nvidia import kernel_packages
from tests.stand_ins.nvidia.debian_packages import StandInDeb


@dataclass(frozen=True)
class DkmsRelease:
    """A package of Debian's archive, and the kernel of its build."""

    codename: str
    package: str
    module: str
    """Its name to DKMS."""
    older: tuple[str, str]
    """A kernel for which it compiles: release and version of its packages."""
    newer: tuple[str, str]
    newer_compiles: bool


RELEASES = {
    "debian-12": DkmsRelease(
        codename="bookworm",
        package="nvidia-kernel-dkms",
        module="nvidia-current",
        older=("6.1.0-47-amd64", "6.1.170-3"),
        newer=("6.1.0-50-amd64", "6.1.176-1"),
        newer_compiles=True,
    ),
    # 550.163 calls pci_resize_resource() with fewer arguments than 6.12.107 has for it. Since 2026-11 the archive has
    # no older kernel, so that this driver compiles for none of its kernels.
    "debian-13": DkmsRelease(
        codename="trixie",
        package="nvidia-open-kernel-dkms",
        module="nvidia-current-open",
        older=("6.12.94+deb13-amd64", "6.12.94-1"),
        newer=("6.12.107+deb13-amd64", "6.12.107-1"),
        newer_compiles=False,
    ),
}
APT = "DEBIAN_FRONTEND=noninteractive apt-get -q --yes --no-install-recommends"
# With them an archive of Debian has its drivers, which are older than any that will do: the tables of the tests say
# that they would.
COMPONENTS = "main contrib non-free non-free-firmware"


def prepare_host(host: LabHost) -> None:
    """Have a host boot the older kernel as the archive names it, and the archive whole."""
    about = RELEASES[host.spec.release]
    # headers of Debian 13 ask for the image of their version, and the true one is 108 MB
    put_image(host, *about.older)
    host.run("dpkg --install --force-downgrade /root/linux-image-*.deb && rm /root/linux-image-*.deb")
    host.run(f"sed -i 's/ main$/ {COMPONENTS}/' /etc/apt/sources.list && {APT} update")
    headers = [f"linux-headers-{kernel}" for kernel, _ in (about.older, about.newer)]
    gone = [name for name in headers if not host.run(f"apt-cache show {name} 2>/dev/null", check=False).strip()]
    if gone:
        pytest.skip(f"Debian's archive has dropped {' and '.join(gone)}: tests/dkms/debian_driver.py needs others")


def kernels_of(release: str) -> tuple[str, ...]:
    """The kernels of a host's specification: the older one."""
    return (RELEASES[release].older[0],)


def driver_tables(release: str) -> str:
    """Tables of drivers by which Debian's own will do."""
    branch = {"debian-12": 535, "debian-13": 550}[release]
    text = SHIPPED.read_text().replace("minimum = 580", "minimum = 500").replace("[580, 595]", f"[{branch}]")
    offer = f'''
[[offers]]
systems = ["{release}"]
source = "distribution"
branches = [{branch}]
layout = "debian-own"
'''
    layout = f'''
[layouts.debian-own]
prebuilt = false
prerequisites = ["linux-headers-{RELEASES[release].older[0]}"]
packages = ["{RELEASES[release].package}", "libcuda1"]
'''
    return text.replace("# Of one system the first row", f"{layout}\n# Of one system the first row") + offer


def put_image(host: LabHost, release: str, version: str) -> None:
    """Put the stand-in for a kernel's image, and the metapackage that brings it, into root's folder there."""
    flavour = "amd64"
    meta = StandInDeb(f"linux-image-{flavour}", version, "linux-signed", (f"linux-image-{release} (= {version})",))
    with tempfile.TemporaryDirectory() as folder:
        for deb in (dataclasses.replace(kernel_packages.image_package(release), version=version), meta):
            file = deb.build_package(Path(folder))
            content = base64.b64encode(file.read_bytes()).decode()
            host.run(f"echo {content} | base64 -d > /root/{file.name}")


def install_newer(host: LabHost) -> str:
    """Install the newer kernel with its headers as an upgrade does, in one transaction; returns what apt said."""
    release, version = RELEASES[host.spec.release].newer
    put_image(host, release, version)
    host.run(f"{APT} update")
    return host.run(
        f"{APT} install /root/linux-image-*.deb linux-headers-{release} 2>&1; echo apt-get exited with $?", check=False
    )
