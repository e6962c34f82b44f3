"""The machine under it all: root's programs, apt's allowed packages, and the next boot."""

from __future__ import annotations

import re

import pytest

from checks import Drift, check
from checks.nvidia import expect_no_items, kernel_state
from checks.remedy import (
    Remedy,
    host_command,
    instruction,
    reinstall_packages,
    remove_diversion,
    remove_override,
)
from checks.survey.answers import SurveyAnswers
from checks.survey.boot_settings import NETWORK, SETTINGS, WAYS_IN, BootSettings
from checks.survey.kernel import BOOT
from checks.survey.packages import FILES
from checks.survey.trees import WAYS
from rigwright.model.catalog_schema import Card
from rigwright.model.roots import Roots

# Words of a kernel's command line by which a box comes up without services, or with another program in init's place
ELSEWHERE = re.compile(
    r"(?:rd\.)?systemd\.(?:unit|mask)=.*|r?d?init=.*|single|[sS1]|emergency|rescue|rd\.break.*|break(?:=.*)?|systemd\.debug[-_]shell.*"
)


@check(
    "M01",
    "programs that root and the services run are as packaged",
    severity="critical",
    why="a replaced system program or library controls the box",
)
def test_programs(survey: SurveyAnswers, declared_cards: tuple[Card, ...]) -> None:
    """Of the packages that a boot, a deploy and our services need; an inode that has not changed since is not read."""
    files = survey.read(FILES)
    # of a rig with cards, what the next boot starts has a check of its own
    found = [one for one in files.findings if not declared_cards or one.package not in files.strict]
    names = sorted({one.package for one in found})
    paths = {one.path for one in found}
    cure = sum((remove_diversion(path) for path, to, _ in files.moved if paths & {path, to}), Remedy(()))
    cure = sum((remove_override(path) for path in files.overridden if path in paths), cure)
    cure += reinstall_packages(*names) if names else instruction("restore them, and find the cause of the change")
    expect_no_items(
        "programs and libraries as packaged",
        [f"{one.path} {one.what}" for one in found],
        cure,
    )


@check(
    "M05",
    "the file systems under Rigwright's directories are mounted at boot",
    severity="critical",
    why="a disk mounted by hand is missing after a boot, with its weights, engines or records",
)
def test_mounts(survey: SurveyAnswers, roots: Roots) -> None:
    ways = survey.read(WAYS)
    wrong = [
        f"{root} on {mount.point}"
        for root in (roots.config, roots.software, roots.state, roots.models)
        if (mount := ways.mount_of(ways.real.get(root, root)))
        # ZFS mounts its file systems by itself
        if mount.point != "/" and not mount.boot and mount.kind not in ("overlay", "zfs")
    ]
    expect_no_items(
        "an /etc/fstab entry or a unit for each mount under Rigwright's directories",
        wrong,
        instruction("add it to /etc/fstab"),
    )


@check(
    "M06",
    "no missing disk delays the next boot",
    severity="critical",
    why="systemd waits 90 seconds for the disk, then asks for root's password on the console",
)
def test_table(survey: SurveyAnswers) -> None:
    expect_no_items(
        "the devices of all /etc/fstab entries",
        survey.read(BOOT).away,
        instruction("remove the entry, or add nofail to it"),
    )


@check(
    "M07",
    "no shutdown is scheduled",
    severity="high",
    why="the box goes down at the scheduled time",
)
def test_shutdown(survey: SurveyAnswers) -> None:
    scheduled = survey.read(BOOT).shutdown
    expect_no_items("none", [scheduled] if scheduled else [], host_command("shutdown -c"))


@check(
    "M08",
    "SSH and the network come up at boot",
    severity="high",
    why="a box without SSH cannot be checked or repaired",
)
def test_way_in(survey: SurveyAnswers) -> None:
    settings = survey.read(SETTINGS)
    there = {name: settings.unit_property(name, "UnitFileState") for name in WAYS_IN}
    if not any(settings.unit_property(name, "LoadState") in ("loaded", "masked") for name in WAYS_IN):
        pytest.skip("this host's SSH server is not OpenSSH")
    if not {"enabled", "enabled-runtime", "alias", "static"} & set(there.values()):
        said = ", ".join(f"{name} {word}" for name, word in there.items() if word)
        raise Drift("sshd to start at boot", said, host_command("systemctl unmask {0}; systemctl enable {0}", "ssh"))
    expect_no_items(
        "a valid sshd configuration", settings.sshd, instruction("correct it until `sshd -t` prints no error")
    )
    off = [name for name in NETWORK if settings.unit_property(name, "ActiveState") == "active" and _off(settings, name)]
    expect_no_items(
        "the active network services to be enabled",
        [f"{name} is not enabled" for name in off],
        host_command("systemctl unmask {0}; systemctl enable {0}", off),
    )


def _off(settings: BootSettings, name: str) -> bool:
    return settings.unit_property(name, "UnitFileState") in (
        "disabled",
        "masked",
        "masked-runtime",
    )


@check(
    "M10",
    "the boot loader starts the newest kernel, with the system's own init and target",
    severity="high",
    why="an older kernel may lack the driver, and another target or init starts no instance",
)
def test_boot_loader(survey: SurveyAnswers) -> None:
    boot = survey.read(BOOT)
    wrong = [f"{path}: {word}" for path, word in boot.words if ELSEWHERE.fullmatch(word)]
    wrong += [f"{path}: {word}" for path, word in boot.words if word == "GRUB_TIMEOUT=-1"]
    wrong += [f"{path}: {word}" for path, word in boot.words if re.fullmatch(r"GRUB_DEFAULT=(?!0$|saved$|$).*", word)]
    if boot.grub:
        wrong += [f"grub.cfg: {word}" for word in boot.grub.words if ELSEWHERE.fullmatch(word)]
        wrong += ["grub.cfg: set timeout=-1, which waits at the menu forever"] if boot.grub.waits else []
        newest = kernel_state(survey).newest.release
        if boot.grub.kernel and boot.grub.kernel not in (newest, "vmlinuz"):
            wrong.append(f"entry {boot.grub.chosen!r}{' once' if boot.grub.once else ''}, kernel {boot.grub.kernel}")
    expect_no_items(
        "the newest kernel with the system's own target and init",
        wrong,
        instruction("remove it from that file, or choose the newest entry with grub-set-default")
        + host_command("update-grub"),
    )


@check(
    "M11",
    "the next boot's initramfs is complete",
    severity="critical",
    why="a box with a truncated or missing initramfs does not boot",
)
def test_initrd(survey: SurveyAnswers) -> None:
    boot = survey.read(BOOT)
    there = kernel_state(survey)
    if not there.has_own_kernel or not boot.makes:
        pytest.skip("no kernel boots from this system's own disk, or another tool makes its initramfs")
    newest = there.newest.release
    wrong = []
    for one in (one for one in boot.initrds if one.release == newest):
        if not one.there:
            wrong.append(f"none for kernel {newest}")
        elif one.problem or not one.files:
            wrong.append(f"the one of kernel {newest} {one.problem or 'is empty'}")
        else:
            wrong += [f"{path} of kernel {newest} {how}" for path, how in one.differs if "mod" not in path]
    expect_no_items(
        "a complete initramfs with the system's own scripts", wrong, host_command("update-initramfs -c -k {}", newest)
    )
