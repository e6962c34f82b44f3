"""Kernels of a distribution: an image that cannot boot, headers that nothing compiles against, and their metapackages.

The scripts run what the true ones run: depmod, and the hooks below /etc/kernel, DKMS's among them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.stand_ins.nvidia import elf
from tests.stand_ins.nvidia.debian_packages import StandInDeb

CONFIG = "CONFIG_MODULES=y\nCONFIG_RD_GZIP=y\nCONFIG_RD_ZSTD=y\n"  # the settings that mkinitramfs asks a kernel for
IMAGE_POSTINST = """\
depmod {release}
[ ! -d /etc/kernel/postinst.d ] || DEB_MAINT_PARAMS="$*" run-parts --report --exit-on-error \\
  --arg={release} --arg=/boot/vmlinuz-{release} /etc/kernel/postinst.d
"""
IMAGE_PRERM = """\
[ "$1" != remove ] || [ ! -d /etc/kernel/prerm.d ] || DEB_MAINT_PARAMS="$*" run-parts --report --exit-on-error \\
  --arg={release} --arg=/boot/vmlinuz-{release} /etc/kernel/prerm.d
"""
IMAGE_POSTRM = """\
if [ "$1" = remove ] || [ "$1" = purge ]; then
  [ ! -d /etc/kernel/postrm.d ] || DEB_MAINT_PARAMS="$*" run-parts --report --exit-on-error \\
    --arg={release} --arg=/boot/vmlinuz-{release} /etc/kernel/postrm.d
  rm -f /lib/modules/{release}/modules.*
  rmdir /lib/modules/{release} 2>/dev/null || true
fi
"""
HEADERS_POSTINST = """\
[ ! -d /etc/kernel/header_postinst.d ] || DEB_MAINT_PARAMS="$*" run-parts --report --exit-on-error --verbose \\
  --arg={release} /etc/kernel/header_postinst.d
"""


def package_version(release: str) -> str:
    """Of a kernel's packages: 6.8.0-40.40 for 6.8.0-40-generic.

    Debian's own archive has kernels too, so those of a stand-in get a number that is above each of them.
    """
    if ubuntu := re.fullmatch(r"([0-9.]+)-([0-9]+)-generic", release):
        return f"{ubuntu[1]}-{ubuntu[2]}.{ubuntu[2]}"
    if old := re.fullmatch(r"([0-9]+\.[0-9]+)\.0-([0-9]+)-amd64", release):
        return f"{old[1]}.{9000 + int(old[2])}-1"
    if new := re.fullmatch(r"([0-9]+\.[0-9]+)\.([0-9]+)\+deb[0-9]+-amd64", release):
        return f"{new[1]}.{9000 + int(new[2])}-1"
    raise ValueError(f"{release} is no release of a kernel that is known here")


def kernel_packages(releases: Sequence[str], flavour: str, image_version: str = "") -> list[StandInDeb]:
    """Image and headers of each release, Ubuntu's other modules too, and the metapackages, which bring the last one.

    Args:
        releases: The oldest first, such as 6.1.0-40-amd64.
        flavour: The suffix after linux-image- in the metapackage's name: amd64, generic, generic-hwe-24.04.
        image_version: Of the images, where the distribution's own headers are to go with them.
    """
    newest, version = releases[-1], image_version or package_version(releases[-1])
    debian = newest.endswith("amd64")
    found = []
    for release in releases:
        found += [
            image_package(release, image_version),
            headers_package(release),
            *([] if debian else [extra_modules_package(release)]),
        ]

    def meta(kind: str, *brought: str) -> StandInDeb:
        source = "linux-signed-amd64" if debian else "linux-meta"
        return StandInDeb(f"linux-{kind}{flavour}", version, source, brought, section="kernel")

    more = () if debian else (f"linux-modules-extra-{newest}",)
    found += [
        meta("image-", f"linux-image-{newest} (= {version})", *more),
        meta("headers-", f"linux-headers-{newest} (= {version})"),
    ]
    if not debian:
        found.append(meta("", *(f"linux-{kind}-{flavour} (= {version})" for kind in ("image", "headers"))))
    return found


def extra_modules_package(release: str) -> StandInDeb:
    """The drivers that Ubuntu leaves out of a kernel's image; the metapackage alone brings them."""
    return StandInDeb(f"linux-modules-extra-{release}", package_version(release), "linux", section="kernel")


def image_package(release: str, version: str = "") -> StandInDeb:
    """One kernel's image, with nouveau as its only module; headers of the distribution's archive need its version."""
    nouveau = elf.kernel_module("nouveau", "", "GPL and additional rights", ("pci:v000010DEd*sv*sd*bc03sc*i*",))
    folder = f"usr/lib/modules/{release}"
    driver = "kernel/drivers/gpu/drm/nouveau/nouveau.ko"
    return StandInDeb(
        f"linux-image-{release}",
        version or package_version(release),
        "linux-signed-amd64" if release.endswith("amd64") else "linux-signed",
        ("kmod",),
        section="kernel",
        files={
            f"boot/vmlinuz-{release}": "",
            f"boot/config-{release}": CONFIG,
            f"{folder}/modules.order": f"{driver}\n",
            f"{folder}/modules.builtin": "",
            f"{folder}/modules.builtin.modinfo": "",
            f"{folder}/{driver}": nouveau + elf.vermagic_bytes(release),
        },
        scripts={
            "postinst": IMAGE_POSTINST.format(release=release),
            "prerm": IMAGE_PRERM.format(release=release),
            "postrm": IMAGE_POSTRM.format(release=release),
        },
    )


def headers_package(release: str) -> StandInDeb:
    """One kernel's headers, as far as DKMS looks at them."""
    folder = f"usr/src/linux-headers-{release}"
    return StandInDeb(
        f"linux-headers-{release}",
        package_version(release),
        "linux",
        section="kernel",
        files={
            f"{folder}/.config": "CONFIG_MODULES=y\n",
            f"{folder}/Makefile": "",
            f"{folder}/include/generated/utsrelease.h": f'#define UTS_RELEASE "{release}"\n',
        },
        links={f"usr/lib/modules/{release}/build": f"/{folder}"},
        scripts={"postinst": HEADERS_POSTINST.format(release=release)},
    )
