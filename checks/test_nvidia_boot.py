"""What the next boot makes of driver and cards: what is loaded, with which options, and what wins over ours."""

from __future__ import annotations

import re

import pytest

from checks import DEPLOY, Drift, check
from checks.nvidia import (
    expect_no_items,
    find_main_module,
    kernel_state,
    relevant_kernels,
    skip_unless_managed,
    skip_without_cards,
)
from checks.nvidia.driver_presence import REBOOT
from checks.remedy import Remedy, host_command, instruction, reinstall_packages
from checks.survey.answers import SurveyAnswers
from checks.survey.boot_settings import SETTINGS, SettingLine
from checks.survey.kernel import BOOT, KERNEL
from rigwright.containers.container_files import UDEV
from rigwright.model.catalog_schema import Card
from rigwright.model.containers.entry import ContainersEntry
from rigwright.model.inventory_schema import DriverEntry
from rigwright.monitoring import self_check
from rigwright.nvidia.cards.card_setting_files import SYSCTL
from rigwright.nvidia.driver.driver_facts import MODPROBE

# Modes and owners of device files, as the module makes them without options (NVIDIA, README, "device files")
DEVICE_MODE = 0o666
# Words of a kernel's command line by which no card is driven, or by another module
AGAINST = re.compile(
    r"(?:rd\.driver\.|modprobe\.|module_)(?:blacklist|denylist)=(?:.*,)?nvidia|nvidia\.[A-Za-z]+=|nouveau\.modeset=1|"
    r"vfio-pci\.ids=.*10de|initcall_blacklist=.*nv"
)
# An operator's own driver has an operator's own options, but no line for modprobe that keeps it from the cards
AWAY = re.compile(r"blacklist nvidia|install nvidia\S* (?!.*modprobe)|alias nvidia\S* off|vfio")


def foreign(rows: list[SettingLine], *kinds: str) -> list[SettingLine]:
    """Lines in files that are neither ours nor as a package brought them."""
    return [row for row in rows if row.kind in kinds and not row.brought and row.path not in (MODPROBE, SYSCTL)]


def describe_rows(rows: list[SettingLine]) -> list[str]:
    """Lines with their files."""
    return [f"{row.path}: {row.line}" for row in rows]


def harmless(line: str) -> bool:
    """Whether a line for modprobe, or of modules to load, asks for what is in force anyway."""
    return re.fullmatch(r"nvidia[_-]?[a-z]*", line) is not None or line in (
        "blacklist nouveau",
        "options nouveau modeset=0",
        "install nouveau /bin/false",
        "alias nouveau off",
    )


