"""The packages of NVIDIA's container toolkit and of Docker's own archive, as stand-ins.

Names, versions' shapes, relations and units of the toolkit: github.com/NVIDIA/nvidia-container-toolkit
(packaging/debian/control, deployments/systemd) and libnvidia-container (pkg/deb). Docker's: docs.docker.com, "Install
Docker Engine on Debian", and github.com/docker/packaging; the running program is the distribution's Docker in their
packages.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.stand_ins.nvidia import apt_archive
from tests.stand_ins.nvidia.debian_packages import StandInDeb
from tests.stand_ins.nvidia.signing_keys import SigningKey

HERE = Path(__file__).resolve().parent
TOOLKIT, DOCKER = "toolkit", "docker"
"""Folders below which the archives lie as they do at their makers' places."""

SERVICE = """\
[Unit]
Description=Refresh NVIDIA CDI specification file
ConditionPathExists=|/usr/bin/nvidia-smi
ConditionPathExists=|/usr/sbin/nvidia-smi

[Service]
Type=oneshot
EnvironmentFile=-/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env
ExecCondition=/usr/bin/nvidia-smi -L
ExecStart=/usr/bin/nvidia-ctk cdi generate

[Install]
WantedBy=multi-user.target
"""
PATH = """\
[Unit]
Description=Trigger CDI refresh on NVIDIA driver install / uninstall events

[Path]
PathChanged=/lib/modules/%v/modules.dep
PathChanged=/lib/modules/%v/modules.dep.bin
PathChanged=/usr/bin/nvidia-ctk

[Install]
WantedBy=multi-user.target
"""
ENABLED = """\
if [ "$1" = configure ] && [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  systemctl enable --quiet nvidia-cdi-refresh.path nvidia-cdi-refresh.service
  systemctl start nvidia-cdi-refresh.path
  systemctl start --no-block nvidia-cdi-refresh.service || true
fi
"""
STOPPED = """\
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
  systemctl --quiet disable --now nvidia-cdi-refresh.path nvidia-cdi-refresh.service || true
fi
"""
RUNTIME = HERE / "nvidia-container-runtime"


def toolkit_packages(version: str, revision: str = "1") -> list[StandInDeb]:
    """The four packages of one version, such as 1.20.0."""
    deb, bound = f"{version}-{revision}", "2.0.0"

    def one(name: str, *depends: str, source: str = "nvidia-container-toolkit", **more: Any) -> StandInDeb:
        return StandInDeb(name, deb, source, depends, section="utils", description=f"stand-in, {version}", **more)

    older = ("nvidia-container-runtime (<= 3.5.0-1)", "nvidia-container-runtime-hook")
    return [
        one("libnvidia-container1", source="libnvidia-container"),
        one("libnvidia-container-tools", f"libnvidia-container1 (>= {deb})", source="libnvidia-container"),
        one(
            "nvidia-container-toolkit",
            f"nvidia-container-toolkit-base (= {deb})",
            f"libnvidia-container-tools (>= {deb})",
            f"libnvidia-container-tools (<< {bound})",
            breaks=older,
            replaces=older,
            files={"usr/bin/nvidia-container-runtime-hook": RUNTIME.read_text()},
        ),
        one(
            "nvidia-container-toolkit-base",
            breaks=("nvidia-container-runtime (<= 3.5.0-1)", "nvidia-container-toolkit (<= 1.10.0~rc.1-1)"),
            replaces=("nvidia-container-runtime (<= 3.5.0-1)", "nvidia-container-toolkit (<= 1.10.0~rc.1-1)"),
            files={
                "usr/bin/nvidia-ctk": (HERE / "nvidia-ctk").read_text().replace("@VERSION@", version),
                "usr/bin/nvidia-cdi-hook": "#!/bin/sh\n# Stand-in: a container's linker is left as it is.\nexit 0\n",
                "usr/bin/nvidia-container-runtime": RUNTIME.read_text(),
                "usr/lib/systemd/system/nvidia-cdi-refresh.service": SERVICE,
                "usr/lib/systemd/system/nvidia-cdi-refresh.path": PATH,
            },
            scripts={"postinst": ENABLED, "prerm": STOPPED},
        ),
    ]


