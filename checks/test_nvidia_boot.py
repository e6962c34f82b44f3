"""The driver and cards after the next boot: loaded modules, their options, and files that win over ours."""

from __future__ import annotations

import re

import pytest

from checks import DEPLOY, Drift, ItemText, check
from checks.nvidia import (
    expect_no_items,
    find_main_module,
    kernel_state,
    relevant_kernels,
    skip_unless_managed,
    skip_without_cards,
)
from checks.nvidia.driver_status import REBOOT
from checks.remedy import Remedy, host_command, instruction, reinstall_packages
from checks.survey.answers import SurveyAnswers
from checks.survey.kernel import BOOT, KERNEL
from rigwright.model.catalog_schema import Card
from rigwright.model.inventory_schema import DriverEntry
from rigwright.nvidia.driver.driver_facts import MODPROBE

# Modes and owners of device files, as the module makes them without options (NVIDIA, README, "device files")
DEVICE_MODE = 0o666
# Words of a kernel's command line by which no card is driven, or by another module
AGAINST = re.compile(
    r"(?:rd\.driver\.|modprobe\.|module_)(?:blacklist|denylist)=(?:.*,)?nvidia|nvidia\.[A-Za-z]+=|nouveau\.modeset=1|"
    r"vfio-pci\.ids=.*10de|initcall_blacklist=.*nv"
)


@check(
    "N30",
    "the loaded modules are the ones on disk",
    severity="high",
    why="after the next boot, a module that differs from the loaded one is another driver",
)
def test_loaded_is_on_disk(survey: SurveyAnswers, declared_cards: tuple[Card, ...]) -> None:
    skip_without_cards(declared_cards)
    kernel = survey.read(KERNEL)
    here = next((one for one in kernel.kernels if one.release == kernel.running), None)
    lying = {
        re.sub(r"\.ko.*", "", one.filename.rpartition("/")[2]).replace("-", "_"): one
        for one in (here.modules if here else [])
        if one.vermagic  # N31 names those that kmod cannot read
    }
    main = find_main_module(here) if here else None
    if main and main.version != kernel.loaded.get("nvidia", [main.version])[0]:
        return  # an upgrade without a reboot: N09 says so
    wrong: list[str] = []
    for name, (version, source) in sorted(kernel.loaded.items()):
        there = main if name == "nvidia" else lying.get(name)
        if there and source and there.srcversion and source != there.srcversion:
            shown = f"{name} built from other source than {there.filename}"
            wrong.append(ItemText(shown, f"{shown}: {source}"))
        elif there and version and there.version and version != there.version:
            wrong.append(f"{name} {version}, and {there.filename} is {there.version}")
    expect_no_items(
        "each loaded driver module to be the one on disk",
        wrong,
        REBOOT,
    )


@check(
    "N31",
    "the driver's modules are complete, and not shadowed, for this kernel and the next",
    severity="critical",
    why="modprobe takes the first match: a module in another directory is loaded instead of the driver's",
)
def test_modules_closed(survey: SurveyAnswers, declared_cards: tuple[Card, ...]) -> None:
    skip_without_cards(declared_cards)
    kernel = survey.read(KERNEL)
    releases = relevant_kernels(survey) or [kernel.running]
    wrong = []
    for one in (one for one in kernel.kernels if one.release in releases):
        built = [build for build in kernel.dkms if build.kernel == one.release and build.state == "installed"]
        wrong += [f"{path} is writable by users other than root" for path in one.loose]
        for path in one.lying:
            ours = bool(built) and "/updates/dkms/" in path
            if path not in one.owned and not ours and "/nvidia" in path:
                wrong.append(f"{path}, which comes from neither a package nor DKMS")
        main = find_main_module(one)
        names = {module.filename.rpartition("/")[2].partition(".ko")[0].replace("_", "-") for module in one.modules}
        if main and not any(name.endswith("uvm") for name in names):
            wrong.append(f"no nvidia-uvm for kernel {one.release}")
        wrong += [
            f"{module.filename} for kernel {module.vermagic.split(' ')[0]}"
            for module in one.modules
            if module.vermagic and module.vermagic.split(" ")[0] != one.release
        ]
        wrong += [f"{module.filename}, which kmod cannot read" for module in one.modules if not module.vermagic]
        if main and main.vermagic:
            wrong += [
                f"{module.filename} {module.version} beside {main.version}"
                for module in one.modules
                if module.vermagic and module.version != main.version
            ]
    expect_no_items(
        "only driver modules from its packages and DKMS",
        wrong,
        instruction("remove the files that come from neither a package nor DKMS")
        + host_command(
            "for kernel in {}; do chmod -R go-w /lib/modules/$kernel; dkms autoinstall --force -k $kernel; "
            "depmod $kernel; done",
            releases,
        ),
    )


