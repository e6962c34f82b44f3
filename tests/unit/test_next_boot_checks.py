"""The checks of what wins at the next boot, and of packages' files: green on a sound host, red on each that is not."""

import copy
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import Any

import pytest

from checks import Drift, test_machine, test_nvidia_boot, test_nvidia_files, test_nvidia_units
from checks.survey.answers import SurveyAnswers
from checks.survey.boot_settings import SettingsFile
from checks.survey.kernel import Grub, Module
from checks.survey.packages import AptPin, KeptFile, PackageFileFinding
from rigwright.model.instance import POWER_UNIT
from rigwright.nvidia.cards.card_setting_files import program_folder
from rigwright.nvidia.driver.driver_facts import PERSISTENCE_UNIT
from rigwright.nvidia.driver.driver_files import PERSISTENCED
from tests.unit.next_boot_host import (
    BOOT,
    KERNEL,
    PACKAGES,
    RELEASE,
    SEPARATE,
    SOUND,
    UPDATES,
    boot_with_initrd,
    kernel_module,
    kernel_with,
    packages_with,
    settings_with_unit,
)
from tests.unit.nvidia_host import FACTS, MANAGED, VERSION

CHECKS: dict[str, Callable[[SurveyAnswers], None]] = {
    "N29": lambda s: test_nvidia_files.test_files(s, MANAGED.roots, MANAGED.cards, MANAGED.driver),
    "N30": lambda s: test_nvidia_boot.test_loaded_is_on_disk(s, MANAGED.cards),
    "N31": lambda s: test_nvidia_boot.test_modules_closed(s, MANAGED.cards),
    "N32": lambda s: test_nvidia_boot.test_dkms_source(s, MANAGED.cards),
    "N33": lambda s: test_nvidia_boot.test_headers(s, MANAGED.cards, MANAGED.driver),
    "N35": lambda s: test_nvidia_boot.test_initrd(s, MANAGED.cards, MANAGED.driver),
    "N37": lambda s: test_nvidia_boot.test_device_modes(s, MANAGED.cards, MANAGED.driver),
    "N39": lambda s: test_nvidia_boot.test_command_line(s, MANAGED.cards),
    "N40": lambda s: test_nvidia_files.test_boot_files(s, MANAGED.roots, MANAGED.cards, MANAGED.driver),
    "N41": lambda s: test_nvidia_files.test_diversions(s, MANAGED.cards),
    "N42": lambda s: test_nvidia_files.test_loader(s, MANAGED.cards, MANAGED.driver),
    "N44": lambda s: test_nvidia_files.test_kept(
        s, MANAGED.roots, MANAGED.cards, MANAGED.driver, MANAGED.driver_supply, FACTS
    ),
    "N45": lambda s: test_nvidia_files.test_pins(s, MANAGED.cards, MANAGED.driver, MANAGED.containers),
    "N46": lambda s: test_nvidia_files.test_program(s, MANAGED.roots, MANAGED.cards, MANAGED.driver),
    "N47": lambda s: test_nvidia_units.test_power_unit(s, MANAGED.roots, MANAGED.cards, MANAGED.driver),
    "N48": lambda s: test_nvidia_units.test_persistence_unit(s, MANAGED.cards, MANAGED.driver),
    "M01": lambda s: test_machine.test_programs(s, MANAGED.cards),
    "M05": lambda s: test_machine.test_mounts(s, MANAGED.roots),
    "M06": test_machine.test_table,
    "M07": test_machine.test_shutdown,
    "M08": test_machine.test_way_in,
    "M10": test_machine.test_boot_loader,
    "M11": test_machine.test_initrd,
}


def red(told: dict[str, Any]) -> dict[str, str]:
    """The checks that do not hold, with what they say; it is one line, with no word of Python's."""
    survey, said = SurveyAnswers({name: {"told": asdict(one)} for name, one in told.items()}), {}
    for name, run in CHECKS.items():
        try:
            run(survey)
        except Drift as drift:
            said[name] = str(drift)
            assert "\n" not in said[name]
            assert "True" not in said[name]
            assert "False" not in said[name]
    return said


