"""Stand-ins for Ubuntu: a Debian tree that calls itself Ubuntu and boots kernels named as Ubuntu's are.

There is no archive of Ubuntu's here. Its kernels and drivers come from a stand-in (nvidia/served_archives.py);
everything else, dkms and kmod among it, is Debian's own and comes from Debian's archive, which calls itself Debian. So
what is seen on it says something of apt, dpkg, DKMS and systemd, and of Ubuntu's names
and layouts; it says nothing of Ubuntu's own builds of those programs.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from lab.hosts import LabHost
from rigwright.host.supported_systems import CODENAMES, KEYRING
from tests.stand_ins.nvidia.debian_packages import StandInDeb
from tests.stand_ins.nvidia.kernel_packages import kernel_packages
from tests.stand_ins.nvidia.served_archives import ServedArchives

# apt tells by the name that a key is armoured
ARMOURED = KEYRING.format("ubuntu").replace(".gpg", ".asc")
TRUSTED = "/etc/apt/trusted.gpg.d/ubuntu-archive.asc"
LIST = "/etc/apt/sources.list.d/lab-ubuntu.list"
SOURCES = "/etc/apt/sources.list.d/ubuntu.sources"
OS_RELEASE = """\
PRETTY_NAME="Ubuntu {version} LTS (a stand-in: this is Debian)"
NAME="Ubuntu"
VERSION_ID="{version}"
VERSION_CODENAME={codename}
ID=ubuntu
ID_LIKE=debian
UBUNTU_CODENAME={codename}
"""
# The kernels that the tree had go last: until then a host has one that it can boot.
RECAST = """\
set -e
export DEBIAN_FRONTEND=noninteractive
cd "$(mktemp -d)"
for file in {files}; do curl -fsSO {url}/$file; done
dpkg --install ./*.deb
dpkg-query -W -f '${{Package}}\\n' 'linux-image-*' | grep -e '-amd64$' -e '^linux-image-amd64$' | xargs dpkg --purge
printf %s {os_release} > /usr/lib/os-release
rm -r "$PWD"
"""


@dataclass(frozen=True)
class StandInUbuntuRelease:
    """A release of Ubuntu's, and what stands in for it."""

    tree: str
    """The release of Debian whose apt is nearest: 22.04 has 2.4, 24.04 has 2.8, 26.04 has 3; Debian has 2.6 and 3.0."""
    kernels: tuple[str, ...]
    """The oldest first."""
    flavour: str
    """Behind linux-image- in the metapackage's name."""


RELEASES = {
    "ubuntu-22.04": StandInUbuntuRelease("debian-12", ("6.8.0-40-generic",), "generic-hwe-22.04"),
    "ubuntu-24.04": StandInUbuntuRelease("debian-12", ("6.8.0-40-generic",), "generic"),
    "ubuntu-26.04": StandInUbuntuRelease("debian-13", ("7.0.0-34-generic",), "generic"),
}


def kernel_images(system: str) -> list[StandInDeb]:
    """The kernels that such a host has when it is new."""
    release = RELEASES[system]
    kinds = ("linux-image-", "linux-modules-extra-")
    return [deb for deb in kernel_packages(release.kernels, release.flavour) if deb.name.startswith(kinds)]


def convert_host(host: LabHost, system: str, shelf: Path, url: str) -> None:
    """Make a host that runs Debian a stand-in for a release of Ubuntu; it is one from its next boot on.

    Args:
        host: Of that release's tree, with kernels.
        system: Such as ubuntu-24.04.
        shelf: A folder that is served.
        url: Where it is.

    Raises:
        RuntimeError: a step fails there; its words are the text.
    """
    folder = shelf / "recast"
    folder.mkdir(exist_ok=True)
    files = [deb.build_package(folder).name for deb in kernel_images(system)]
    text = OS_RELEASE.format(version=system.partition("-")[2], codename=CODENAMES[system])
    host.run(RECAST.format(files=" ".join(files), url=f"{url}/recast", os_release=shlex.quote(text)))


def write_sources(
    host: LabHost, system: str, archives: ServedArchives, components: str = "main restricted universe multiverse"
) -> None:
    """Name the stand-in for the distribution's archive as that release's installer does, beside what is there.

    Up to 22.04 that is a line, and a key that is trusted for all; later the key is named.
    """
    where = f"{archives.url}/distribution/{system}"
    if system == "ubuntu-22.04":
        _write_host_file(host, TRUSTED, archives.key.public)
        _write_host_file(host, LIST, f"deb {where} {CODENAMES[system]} {components}\n")
        return
    _write_host_file(host, ARMOURED, archives.key.public)
    suites = f"Suites: {CODENAMES[system]}\nComponents: {components}\nSigned-By: {ARMOURED}\n"
    _write_host_file(host, SOURCES, f"Types: deb\nURIs: {where}\n{suites}")


def _write_host_file(host: LabHost, path: str, text: str) -> None:
    host.run(f"printf %s {shlex.quote(text)} > {path}")