@check(
    "N32",
    "DKMS builds the driver from its packaged source",
    severity="high",
    why="DKMS builds the next kernel's module from any other source that it finds",
)
def test_dkms_source(survey: SurveyAnswers, declared_cards: tuple[Card, ...]) -> None:
    skip_without_cards(declared_cards)
    kernel = survey.read(KERNEL)
    if not kernel.dkms:
        pytest.skip("DKMS has no module of the driver")
    wrong = [
        f"nvidia {one.version} from {one.source}"
        for one in kernel.dkms
        if one.source != f"/usr/src/{one.name}-{one.version}" and one.state != "broken"
    ]
    expect_no_items(
        "only packaged DKMS sources",
        sorted(set(wrong)),
        instruction("remove it") + host_command("dkms autoinstall --force"),
    )


@check(
    "N33",
    "kernel headers are installed for the next boot's kernel",
    severity="low",
    why="without them the next driver upgrade builds no module, and the box comes up without cards",
)
def test_headers(survey: SurveyAnswers, declared_cards: tuple[Card, ...], driver_entry: DriverEntry) -> None:
    skip_unless_managed(declared_cards, driver_entry)
    kernel = survey.read(KERNEL)
    if not kernel.dkms:
        pytest.skip("DKMS has no module of the driver")
    newest = kernel_state(survey).newest.release
    there = [one.release for one in kernel.kernels if one.headers]
    if newest not in there:
        raise Drift(
            f"headers of kernel {newest}, which boots next",
            "none",
            reinstall_packages(f"linux-headers-{newest}"),
        )


@check(
    "N35",
    "the next boot's initramfs has the same modules and modprobe settings as the disk",
    severity="critical",
    why="the initramfs precedes the disk's files: nouveau takes the cards, or other options apply",
)
def test_initrd(survey: SurveyAnswers, declared_cards: tuple[Card, ...], driver_entry: DriverEntry) -> None:
    """Modules of the driver's, scripts and files for modprobe are compared; other programs in it are not.

    Rigwright's own file stays in it once the operator manages the driver: it keeps nouveau from the cards.
    """
    skip_without_cards(declared_cards)
    boot = survey.read(BOOT)
    releases = relevant_kernels(survey)
    if not releases or not boot.makes:
        pytest.skip("no kernel boots from this system's own disk, or another tool makes its initramfs")
    # a file that cannot be read to its end is M11's
    there = [one for one in boot.initrds if one.release in releases and one.files and not one.problem]
    kept = "" if driver_entry.managed else MODPROBE.lstrip("/")
    differing = [(one.release, *row) for one in there for row in one.differs if "mod" in row[0] and row[0] != kept]
    wrong = [f"{release}: {path} {how}" for release, path, how in differing]
    wrong += [f"{one.release}: lacks {path}" for one in there if not boot.dracut for path in one.lacking]
    pack = host_command("for kernel in {}; do update-initramfs -u -k $kernel; done", releases)
    expect_no_items("the same modules and modprobe files as on disk", wrong, pack + DEPLOY)


@check(
    "N37",
    "the cards' device files are real, and services may open them",
    severity="critical",
    why="services do not run as root: without device files they find no card, and fall back to the CPU or fail",
)
def test_device_modes(survey: SurveyAnswers, declared_cards: tuple[Card, ...], driver_entry: DriverEntry) -> None:
    skip_without_cards(declared_cards)
    kernel = survey.read(KERNEL)
    options = driver_entry.module_options
    mode = int(options.get("NVreg_DeviceFileMode", DEVICE_MODE))
    owner = (int(options.get("NVreg_DeviceFileUID", 0)), int(options.get("NVreg_DeviceFileGID", 0)))
    wrong, cure = [], Remedy(())
    for one in kernel.devices:
        if one.kind != "device":
            cure += instruction(f"remove {one.path}: nvidia-modprobe makes the device file")
            wrong.append(f"{one.path} is a {one.kind}")
        elif (one.mode, one.uid, one.gid) != (mode, *owner):
            user = f"{owner[0]}:{owner[1]}"
            cure += host_command("chown {1} {0}; chmod {2} {0}", one.path, user, f"{mode:o}")
            wrong.append(f"{one.path} has mode {one.mode:o} of {one.uid}:{one.gid}")
    expect_no_items(
        f"device files of mode {mode:o}, of {owner[0]}:{owner[1]}",
        wrong,
        cure,
    )


@check(
    "N39",
    "the kernel command line leaves the cards to the driver",
    severity="critical",
    why="a module that is blacklisted there is never loaded, regardless of configuration files",
)
def test_command_line(survey: SurveyAnswers, declared_cards: tuple[Card, ...]) -> None:
    skip_without_cards(declared_cards)
    boot = survey.read(BOOT)
    words = [(path, word) for path, word in boot.words] + [
        ("grub.cfg", word) for word in (boot.grub.words if boot.grub else [])
    ]
    wrong = [f"{path}: {word}" for path, word in words if AGAINST.search(word)]
    expect_no_items(
        "no option against the driver on the next boot's command line",
        wrong,
        instruction("remove it from that file") + host_command("update-grub") + REBOOT,
    )