UVM = f"{UPDATES}/nvidia-uvm.ko"
EXTRA = f"/lib/modules/{RELEASE}/extra/nvidia.ko"
SICK: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    (
        "package_file_changes",
        {"findings": [PackageFileFinding("libcuda1", "/usr/lib/x", "has different contents")]},
        {"N29": "/usr/lib/x has different contents; as root on the host: for name in libcuda1; do"},
    ),
    (
        "package_file_changes",
        {"findings": [PackageFileFinding("linux-image-1", "/boot/v", "is missing")]},
        {"N40": "found /boot/v is missing; as root on the host: apt-get"},
    ),
    (
        "package_file_changes",
        {"findings": [PackageFileFinding("bash", "/bin/bash", "has capabilities of its own")]},
        {"M01": "--force-confmiss bash"},
    ),
    (
        "package_file_changes",
        {"moved": [["/usr/bin/nvidia-smi", "/x", "nvidia-smi"]]},
        {"N41": "/usr/bin/nvidia-smi is diverted to /x"},
    ),
    ("package_file_changes", {"moved": [["/usr/bin/uname", "/x", "coreutils"]]}, {}),
    ("package_file_changes", {"overridden": ["/usr/bin/nvidia-smi"]}, {"N41": "has an overridden mode"}),
    ("kernel", {"loaded": {"nvidia": [VERSION, "other"]}}, {"N30": "nvidia built from other source"}),
    ("kernel", {"loaded": {"nvidia_uvm": ["1", ""]}}, {"N30": "nvidia_uvm 1, and"}),
    (
        "kernel",
        kernel_with(lying=[EXTRA, UVM]),
        {"N31": "extra/nvidia.ko, which comes from neither a package nor DKMS"},
    ),
    ("kernel", kernel_with(lying=[EXTRA, UVM], owned=[EXTRA]), {}),
    ("kernel", kernel_with(modules=[kernel_module("nvidia")]), {"N31": "no nvidia-uvm for kernel"}),
    (
        "kernel",
        kernel_with(modules=[kernel_module("nvidia"), replace(kernel_module("nvidia-uvm"), version="1")]),
        {"N30": "", "N31": "nvidia-uvm.ko 1 beside"},
    ),
    (
        "kernel",
        kernel_with(modules=[kernel_module("nvidia"), Module(UVM, "", "", "", "", "")]),
        {"N31": "nvidia-uvm.ko, which kmod cannot read"},
    ),
    ("kernel", kernel_with(loose=[EXTRA]), {"N31": "extra/nvidia.ko is writable by users other than root"}),
    ("kernel", kernel_with(headers=False), {"N33": f"expected headers of kernel {RELEASE}"}),
    ("kernel", {"dkms": [replace(KERNEL.dkms[0], source="/root/mine")]}, {"N32": "from /root/mine"}),
    ("boot_settings", {"sshd": ["x line 1: Bad configuration option: y"]}, {"M08": "Bad configuration option"}),
    (
        "boot_settings",
        settings_with_unit("systemd-networkd.service", ActiveState="active", UnitFileState="disabled"),
        {"M08": "systemd-networkd.service is not enabled"},
    ),
    (
        "boot_settings",
        settings_with_unit("systemd-networkd.service", ActiveState="active", UnitFileState="enabled-runtime"),
        {},
    ),
    ("boot", {"words": [["/etc/default/grub", "GRUB_TIMEOUT=-1"]]}, {"M10": "GRUB_TIMEOUT=-1"}),
    ("boot", {"words": [["/etc/default/grub", "GRUB_TIMEOUT=5"]]}, {}),
    ("boot", {"grub": replace(BOOT.grub, waits=True)}, {"M10": "waits at the menu"}),  # type: ignore[type-var]
    (
        "boot_settings",
        {"files": [SettingsFile(f"{program_folder(MANAGED.roots)}/json.py", "file", "644", 0, 0, "")]},
        {"N46": "json.py (file)"},
    ),
    (
        "boot_settings",
        settings_with_unit(POWER_UNIT, DropInPaths="/run/systemd/system.control/x.conf"),
        {"N47": "system.control/x.conf was added"},
    ),
    (
        "boot_settings",
        settings_with_unit(POWER_UNIT, LoadState="masked", FragmentPath=""),
        {"N47": "it is from nowhere (masked)"},
    ),
    ("boot_settings", settings_with_unit(POWER_UNIT, ExecStart="{ argv[]=/bin/true ; }"), {"N47": "it runs /bin/true"}),
    (
        "boot_settings",
        settings_with_unit(POWER_UNIT, ActiveState="failed", Result="exit-code"),
        {"N47": "it is failed (exit-code)"},
    ),
    (
        "boot_settings",
        settings_with_unit(POWER_UNIT, NeedDaemonReload="yes"),
        {"N47": "changed after systemd loaded them"},
    ),
    ("boot_settings", {"applied": "x"}, {"N47": "all declared limits and clocks"}),
    ("boot_settings", settings_with_unit(PERSISTENCE_UNIT, DropInPaths=""), {"N48": f"{PERSISTENCED} is not loaded"}),
    ("boot_settings", settings_with_unit(PERSISTENCE_UNIT, ActiveState="inactive"), {"N48": "it is inactive"}),
    ("boot_settings", settings_with_unit("ssh.service", UnitFileState="disabled"), {"M08": "ssh.service disabled"}),
    ("kernel", {"devices": [replace(KERNEL.devices[0], mode=0o600)]}, {"N37": "/dev/nvidia0 has mode 600 of 0:0"}),
    ("kernel", {"devices": [replace(KERNEL.devices[0], kind="link")]}, {"N37": "/dev/nvidia0 is a link"}),
    (
        "kernel",
        {"libraries": [["libcuda.so.1", "/opt/libcuda.so.1", "/opt/libcuda.so.1", ""]]},
        {"N42": "not from a package"},
    ),
    ("boot", boot_with_initrd(lacking=["/etc/modprobe.d/x.conf"]), {"N35": f"{RELEASE}: lacks /etc/modprobe.d/x.conf"}),
    (
        "boot",
        boot_with_initrd(differs=[["etc/modprobe.d/x.conf", "has another content than on the disk"]]),
        {"N35": "x.conf has another content"},
    ),
    (
        "boot",
        boot_with_initrd(differs=[["usr/lib/modules/x/nvidia.ko", "is not on the disk"]]),
        {"N35": "nvidia.ko is not on the disk"},
    ),
    ("boot", boot_with_initrd(differs=[["scripts/a", "is not on the disk"]]), {"M11": "scripts/a of kernel"}),
    (
        "boot",
        boot_with_initrd(problem="ends in the middle"),
        {"M11": "ends in the middle; as root on the host: update-initramfs -c -k"},
    ),
    ("boot", boot_with_initrd(there=False, files=0), {"M11": "none for kernel"}),
    ("boot", {"words": [["/etc/default/grub", "modprobe.blacklist=a,nvidia"]]}, {"N39": "blacklist=a,nvidia"}),
    ("boot", {"words": [["/etc/default/grub", "modprobe.blacklist=nouveau"], ["x", "nvidia-drm.modeset=1"]]}, {}),
    ("boot", {"words": [["/etc/default/grub", "systemd.unit=rescue.target"]]}, {"M10": "systemd.unit=rescue.target"}),
    ("boot", {"words": [["/etc/default/grub", "GRUB_DEFAULT=1>2"]]}, {"M10": "GRUB_DEFAULT=1>2"}),
    ("boot", {"grub": Grub("1>2", True, "5.0", [], False)}, {"M10": "'1>2' once, kernel 5.0"}),
    ("path_permissions", {"mounts": [replace(SEPARATE, boot=False)]}, {"M05": "/srv/models on /srv"}),
    ("path_permissions", {"mounts": [replace(SEPARATE, boot=False, kind="zfs")]}, {}),
    ("boot", {"away": ["/dev/sdz on /x"]}, {"M06": "/dev/sdz on /x"}),
    ("boot", {"shutdown": "USEC=1 MODE=reboot"}, {"M07": "USEC=1 MODE=reboot"}),
    ("packages", packages_with(listed=None), {"N44": "has no list of files"}),
    ("packages", packages_with(files=[]), {"N44": "a.deb is missing"}),
    (
        "packages",
        packages_with(files=[*PACKAGES.kept[0].files, KeptFile("b.deb", 1, "")]),
        {"N44": "b.deb is not listed"},
    ),
    ("packages", packages_with(files=[KeptFile("a.deb", 9, "1" * 64)]), {"N44": "a.deb has different contents"}),
    (
        "packages",
        {"pins": [AptPin("/etc/apt/preferences.d/0", "/^libcu/", "version 1", "1001")]},
        {"N45": "/^libcu/ version 1 (1001)"},
    ),
    ("packages", {"pins": [AptPin("/etc/apt/preferences.d/0", "*", "release a=stable", "900")]}, {}),
]


