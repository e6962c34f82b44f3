"""The machine under it all: what root runs, what apt may install, and what the next boot comes up with."""

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
    remove_drop_ins,
    remove_override,
)
from checks.survey.accounts import RIGHTS
from checks.survey.answers import SurveyAnswers
from checks.survey.base_system import GROUND, LOADER
from checks.survey.boot_settings import AT_BOOT, NEEDED, NETWORK, SETTINGS, WAYS_IN, BootSettings
from checks.survey.kernel import BOOT
from checks.survey.packages import FILES, PACKAGES
from rigwright.model.catalog_schema import Card
from rigwright.nvidia.driver.driver_files import UNATTENDED

# Words of a kernel's command line by which a box comes up without services, or with another program in init's place
ELSEWHERE = re.compile(
    r"(?:rd\.)?systemd\.(?:unit|mask)=.*|r?d?init=.*|single|[sS1]|emergency|rescue|rd\.break.*|break(?:=.*)?|systemd\.debug[-_]shell.*"
)


@check(
    "M01",
    "what root and the services run is as packaged",
    severity="critical",
    why="a replaced system program or library owns the box",
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
    cure += reinstall_packages(*names) if names else instruction("restore them, and find out what changed them")
    expect_no_items(
        "programs and libraries as packaged",
        [*(f"{one.path} {one.what}" for one in found), *map(str, survey.read(RIGHTS).changed)],
        cure,
    )


@check(
    "M02",
    "no program shadows one of the system's",
    severity="high",
    why="/usr/local comes first in root's PATH: a systemctl there is what the next deploy runs",
)
def test_shadows(survey: SurveyAnswers) -> None:
    shadows = survey.read(SETTINGS).shadows
    wrong = [f"{path} before {own}" for path, own in shadows if not re.search(r"/(?:nvidia-|dkms|nvcc)", path)]
    expect_no_items("no system program's name in /usr/local", wrong, instruction("remove or rename it"))


@check(
    "M13",
    "no library shadows one of the system's",
    severity="high",
    why="the library that is found first is loaded into every service at its next start",
)
def test_libraries(survey: SurveyAnswers) -> None:
    rows = survey.read(LOADER).before
    # the driver's own are N42's
    others = [row for row in rows if not re.match(r"lib(?:cuda|nvidia-|nvcuvid|nvoptix)", row[2])]
    wrong = [f"{name} in {folder}, which {file} names" for folder, file, name in others]
    expect_no_items(
        "no others on the loader's path",
        wrong,
        instruction("remove that line or the library") + host_command("ldconfig"),
    )
    put = survey.read(LOADER).put
    expect_no_items(
        "no variable that has a login's programs, such as a deploy's, load or run others",
        put,
        instruction("remove it from its file"),
    )


@check(
    "M03",
    "apt installs only signed packages",
    severity="high",
    why="an impersonated archive runs code as root here",
)
def test_signed(survey: SurveyAnswers) -> None:
    wrong = [f"{where}: {what}" for where, what in survey.read(PACKAGES).loose]
    expect_no_items("apt to require signatures", wrong, instruction("remove that line from it"))


@check(
    "M04",
    "apt and dpkg run only hooks that come with packages",
    severity="high",
    why="root runs them at each update and upgrade, unattended ones included",
)
def test_hooks(survey: SurveyAnswers) -> None:
    wrong = [f"{path}: {what}" for path, what in survey.read(PACKAGES).hooks if path != UNATTENDED]
    expect_no_items("only packaged hooks in their configuration", wrong, instruction("remove the file"))


@check(
    "M05",
    "the file systems under Rigwright's directories are mounted at boot",
    severity="critical",
    why="a disk mounted by hand is gone after a boot, and with it weights, engines or records",
)
def test_mounts(survey: SurveyAnswers) -> None:
    wrong = [
        f"{one.root} on {one.mounted}"
        for one in survey.read(BOOT).mounts
        if not one.again and one.type not in ("overlay",)
    ]
    expect_no_items(
        "an /etc/fstab entry or a unit for each mount under Rigwright's directories",
        wrong,
        instruction("add it to /etc/fstab"),
    )


@check(
    "M06",
    "no missing disk holds up the next boot",
    severity="critical",
    why="systemd waits 90 seconds for it, and then asks for root's password on the console",
)
def test_table(survey: SurveyAnswers) -> None:
    expect_no_items(
        "the devices of all /etc/fstab entries",
        survey.read(BOOT).away,
        instruction("remove the entry, or add nofail to it"),
    )


@check(
    "M07",
    "nothing will shut the box down or boot another system",
    severity="high",
    why="the box goes down at the scheduled time",
)
def test_shutdown(survey: SurveyAnswers) -> None:
    scheduled = survey.read(BOOT).shutdown
    expect_no_items("none", [scheduled] if scheduled else [], host_command("shutdown -c"))
    cure = instruction("remove the line from that file, unload the kernel of kexec, or make a machine id")
    expect_no_items("none", [str(one) for one in survey.read(GROUND).ends], cure)


@check(
    "M08",
    "SSH and the network come up at boot",
    severity="high",
    why="a box out of reach can be neither checked nor repaired",
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
        "a valid sshd configuration", settings.sshd, instruction("correct it, until `sshd -t` prints nothing")
    )
    off = [name for name in NETWORK if settings.unit_property(name, "ActiveState") == "active" and _off(settings, name)]
    expect_no_items(
        "the active network services to be enabled",
        [f"{name} is not enabled" for name in off],
        host_command("systemctl unmask {0}; systemctl enable {0}", off),
    )
    other = [f"{path}: {line}" for path, line in settings.kept_down]
    expect_no_items(
        "their own programs and interfaces", other, instruction("remove it") + host_command("systemctl daemon-reload")
    )


def _off(settings: BootSettings, name: str) -> bool:
    return name in settings.masked or settings.unit_property(name, "UnitFileState") in (
        "disabled",
        "masked",
        "masked-runtime",
    )


@check(
    "M09",
    "systemd-tmpfiles neither removes nor opens up Rigwright's directories",
    severity="critical",
    why="systemd-tmpfiles applies its rules at each boot and once a day",
)
def test_tmpfiles(survey: SurveyAnswers) -> None:
    rows = [row for row in survey.read(SETTINGS).rows if row.kind == "tmpfiles" and not row.brought]
    expect_no_items(
        "no tmpfiles.d line about Rigwright's directories",
        [f"{row.path}: {row.line}" for row in rows],
        instruction("remove that line"),
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
            wrong += [f"{path} of kernel {newest} {how}" for path, how in one.differs if "modules" not in path]
    expect_no_items(
        "a complete initramfs with the system's own scripts", wrong, host_command("update-initramfs -c -k {}", newest)
    )


@check(
    "M14",
    "sysctl settings expose nothing, starve nothing and run no unpackaged programs",
    severity="high",
    why="core dump and module helpers run as root; a loopback interface that is routed is open to the network",
    blind="emulators for programs of other machines alone, as containers register them: no file is named",
)
def test_kernel_settings(survey: SurveyAnswers) -> None:
    wrong = [f"{path}: {line}" for path, line in survey.read(SETTINGS).risky]
    expect_no_items(
        "no risky settings", wrong, instruction("remove the line from that file") + host_command("sysctl --system")
    )


@check(
    "M15",
    "no user becomes root without authentication",
    severity="critical",
    why="every local user, and every compromised service, would own the box",
)
def test_nobody_becomes_root(survey: SurveyAnswers) -> None:
    rights = survey.read(RIGHTS)
    expect_no_items(
        "no rule that lets everyone in", [str(one) for one in rights.open], instruction("remove it from that file")
    )
    wrong = [str(one) for one in rights.programs]
    expect_no_items(
        "only packaged setuid programs", wrong, instruction("check what it is, then remove it, or its setuid bit")
    )


@check(
    "M16",
    "what root starts can be changed by root alone",
    severity="critical",
    why="jobs, rules, units and login scripts run as root: write access to a program that one names is root access",
    blind="what a program starts itself, what root alone has put there, and units of users' own managers",
)
def test_what_root_starts(survey: SurveyAnswers) -> None:
    wrong = [str(one) for one in survey.read(RIGHTS).loose]
    cure = instruction("give what is named to root, with mode 755 at most, or remove the line")
    expect_no_items("programs in directories that only root can write to", wrong, cure)


@check(
    "M17",
    "sshd admits the deploying user, and each user only with a key of their own",
    severity="critical",
    why="a box that shuts its operator out at sshd's next start can only be repaired at its console",
)
def test_who_may_log_in(survey: SurveyAnswers) -> None:
    wrong = [str(one) for one in survey.read(RIGHTS).ways]
    cure = instruction("remove that line from the file in /etc/ssh") + host_command("sshd -t && systemctl reload ssh")
    expect_no_items("no setting that excludes you or admits others", wrong, cure)


@check(
    "M12",
    "systemd's own boot units are neither masked nor overridden",
    severity="high",
    why="settings are not applied, modules not loaded or logs not kept from the next boot on",
)
def test_boot_units(survey: SurveyAnswers) -> None:
    settings = survey.read(SETTINGS)
    masked = {name for name in (*AT_BOOT, *NEEDED) if settings.unit_property(name, "LoadState") == "masked"} | {
        *settings.masked
    }
    off = [name for name in (*AT_BOOT, *NEEDED) if name in masked]
    added = {
        path: f"{path} is added to {name}"
        for name in AT_BOOT
        for path in settings.unit_property(name, "DropInPaths").split()
        if not path.startswith(("/usr/", "/lib/", "/run/systemd/"))
    }
    unmask = host_command("systemctl unmask {0}; systemctl unmask --runtime {0}", off) if off else Remedy(())
    cure = remove_drop_ins([*added]) + unmask if added else unmask
    expect_no_items(
        "unmodified systemd units",
        [*(f"{name} is masked" for name in off), *added.values()],
        cure,
    )
