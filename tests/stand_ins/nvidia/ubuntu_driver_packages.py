"""The packages of a driver in Ubuntu's own archive: the server's stack, the desktop's, and modules that come built.

Names and versions' shapes: lists of installed packages in reports, for 580.159.03-0ubuntu0.24.04.1 and modules of
6.14.0-36.36~24.04.1+1; relations: github.com/NVIDIA/ubuntu-packaging-nvidia-driver, which is older and made of the same
templates. That prebuilt modules provide what DKMS's package is called is from github.com/tseliot/ubuntu-drivers-common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.stand_ins.nvidia import package_contents
from tests.stand_ins.nvidia.debian_packages import StandInDeb
from tests.stand_ins.nvidia.kernel_packages import package_version
from tests.stand_ins.nvidia.nvidia_driver_packages import FLAVOURS, driver_branch, exclusive_relations

SERVER = "-server"
DESKTOP = ""


def deb_version(version: str, release: str) -> str:
    """580.159.03-0ubuntu0.24.04.1 for driver 580.159.03 and Ubuntu 24.04."""
    return f"{version}-0ubuntu0.{release}.1"


def stack_packages(
    version: str, release: str, kind: str = SERVER, *, component: str = "restricted"
) -> list[StandInDeb]:
    """All packages of one driver but the prebuilt modules.

    Args:
        version: The driver's, such as 580.178.04.
        release: Ubuntu's, such as 24.04.
        kind: SERVER or DESKTOP; a host has one of them.
        component: Where the archive has them.
    """
    b = f"-{driver_branch(version)}{kind}"
    deb = deb_version(version, release)

    def one(name: str, *depends: str, **more: Any) -> StandInDeb:
        made = StandInDeb(
            name, deb, f"nvidia-graphics-drivers{b}", depends, component=component, section="restricted/libs"
        )
        return replace(made, description=f"stand-in, {version}", **more)

    def same(*names: str) -> tuple[str, ...]:
        return tuple(f"{name} (= {deb})" for name in names)

    def replaces_all(*names: str) -> dict[str, Any]:
        return {"provides": names, "conflicts": names, "replaces": names}

    compute = ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler", "libnvidia-nvvm")
    files, links = package_contents.driver_libraries(version, *compute)
    cfg_files, cfg_links = package_contents.driver_libraries(version, "libnvidia-cfg")
    ldconfig = "activate-noawait ldconfig"
    firmware = f"nvidia-firmware{b}-{version}"
    libraries = replaces_all("nvidia-opencl-icd")
    libraries["provides"] += (f"libcuda1 (= {deb})", f"libnvidia-ml1 (= {deb})")
    found = [
        one(f"libnvidia-compute{b}", files=files, links=links, triggers=ldconfig, **libraries),
        one(
            f"libnvidia-cfg1{b}",
            files=cfg_files,
            links=cfg_links,
            triggers=ldconfig,
            **replaces_all("libnvidia-cfg1-any"),
        ),
        one(
            firmware,
            files=package_contents.firmware_files(version),
            **exclusive_relations(f"nvidia-firmware-{version}"),
        ),
        one(
            f"nvidia-kernel-common{b}",
            *same(firmware),
            files={f"usr/lib/modprobe.d/nvidia-graphics-drivers{b}.conf": "blacklist nouveau\nalias nouveau off\n"},
            **replaces_all("nvidia-kernel-common"),
        ),
        one(
            f"nvidia-utils{b}",
            *same(f"libnvidia-compute{b}"),
            files={"usr/bin/nvidia-smi": package_contents.render_smi(version)},
            **replaces_all("nvidia-utils", "nvidia-smi"),
        ),
        one(
            f"nvidia-compute-utils{b}",
            *same(f"libnvidia-compute{b}"),
            files=package_contents.persistenced_files(version, package_contents.UBUNTU_UNIT),
            scripts={"postinst": package_contents.USER},
            **replaces_all("nvidia-compute-utils", "nvidia-persistenced"),
        ),
    ]
    for flavour, suffix in FLAVOURS.items():
        source, dkms, headless = f"nvidia-kernel-source{b}{suffix}", f"nvidia-dkms{b}{suffix}", f"{b}{suffix}"
        tools = same(f"libnvidia-compute{b}", f"nvidia-compute-utils{b}", f"libnvidia-cfg1{b}")
        built = (f"{dkms} (<= {version}-1)", f"{dkms} (>= {version})")
        found += [
            one(source, **exclusive_relations("nvidia-kernel-source")),
            one(
                dkms,
                "dkms",
                *same(source, f"nvidia-kernel-common{b}"),
                files=package_contents.dkms_source(version, flavour),
                scripts=package_contents.dkms_scripts(version),
                **exclusive_relations("nvidia-dkms-kernel"),
            ),
            one(f"nvidia-headless-no-dkms{headless}", *same(source), *tools),
            one(f"nvidia-headless{headless}", *same(f"nvidia-headless-no-dkms{headless}"), *built),
            one(
                f"nvidia-driver{headless}",
                *same(source, f"nvidia-utils{b}"),
                *tools,
                *built,
                **exclusive_relations("nvidia-driver-binary"),
            ),
        ]
    return found


def prebuilt_modules(
    version: str,
    releases: Sequence[str],
    flavour: str,
    kind: str = SERVER,
    *,
    respin: int = 1,
    component: str = "restricted",
) -> list[StandInDeb]:
    """The modules that Canonical builds and signs, for some kernels, and the metapackage that brings the last one's.

    They need the `signatures` of the same kernels and count.

    Args:
        version: The driver's.
        releases: Kernels, the oldest first. A kernel that is not here has no modules yet, as happens.
        flavour: The suffix after the driver in the metapackage's name: generic, generic-hwe-24.04.
        kind: SERVER or DESKTOP.
        respin: Counted up, for all branches together, where a kernel gets another driver.
        component: Where the archive has them.
    """
    b = f"-{driver_branch(version)}{kind}"
    found = []
    for release in releases:
        deb = f"{package_version(release)}+{respin}"
        for module, suffix in FLAVOURS.items():
            objects = f"linux-objects-nvidia{b}{suffix}-{release}"
            found.append(_module_package(objects, deb, component))
            place = f"kernel/nvidia-{driver_branch(version)}{kind.replace('-server', 'srv')}{suffix}"
            common = f"nvidia-kernel-common{b}"
            found.append(
                _module_package(
                    f"linux-modules-nvidia{b}{suffix}-{release}",
                    deb,
                    component,
                    f"linux-image-{release} | linux-image-unsigned-{release}",
                    f"linux-signatures-nvidia-{release} (= {deb})",
                    f"{objects} (= {deb})",
                    f"{common} (<= {version}-1)",
                    f"{common} (>= {version})",
                    provides=(f"nvidia-prebuilt-kernel{b}{suffix}",),
                    files=package_contents.module_files(version, module, release, place),
                    scripts={
                        "postinst": f"[ ! -d /lib/modules/{release} ] || depmod {release}\n",
                        "postrm": f"[ ! -e /boot/vmlinuz-{release} ] || depmod {release}\n",
                    },
                )
            )
    newest = releases[-1]
    deb = f"{package_version(newest)}+{respin}"
    for suffix in FLAVOURS.values():
        brought = f"linux-modules-nvidia{b}{suffix}-{newest} (= {deb})"
        provided = (f"nvidia-dkms{b}{suffix} (= {version})",)
        meta = f"linux-modules-nvidia{b}{suffix}-{flavour}"
        found.append(_module_package(meta, deb, component, brought, provides=provided))
    return found


def signature_packages(releases: Sequence[str], *, respin: int = 1) -> list[StandInDeb]:
    """The common part of all branches' prebuilt modules of these kernels."""
    return [
        _module_package(f"linux-signatures-nvidia-{release}", f"{package_version(release)}+{respin}", "restricted")
        for release in releases
    ]


def _module_package(name: str, deb: str, component: str, *depends: str, **more: Any) -> StandInDeb:
    made = StandInDeb(name, deb, "linux-restricted-modules", depends, component=component, section="restricted/kernel")
    return replace(made, description="stand-in", **more)
