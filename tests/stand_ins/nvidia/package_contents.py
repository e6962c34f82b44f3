"""The contents of the stand-in packages: libraries, modules, DKMS's source, nvidia-smi, the persistence daemon."""

from __future__ import annotations

from pathlib import Path

from tests.stand_ins.nvidia import elf

HERE = Path(__file__).resolve().parent
LIBRARIES = "usr/lib/x86_64-linux-gnu"
MODULES = ("nvidia", "nvidia-modeset", "nvidia-uvm")
REFUSES = "/var/lib/lab/dkms-refuses"
"""On a host: kernel releases, one a line, for which the source does not compile."""

# The own description of NVIDIA's modules, seen with modinfo and in /proc/driver/nvidia/version
LICENCES = {"open": "Dual MIT/GPL", "proprietary": "NVIDIA"}
CARDS = "pci:v000010DEd*sv*sd*bc03sc0{}i00*"

DKMS_CONF = """\
PACKAGE_NAME="nvidia"
PACKAGE_VERSION="{version}"
AUTOINSTALL="yes"
MAKE[0]="sh ./build.sh ${{kernelver}}"
"""
DKMS_MODULE = """\
BUILT_MODULE_NAME[{number}]="{name}"
DEST_MODULE_LOCATION[{number}]="/kernel/drivers/video"
STRIP[{number}]="no"
"""
BUILD = """\
#!/bin/sh
# Stand-in for a compilation: puts the kernel's release behind what is the same for each.
set -eu
if cat refuses {there} 2>/dev/null | grep -qxF "$1"; then
  echo "nvidia/nv.c:1:1: error: this source is not for kernel $1" >&2
  exit 2
fi
for head in *.head; do
  {{ cat "$head"; printf '%-{width}s\\0' "vermagic=$1 {features} "; }} > "${{head%.head}}.ko"
done
"""
# As dh_dkms puts it into a package
DKMS_POSTINST = """\
if [ "$1" = configure ]; then
  /usr/lib/dkms/common.postinst nvidia {version} /usr/share/nvidia "" "$2"
fi
"""
DKMS_PRERM = """\
case $1 in
  remove | upgrade | deconfigure)
    if [ -n "$(dkms status -m nvidia -v {version})" ]; then dkms remove -m nvidia -v {version} --all; fi ;;
esac
"""
PERSISTENCED = """\
#!/bin/sh
# Stand-in for the persistence daemon: while it runs, the cards are in the mode that it was told.
mode=Enabled
while [ $# -gt 0 ]; do
  case $1 in
    -u | --user) getent passwd "$2" >/dev/null || { echo "Failed to find user ID of user '$2'" >&2; exit 1; }; shift ;;
    --persistence-mode) mode=Enabled ;;
    --no-persistence-mode) mode=Disabled ;;
    -V | --verbose) ;;
    *) echo "nvidia-persistenced: unrecognized option: '$1'" >&2; exit 1 ;;
  esac
  shift
done
if [ "$(cat /sys/module/nvidia/version 2>/dev/null)" != @VERSION@ ]; then
  echo "nvidia-persistenced failed to initialize. Check syslog for more information." >&2
  exit 1
fi
set_all() {
  mkdir -p /run/lab/cards
  for card in /proc/driver/nvidia/gpus/*; do echo "$1" > "/run/lab/cards/${card##*/}.persistence"; done
}
set_all "$mode"
mkdir -p /run/nvidia-persistenced
(
  trap 'set_all Disabled; kill $!; exit 0' TERM INT
  while :; do sleep 86400 & wait $!; done
) </dev/null >/dev/null 2>&1 &
echo $! > /run/nvidia-persistenced/nvidia-persistenced.pid
"""
# Ubuntu's (packages nvidia-compute-utils-*): nothing wants it, it does not stay, and switches the mode off
UBUNTU_UNIT = """\
[Unit]
Description=NVIDIA Persistence Daemon
Wants=syslog.target
StopWhenUnneeded=true
Before=systemd-backlight@backlight:nvidia_0.service

[Service]
Type=forking
ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --no-persistence-mode --verbose
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced
"""
# NVIDIA's own example (nvidia-persistenced, init/systemd)
NVIDIA_UNIT = """\
[Unit]
Description=NVIDIA Persistence Daemon
Wants=syslog.target

[Service]
Type=forking
ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced

[Install]
WantedBy=multi-user.target
"""
USER = """\
getent passwd nvidia-persistenced >/dev/null || useradd --system --no-create-home --shell /usr/sbin/nologin \\
  --home-dir /var/run/nvidia-persistenced --user-group nvidia-persistenced
"""
# As deb-systemd-helper would have it, in short
ENABLED = """\
if [ "$1" = configure ] && [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  [ -n "$2" ] || systemctl enable --quiet nvidia-persistenced.service
  systemctl restart nvidia-persistenced.service || true
fi
"""
STOPPED = """\
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl --quiet disable --now nvidia-persistenced.service; fi
"""


