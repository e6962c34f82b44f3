"""A sound host, in a survey: the winners at its next boot, and its packages' files."""

from dataclasses import replace
from typing import Any

from checks.survey.boot_settings import BootSettings
from checks.survey.kernel import Device, DkmsBuild, Grub, Initrd, Kernels, KernelThere, Module, NextBoot
from checks.survey.packages import AptPin, KeptFile, PackageFiles, PackageSurvey, StoredDriver
from checks.survey.trees import PathMount, PathPermissions
from rigwright.host.package_states import PackageState, PackageStates
from rigwright.model.instance import POWER_UNIT
from rigwright.nvidia.cards.card_setting_files import POWER, power_digest, program_folder
from rigwright.nvidia.driver.driver_facts import PERSISTENCE_UNIT
from rigwright.nvidia.driver.driver_files import PERSISTENCED
from tests.unit.nvidia_host import MANAGED, VERSION

RELEASE = "6.1-amd64"
UPDATES = f"/lib/modules/{RELEASE}/updates/dkms"
HELD = f"{'0' * 64}  a.deb\n"


def kernel_module(name: str) -> Module:
    return Module(f"{UPDATES}/{name}.ko", VERSION, "Dual MIT/GPL", "", f"{RELEASE} SMP", f"{name}-source")


NAMES = ("nvidia", "nvidia-uvm")
KERNEL = Kernels(
    running=RELEASE,
    kernels=[
        KernelThere(
            RELEASE,
            True,
            3,
            [kernel_module(name) for name in NAMES],
            [f"{UPDATES}/{name}.ko" for name in NAMES],
            [],
            [],
            True,
        )
    ],
    loaded={name.replace("-", "_"): [VERSION, f"{name}-source"] for name in NAMES},
    version="Open Kernel Module",
    params="",
    dkms=[DkmsBuild("nvidia", VERSION, f"/usr/src/nvidia-{VERSION}", RELEASE, "installed", [], [])],
    devices=[Device("/dev/nvidia0", "device", 0o666, 0, 0, 195, 0)],
    cards=[],
    libraries=[["libcuda.so.1", "/lib/x/libcuda.so.1", f"/usr/lib/x/libcuda.so.{VERSION}", "libcuda1"]],
    secure_boot="off",
    key_enrolled=False,
    sysctl={},
    peers=[],
)
BOOT = NextBoot(
    initrds=[Initrd(RELEASE, True, "", 9, [], [])],
    dracut=False,
    makes=True,
    grub=Grub("0", False, RELEASE, ["root=UUID=1", "ro", "quiet"], False),
    words=[["/etc/default/grub", "quiet"], ["/etc/default/grub", "GRUB_DEFAULT=0"]],
    away=[],
    shutdown="",
)
UNITS = {
    POWER_UNIT: {
        "LoadState": "loaded",
        "FragmentPath": POWER,
        "ExecStart": f"{{ argv[]=/usr/bin/python3 -I -B {program_folder(MANAGED.roots)} set ; }}",
        "ActiveState": "active",
        "Result": "success",
    },
    PERSISTENCE_UNIT: {
        "LoadState": "loaded",
        "FragmentPath": f"/usr/lib/systemd/system/{PERSISTENCE_UNIT}",
        "DropInPaths": PERSISTENCED,
        "ExecStart": "{ argv[]=/bin/sh -c exec /usr/bin/nvidia-persistenced --user x --persistence-mode ; }",
        "ActiveState": "active",
    },
    "ssh.service": {"LoadState": "loaded", "UnitFileState": "enabled"},
}
SETTINGS = BootSettings(
    sshd=[],
    files=[],
    units=UNITS,
    applied=power_digest(MANAGED.roots, MANAGED.cards, MANAGED.driver),
)
PACKAGES = PackageSurvey(
    os_id="debian",
    os_version="13",
    architecture="x86_64",
    packages=PackageStates((PackageState("libcuda1", "installed", f"{VERSION}-1", ""),)),
    policy={},
    unattended=False,
    blacklist=[],
    reboot=False,
    reboot_for=[],
    sources=[],
    runs=[],
    recorded=[],
    record="",
    kept=[StoredDriver(VERSION, HELD, [KeptFile("SHA256SUMS", 9, ""), KeptFile("a.deb", 9, "")])],
    pins=[AptPin("/etc/apt/preferences.d/rigwright-nvidia", "libcuda1", "version 580.*", "990")],
)
FILES = PackageFiles([], 9, ["libcuda1", "linux-image-1"], [], [])
ROOTS = MANAGED.roots
SEPARATE = PathMount("/srv", "/", "ext4", "/dev/sda1", ["rw"], boot=True)
REAL = {root: root for root in (ROOTS.config, ROOTS.software, ROOTS.state, ROOTS.models)}
WAYS = PathPermissions({}, REAL, [PathMount("/", "/", "ext4", "/dev/sda2", ["rw"], boot=True), SEPARATE], [])
SOUND = {
    "path_permissions": WAYS,
    "kernel": KERNEL,
    "boot": BOOT,
    "boot_settings": SETTINGS,
    "packages": PACKAGES,
    "package_file_changes": FILES,
}


def boot_with_initrd(**changes: Any) -> dict[str, Any]:
    return {"initrds": [replace(BOOT.initrds[0], **changes)]}


def kernel_with(**changes: Any) -> dict[str, Any]:
    return {"kernels": [replace(KERNEL.kernels[0], **changes)]}


def settings_with_unit(name: str, **changes: str) -> dict[str, Any]:
    return {"units": {**UNITS, name: {**UNITS.get(name, {}), **changes}}}


def packages_with(**changes: Any) -> dict[str, Any]:
    return {"kept": [replace(PACKAGES.kept[0], **changes)]}