@check(
    "N30",
    "the loaded modules are the ones on disk",
    severity="high",
    why="a module loaded from elsewhere, or replaced on disk since, means another driver after the next boot",
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
    wrong = []
    for name, (version, source) in sorted(kernel.loaded.items()):
        there = main if name == "nvidia" else lying.get(name)
        if there and source and there.srcversion and source != there.srcversion:
            wrong.append(f"{name} built from other source than {there.filename}")
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
    "DKMS builds the driver from its packaged source and settings",
    severity="high",
    why="the next kernel's module is built from any other source or settings that it finds",
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
    wrong += describe_rows(foreign(survey.read(SETTINGS).rows, "dkms", "hidden dkms", "depmod"))
    expect_no_items(
        "only packaged DKMS sources and settings",
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
    "N34",
    "no other modprobe configuration affects the cards",
    severity="critical",
    why="an option, blacklist or alias in another file applies from the next boot: other settings, or no cards",
)
def test_modprobe(survey: SurveyAnswers, declared_cards: tuple[Card, ...], driver_entry: DriverEntry) -> None:
    skip_without_cards(declared_cards)
    rows = [
        row
        for row in foreign(survey.read(SETTINGS).rows, "modprobe", "hidden modprobe", "modules-load")
        if not harmless(row.line)
    ]
    if not driver_entry.managed:
        rows = [row for row in rows if AWAY.search(row.line)]
    expect_no_items(
        "no line about the cards in other modprobe files",
        describe_rows(rows),
        instruction("declare it in driver.module_options or remove it") + host_command("update-initramfs -u"),
    )


@check(
    "N35",
    "the next boot's initramfs has the same modules and modprobe settings as the disk",
    severity="critical",
    why="the initramfs comes before the disk's files: nouveau takes the cards, or other options apply",
)
def test_initrd(survey: SurveyAnswers, declared_cards: tuple[Card, ...], driver_entry: DriverEntry) -> None:
    """Modules of the driver's, scripts and lines for modprobe are compared; other programs in it are not."""
    skip_without_cards(declared_cards)
    boot, settings = survey.read(BOOT), survey.read(SETTINGS)
    releases = relevant_kernels(survey)
    if not releases or not boot.makes:
        pytest.skip("no kernel boots from this system's own disk, or another tool makes its initramfs")
    wrong = []
    disk = {row.line for row in settings.rows if row.kind == "modprobe"}
    own = {row.line for row in settings.rows if row.kind == "modprobe" and (row.brought or row.path == MODPROBE)}
    # what cannot be read to its end is M11's
    for one in (one for one in boot.initrds if one.release in releases and one.files and not one.problem):
        packed = {line for path, line in one.lines if "modprobe.d" in path}
        lacking = [] if boot.dracut else sorted(own - packed)
        wrong += [f"{one.release}: lacks `{line}`" for line in lacking]
        more = (line for line in packed - disk if driver_entry.managed or AWAY.search(line))
        wrong += [f"{one.release}: has `{line}`" for line in sorted(more)]
        wrong += [f"{one.release}: {path} {how}" for path, how in one.differs if "modules" in path]
    pack = host_command("for kernel in {}; do update-initramfs -u -k $kernel; done", releases)
    expect_no_items("the same modules and modprobe lines as on disk", wrong, pack + DEPLOY)


@check(
    "N36",
    "no other file overrides the declared sysctl settings at boot",
    severity="low",
    why="files are applied in the order of their names: the last one wins at each boot",
)
def test_sysctl_at_boot(survey: SurveyAnswers, driver_entry: DriverEntry) -> None:
    if not driver_entry.sysctl:
        pytest.skip("none are declared")
    settings = survey.read(SETTINGS)
    wrong = []
    for name, value in sorted(driver_entry.sysctl.items()):
        last: SettingLine | None = None
        for row in settings.rows:
            key = row.line.lstrip("-").partition("=")[0].strip().replace("/", ".")
            if row.kind == "sysctl" and (key == name or (last is None and "*" in key)):
                last = row
        there = last.line.partition("=")[2].strip() if last else ""
        if last is None or " ".join(there.split()) != str(value):
            wrong.append(f"{last.path} says {last.line}" if last else f"no file sets {name}")
    cure = instruction("remove the line from that file") if any(" says " in one for one in wrong) else DEPLOY
    expect_no_items("the declared settings to be applied last", wrong, cure)


@check(
    "N37",
    "the cards' device files are real, and services may open them",
    severity="critical",
    why="services do not run as root: without these they find no card, and fall back to the CPU or fail",
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
    "N38",
    "no udev rule but packaged ones affects the cards",
    severity="high",
    why="a udev rule can give a card to another driver, or its device files to another user, at each boot",
)
def test_udev(
    survey: SurveyAnswers, declared_cards: tuple[Card, ...], containers_entry: ContainersEntry | None
) -> None:
    skip_without_cards(declared_cards)
    settings = survey.read(SETTINGS)
    # K07 and Y02 have that the files are ours, and as they are rendered
    own = {self_check.UDEV, *([UDEV] if containers_entry else [])}
    rows = [row for row in foreign(settings.rows, "udev", "hidden udev") if row.kind != "udev" or row.path not in own]
    expect_no_items(
        "no such rule",
        describe_rows(rows),
        instruction("remove it") + host_command("udevadm control --reload") + REBOOT,
    )


@check(
    "N39",
    "the kernel command line leaves the cards to the driver",
    severity="critical",
    why="a module that is blacklisted there is never loaded, whatever the files say",
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
