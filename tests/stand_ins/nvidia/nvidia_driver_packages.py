"""The packages of a driver in NVIDIA's archives, as far as a machine that computes needs them.

Names and versions' shapes: installed packages that people list in reports, for Debian 595.58.03-1 and 615.71.09-2, for
Ubuntu 580.95.05-0ubuntu1 and 610.43.02-1ubuntu1; relations: github.com/NVIDIA/debian-packaging-nvidia-driver and
ubuntu-packaging-nvidia-driver, which are older. Where no source tells, a relation is left out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.stand_ins.nvidia import package_contents
from tests.stand_ins.nvidia.debian_packages import StandInDeb

LAST_WITH_BRANCH = 580
LAST_PROPRIETARY = 610
FLAVOURS = {"open": "-open", "proprietary": ""}
PINNED = "src:*nvidia*:any src:cuda-drivers:any src:cuda-compat:any"


def driver_branch(version: str) -> int:
    """580 of 580.178.04."""
    return int(version.partition(".")[0])


def exclusive_relations(name: str) -> dict[str, Any]:
    """Relations of packages of which a host has one, of whatever branch."""
    return {"provides": (name,), "conflicts": (name,), "replaces": (name,)}


def nvidia_debian_debs(version: str, *, revision: str = "1", refuses: tuple[str, ...] = ()) -> list[StandInDeb]:
    """Of debian12 and debian13.

    Args:
        version: The driver's, such as 595.71.05.
        revision: The suffix after it in the packages' version.
        refuses: Kernel releases for which DKMS cannot build.
    """
    deb = f"{version}-{revision}"

    def one(name: str, *depends: str, **more: Any) -> StandInDeb:
        made = StandInDeb(
            name, deb, "nvidia-graphics-drivers", depends, section="NVIDIA", description=f"stand-in, {version}"
        )
        return replace(made, **more)

    def same(*names: str) -> tuple[str, ...]:
        return tuple(f"{name} (= {deb})" for name in names)

    def library(name: str, *stems: str, depends: tuple[str, ...] = (), **more: Any) -> StandInDeb:
        files, links = package_contents.driver_libraries(version, *stems)
        return one(name, *depends, files=files, links=links, triggers="activate-noawait ldconfig", **more)

    found = [
        library("libnvidia-ml1", "libnvidia-ml", provides=(f"libnvidia-ml.so.1 (= {version})",)),
        library("libnvidia-cfg1", "libnvidia-cfg"),
        library("libnvidia-gpucomp", "libnvidia-gpucomp"),
        library("libnvidia-nvvm4", "libnvidia-nvvm"),
        library("libnvidia-ptxjitcompiler1", "libnvidia-ptxjitcompiler"),
        library(
            "libcuda1",
            "libcuda",
            depends=same("libnvidia-ptxjitcompiler1", "libnvidia-nvvm4", "libnvidia-gpucomp"),
            recommends=(" | ".join(same("nvidia-kernel-open-dkms", "nvidia-kernel-dkms")),),
            provides=(f"libcuda.so.1 (= {version})", "libcuda1-any"),
        ),
        one("firmware-nvidia-gsp", files=package_contents.firmware_files(version)),
        replace(_modprobe_package(version), version=deb),
        one("nvidia-kernel-support", *same("firmware-nvidia-gsp", "nvidia-modprobe")),
        replace(_persistenced_package(version, f"libnvidia-cfg1 (= {deb})"), version=deb),
        one(
            "nvidia-driver-cuda",
            *same("libcuda1", "libnvidia-ml1", "libnvidia-cfg1", "nvidia-persistenced", "nvidia-modprobe"),
            conflicts=("nvidia-smi",),
            replaces=("nvidia-smi",),
            provides=("nvidia-smi",),
            files={"usr/bin/nvidia-smi": package_contents.render_smi(version)},
        ),
        one("nvidia-driver", *same("nvidia-driver-cuda")),
        one("nvidia-open", *same("nvidia-driver", "nvidia-kernel-open-dkms"), source="nvidia-open"),
    ]
    both = driver_branch(version) <= LAST_PROPRIETARY
    for flavour, suffix in FLAVOURS.items() if both else [("open", "-open")]:
        other = f"nvidia-kernel{'' if suffix else '-open'}-dkms"
        found.append(
            one(
                f"nvidia-kernel{suffix}-dkms",
                "dkms (>= 2.1.1.1)",
                f"nvidia-kernel-support (= {deb})",
                conflicts=(other,) if both else (),
                provides=("nvidia-kernel-dkms-any", f"nvidia-kernel-{version}"),
                files=package_contents.dkms_source(version, flavour, refuses),
                scripts=package_contents.dkms_scripts(version),
            )
        )
    if both:
        found.append(one("cuda-drivers", *same("nvidia-driver", "nvidia-kernel-dkms"), source="cuda-drivers"))
    else:
        # its name says proprietary, and it brings the open modules
        found.append(one("nvidia-kernel-dkms", *same("nvidia-kernel-open-dkms")))
    return found


def nvidia_ubuntu_debs(version: str, *, refuses: tuple[str, ...] = ()) -> list[StandInDeb]:
    """Of ubuntu2204, ubuntu2404 and ubuntu2604: up to 580 the names have the branch, later they do not.

    Args:
        version: The driver's, such as 580.178.04.
        refuses: Kernel releases for which DKMS cannot build.
    """
    branch = driver_branch(version)
    suffixed = branch <= LAST_WITH_BRANCH
    b = f"-{branch}" if suffixed else ""
    deb = f"{version}-{0 if suffixed else 1}ubuntu1"

    def one(name: str, *depends: str, **more: Any) -> StandInDeb:
        source = f"nvidia-graphics-drivers{b}"
        made = StandInDeb(name, deb, source, depends, section="multiverse/libs", description=f"stand-in, {version}")
        return replace(made, **more)

    def same(*names: str) -> tuple[str, ...]:
        return tuple(f"{name} (= {deb})" for name in names)

    files, links = package_contents.driver_libraries(
        version, "libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler", "libnvidia-nvvm"
    )
    cfg_files, cfg_links = package_contents.driver_libraries(version, "libnvidia-cfg")
    ldconfig = "activate-noawait ldconfig"
    compute = exclusive_relations("nvidia-opencl-icd")
    compute["provides"] += (f"libcuda1 (= {deb})", f"libnvidia-ml1 (= {deb})")
    common = exclusive_relations("nvidia-kernel-common") if suffixed else {}
    utils = exclusive_relations("nvidia-utils") if suffixed else {}
    utils = {word: (*utils.get(word, ()), "nvidia-smi") for word in ("provides", "conflicts", "replaces")}
    tool = {"usr/bin/nvidia-smi": package_contents.render_smi(version)}
    found = [
        one(f"libnvidia-compute{b}", files=files, links=links, triggers=ldconfig, **compute),
        one(
            f"libnvidia-cfg1{b}",
            files=cfg_files,
            links=cfg_links,
            triggers=ldconfig,
            **exclusive_relations("libnvidia-cfg1-any"),
        ),
        one(
            f"nvidia-firmware{b}",
            files=package_contents.firmware_files(version),
            **exclusive_relations(f"nvidia-firmware-{version}"),
        ),
        replace(_modprobe_package(version), version=deb),
        replace(_persistenced_package(version, f"libnvidia-cfg1{b} (= {deb})"), version=deb),
        one(f"nvidia-kernel-common{b}", *same(f"nvidia-firmware{b}"), "nvidia-modprobe", **common),
        one(f"nvidia-utils{b}", *same(f"libnvidia-compute{b}"), files=tool, **utils),
        one(f"nvidia-compute-utils{b}", *same(f"libnvidia-compute{b}"), "nvidia-persistenced"),
    ]
    for flavour, suffix in FLAVOURS.items() if branch <= LAST_PROPRIETARY else [("open", "-open")]:
        stack = f"{b}{suffix}"
        kernel_source = f"nvidia-kernel-source{stack}"
        found += [
            one(kernel_source, **exclusive_relations("nvidia-kernel-source")),
            one(
                f"nvidia-dkms{stack}",
                "dkms",
                *same(kernel_source, f"nvidia-kernel-common{b}"),
                files=package_contents.dkms_source(version, flavour, refuses),
                scripts=package_contents.dkms_scripts(version),
                **exclusive_relations("nvidia-dkms-kernel"),
            ),
            one(
                f"nvidia-driver{stack}",
                *same(f"nvidia-dkms{stack}", f"libnvidia-compute{b}", f"nvidia-compute-utils{b}", f"nvidia-utils{b}"),
                **exclusive_relations("nvidia-driver-binary"),
            ),
        ]
        top = f"nvidia-open{b}" if suffix else f"cuda-drivers{b}"
        found.append(one(top, *same(f"nvidia-driver{stack}"), source="nvidia-open" if suffix else "cuda-drivers"))
    return found


def pinning_packages(version: str) -> list[StandInDeb]:
    """The packages that hold apt to a branch, and to one version, by a file in its preferences."""
    found = []
    for what, pin in ((str(driver_branch(version)), f"{driver_branch(version)}.*"), (version, f"{version}*")):
        name = f"nvidia-driver-pinning-{what}"
        text = f"Package: {PINNED}\nPin: version {pin}\nPin-Priority: 1000\n"
        found.append(
            StandInDeb(
                name,
                f"{version}-1",
                name,
                section="NVIDIA",
                description=f"stand-in: pins {what}",
                files={f"etc/apt/preferences.d/{name}": text},
                **exclusive_relations("nvidia-driver-pinning"),
            )
        )
    return found


def _modprobe_package(version: str) -> StandInDeb:
    return StandInDeb(
        "nvidia-modprobe", version, "nvidia-modprobe", section="NVIDIA", description=f"stand-in, {version}"
    )


def _persistenced_package(version: str, *depends: str) -> StandInDeb:
    return StandInDeb(
        "nvidia-persistenced",
        version,
        "nvidia-persistenced",
        depends,
        section="NVIDIA",
        description=f"stand-in, {version}",
        files=package_contents.persistenced_files(version, package_contents.NVIDIA_UNIT),
        scripts={"postinst": package_contents.USER + package_contents.ENABLED, "prerm": package_contents.STOPPED},
    )