def test_a_sound_host_is_green() -> None:
    assert red(dict(SOUND)) == {}


@pytest.mark.parametrize(("section", "changes", "expected"), SICK)
def test_each_sick_host_turns_its_checks_red_and_no_other(
    section: str, changes: dict[str, Any], expected: dict[str, str]
) -> None:
    told: dict[str, Any] = copy.deepcopy(SOUND)
    told[section] = replace(told[section], **changes)
    found = red(told)
    assert set(found) == set(expected)
    for name, part in expected.items():
        assert part in found[name]


@pytest.mark.parametrize(("file", "is_red"), [("rigwright-nvidia.conf", False), ("x.conf", True)])
def test_the_file_that_keeps_nouveau_from_an_operators_own_driver_may_stay_packed(file: str, is_red: bool) -> None:
    boot = replace(BOOT, **boot_with_initrd(differs=[[f"etc/modprobe.d/{file}", "is not on the disk"]]))
    survey = SurveyAnswers({"boot": {"told": asdict(boot)}, "kernel": {"told": asdict(SOUND["kernel"])}})
    own = MANAGED.driver.model_copy(update={"managed": False})
    with pytest.raises(Drift) if is_red else nullcontext():
        test_nvidia_boot.test_initrd(survey, MANAGED.cards, own)


def test_every_check_is_seen_red() -> None:
    assert {name for _, _, expected in SICK for name in expected} == set(CHECKS)