def write_toolkit(folder: Path, debs: Sequence[StandInDeb], key: SigningKey) -> Path:
    """Write the toolkit's archive, whole, with its key; returns what it is below."""
    base = folder / TOOLKIT
    apt_archive.write_archive(
        base / "stable/deb/amd64", debs, key, apt_archive.FlatLayout("own-key", "https://nvidia.github.io/x", "x")
    )
    (base / "gpgkey").write_text(key.public)
    return base


# As deb-systemd-helper would have it, in short
DAEMON_COMES = """\
if [ "$1" = configure ] && [ -d /run/systemd/system ]; then
  getent group docker >/dev/null || groupadd --system docker
  systemctl daemon-reload
  systemctl enable --quiet containerd.service docker.socket docker.service
  systemctl restart containerd.service docker.service
fi
"""
DAEMON_GOES = """\
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
  systemctl --quiet disable --now docker.service docker.socket || true
fi
"""
# The parts of the distribution's that Docker's own packages have, wherever that has them
PROGRAMS = {
    "docker-ce": ("dockerd", "docker-init", "docker-proxy"),
    "docker-ce-cli": ("docker",),
    "containerd.io": ("containerd", "containerd-shim-runc-v2", "runc"),
}
FOLDERS = ("usr/bin", "usr/sbin", "usr/libexec/docker")
UNITS = {"docker-ce": ("docker.service", "docker.socket"), "containerd.io": ("containerd.service",)}


def docker_packages(root: Path, version: str, codename: str = "trixie", release: str = "debian.13") -> list[StandInDeb]:
    """Docker's own five packages of one version.

    Args:
        root: Where the files of the distribution's docker.io, docker-cli, containerd and runc lie.
        version: Such as 28.5.2.
        codename: Of the release.
        release: As versions have it.
    """
    deb = f"5:{version}-1~{release}~{codename}"

    def one(name: str, *depends: str, own: str = deb, **more: Any) -> StandInDeb:
        places = [f"{folder}/{program}" for program in PROGRAMS.get(name, ()) for folder in FOLDERS]
        files: dict[str, str | bytes] = {path: (root / path).read_bytes() for path in places if (root / path).exists()}
        for unit in UNITS.get(name, ()):
            path = f"usr/lib/systemd/system/{unit}"
            files[path] = (root / path).read_text()
        values = {"component": "stable", "description": f"stand-in, {version}", "files": files, **more}
        return StandInDeb(name, own, name, depends, **values)

    theirs = ("containerd", "runc")
    return [
        one("containerd.io", own=f"1.7.28-1~{release}~{codename}", conflicts=theirs, replaces=theirs, provides=theirs),
        one(
            "docker-ce",
            "containerd.io (>= 1.7.27)",
            "docker-ce-cli",
            "iptables",
            conflicts=("docker.io",),
            replaces=("docker.io",),
            scripts={"postinst": DAEMON_COMES, "prerm": DAEMON_GOES},
        ),
        one("docker-ce-cli", conflicts=("docker-cli",), replaces=("docker-cli",)),
        one("docker-buildx-plugin", own=f"0.29.1-1~{release}~{codename}"),
        one("docker-compose-plugin", own=f"2.40.3-1~{release}~{codename}"),
    ]


def write_docker(folder: Path, debs: Sequence[StandInDeb], key: SigningKey, codename: str = "trixie") -> Path:
    """Write Docker's archive for Debian, whole, with its key; returns what it is below."""
    base = folder / DOCKER
    layout = apt_archive.SuiteLayout(codename, codename, "13", "Docker", "Docker CE", ("stable",))
    apt_archive.write_archive(base / "debian", debs, key, layout)
    (base / "debian/gpg").write_text(key.public)
    return base