def driver_libraries(version: str, *stems: str) -> tuple[dict[str, str | bytes], dict[str, str]]:
    """Files and links of shared libraries: libcuda.so of one version, and libcuda.so.1 that leads to it."""
    files: dict[str, str | bytes] = {
        f"{LIBRARIES}/{stem}.so.{version}": elf.shared_library(f"{stem}.so.1") for stem in stems
    }
    return files, {f"{LIBRARIES}/{stem}.so.1": f"{stem}.so.{version}" for stem in stems}


def firmware_files(version: str) -> dict[str, str | bytes]:
    """The programs of the cards' own processors."""
    return {f"usr/lib/firmware/nvidia/{version}/{name}.bin": "stand-in\n" for name in ("gsp_ga10x", "gsp_tu10x")}


def module_heads(version: str, flavour: str) -> dict[str, bytes]:
    """Each module of a driver by name, without the end that tells its kernel."""
    aliases = tuple(CARDS.format(digit) for digit in "02")
    return {
        name: elf.kernel_module(name, version, LICENCES[flavour], aliases if name == "nvidia" else ())
        for name in MODULES
    }


def module_files(version: str, flavour: str, release: str, folder: str) -> dict[str, str | bytes]:
    """The modules as they lie in a package that was built for one kernel."""
    return {
        f"usr/lib/modules/{release}/{folder}/{name}.ko": head + elf.vermagic_bytes(release)
        for name, head in module_heads(version, flavour).items()
    }


def dkms_source(version: str, flavour: str, refuses: tuple[str, ...] = ()) -> dict[str, str | bytes]:
    """The source of DKMS's builds.

    Args:
        version: The driver's.
        flavour: open or proprietary.
        refuses: Kernel releases for which it does not compile.
    """
    folder = f"usr/src/nvidia-{version}"
    conf = DKMS_CONF.format(version=version)
    conf += "".join(DKMS_MODULE.format(number=number, name=name) for number, name in enumerate(MODULES))
    build = BUILD.format(there=REFUSES, width=elf.VERMAGIC - 1, features=elf.FEATURES)
    files: dict[str, str | bytes] = {f"{folder}/dkms.conf": conf, f"{folder}/build.sh": build}
    files |= {f"{folder}/{name}.head": content for name, content in module_heads(version, flavour).items()}
    files[f"{folder}/refuses"] = "".join(f"{release}\n" for release in refuses)
    return files


def dkms_scripts(version: str) -> dict[str, str]:
    """The scripts of a DKMS package at its installation and removal."""
    return {"postinst": DKMS_POSTINST.format(version=version), "prerm": DKMS_PRERM.format(version=version)}


def persistenced_files(version: str, unit: str) -> dict[str, str | bytes]:
    """The daemon of one driver version, and its unit."""
    return {
        "usr/bin/nvidia-persistenced": PERSISTENCED.replace("@VERSION@", version),
        "usr/lib/systemd/system/nvidia-persistenced.service": unit,
    }


def render_smi(version: str) -> str:
    """The nvidia-smi of one driver version."""
    cards = (HERE / "nvidia-smi-cards").read_text()
    return (HERE / "nvidia-smi").read_text().replace("@CARDS@\n", cards).replace("@VERSION@", version)
