"""Drivers of one piece that stay as they are, and the messages about others."""

from dataclasses import replace
from typing import Any

import pytest

from checks.nvidia.package_state import (
    KERNEL_DAYS,
    find_branch_differences,
    find_hold_differences,
    find_lock_differences,
    find_missed_security,
    find_mixed_packages,
    find_pending_reboot,
)
from rigwright.nvidia.driver.driver_facts import DriverFacts, InstalledPackage
from rigwright.nvidia.driver.kernel_facts import KernelFacts, KernelModule
from tests.unit.driver_samples import SERVER, UBUNTU, debian_packages, driverless_host, installed_facts
from tests.unit.nvidia_host import difference_pairs

RUNNING, NEXT = "6.8.0-40-generic", "6.8.0-90-generic"
VERSION = "580.159.03"
HOLDS = (*SERVER[1:], "linux-image-generic")
SOUND: DriverFacts = driverless_host(**installed_facts("Ubuntu", UBUNTU, *SERVER))
STATE = KernelFacts(
    RUNNING,
    (KernelModule(RUNNING, True, VERSION, "", ""),),
    holds=frozenset(HOLDS),
    unattended=True,
    blacklist=("nvidia-", "libnvidia-", "linux-modules-nvidia-.*", "linux-image-"),
    candidates=tuple((name, UBUNTU) for name in SERVER),
)
LOCKED = dict.fromkeys(SERVER, UBUNTU) | {"libnvidia-gl-580-server": UBUNTU}


def also(*ones: InstalledPackage) -> DriverFacts:
    return replace(SOUND, packages=(*SOUND.packages, *ones))


def test_a_sound_host_has_no_difference() -> None:
    assert (
        find_mixed_packages(SOUND)
        == find_lock_differences(SOUND, VERSION, LOCKED)
        == find_hold_differences(STATE, SOUND, HOLDS)
        == []
    )
    assert (
        find_branch_differences(STATE, SOUND)
        == find_pending_reboot(STATE)
        == find_missed_security(STATE, SOUND, HOLDS)
        == []
    )
    nvidia = driverless_host(
        "debian-12", **installed_facts("NVIDIA", "580.178.04-1", *debian_packages(), "libcuda1", "nvidia-driver-libs")
    )
    assert find_mixed_packages(nvidia) == []


@pytest.mark.parametrize(
    "beside",
    [
        # they have versions of their own
        InstalledPackage("nvidia-settings", "510.47.03-0ubuntu4"),
        InstalledPackage("nvidia-prime", "0.8.17.1"),
        InstalledPackage("nvidia-container-toolkit", "1.19.1-1"),
        InstalledPackage("linux-modules-nvidia-580-server-open-6.8.0-40-generic", "6.8.0-40.40"),
        # one a version, and the old ones stay
        InstalledPackage("nvidia-firmware-580-server-580.126.09", "580.126.09-0ubuntu0.24.04.1"),
    ],
)
def test_packages_next_to_the_driver_are_no_part_of_it(beside: InstalledPackage) -> None:
    assert find_mixed_packages(also(beside)) == []


@pytest.mark.parametrize(
    ("beside", "differences"),
    [
        # cut off in the middle of an upgrade
        (
            [InstalledPackage("libnvidia-gl-580-server", "580.178.04-0ubuntu0.24.04.1")],
            [
                (
                    "one driver version in all packages",
                    f"580.159.03: {', '.join(sorted(SERVER))}; 580.178.04: libnvidia-gl-580-server",
                )
            ],
        ),
        (
            [InstalledPackage("libnvidia-gl-580", UBUNTU)],
            [
                (
                    "packages of one kind, server or desktop",
                    "libnvidia-compute-580-server, nvidia-compute-utils-580-server, "
                    "nvidia-headless-no-dkms-580-server-open, nvidia-utils-580-server beside libnvidia-gl-580",
                )
            ],
        ),
        # Ubuntu has published 580 under the names of 570
        (
            [InstalledPackage("nvidia-driver-570-server", UBUNTU)],
            [
                (
                    "a driver of the branch that nvidia-driver-570-server is named after",
                    "580.159.03: it is a transitional package",
                )
            ],
        ),
    ],
)
def test_a_driver_of_two_pieces_is_reported(beside: list[InstalledPackage], differences: list[tuple[str, str]]) -> None:
    facts = also(*beside)
    # the kernel's metapackage of modules has the kernel's version
    modules = {"linux-modules-nvidia-580-server-open-generic": "6.8.0-40.40"}
    facts = replace(facts, packages=tuple(replace(p, version=modules.get(p.name, p.version)) for p in facts.packages))
    expected = [(one, found.replace(f"{next(iter(modules))}, ", "")) for one, found in differences]
    assert difference_pairs(find_mixed_packages(facts)) == expected


@pytest.mark.parametrize(
    ("facts", "differences"),
    [
        (driverless_host(), [(f"the packages of driver {VERSION}", "none")]),
        (
            driverless_host(**installed_facts("Ubuntu", "580.178.04-0ubuntu0.24.04.1", *SERVER)),
            [(f"the locked driver {VERSION}", "580.178.04")],
        ),
        # the same driver, packaged anew
        (
            also(InstalledPackage("libnvidia-gl-580-server", "580.159.03-0ubuntu0.24.04.2")),
            [
                (
                    "the locked libnvidia-gl-580-server 580.159.03-0ubuntu0.24.04.1",
                    "libnvidia-gl-580-server 580.159.03-0ubuntu0.24.04.2",
                )
            ],
        ),
        # packages outside of the lock are not its business
        (also(InstalledPackage("nvidia-settings", "510.47.03-0ubuntu4")), []),
    ],
)
def test_another_driver_than_the_locked_one_is_reported(facts: DriverFacts, differences: list[tuple[str, str]]) -> None:
    assert difference_pairs(find_lock_differences(facts, VERSION, LOCKED)) == differences


@pytest.mark.parametrize(
    ("changes", "differences"),
    [
        (
            {"holds": frozenset(HOLDS) - {"linux-image-generic", "nvidia-utils-580-server"}},
            [("a hold on linux-image-generic, nvidia-utils-580-server", "none")],
        ),
        (
            {"blacklist": ("nvidia-", "linux-modules-nvidia-.*")},
            [("unattended-upgrades to leave linux-image-generic alone", "no matching blacklist entry")],
        ),
        # a pattern fits from the beginning of a name; an invalid one fits nothing
        (
            {"blacklist": ("nvidia-", "linux-modules-nvidia-.*", "image", "linux-image-(")},
            [("unattended-upgrades to leave linux-image-generic alone", "no matching blacklist entry")],
        ),
        ({"unattended": False, "blacklist": ()}, []),
    ],
)
def test_a_driver_that_something_may_upgrade_is_reported(
    changes: dict[str, Any], differences: list[tuple[str, str]]
) -> None:
    holds = (*HOLDS, "nvidia-not-installed")
    assert difference_pairs(find_hold_differences(replace(STATE, **changes), SOUND, holds)) == differences


@pytest.mark.parametrize(
    ("candidate", "found"),
    [
        (("nvidia-utils-580-server", "580.178.04-0ubuntu0.24.04.1"), []),
        (("nvidia-utils-580-server", "595.71.05-1"), ["nvidia-utils-580-server 595.71.05-1"]),
        # a held kernel is not the driver's
        (("linux-image-generic", "6.8.0-90.90"), []),
        (("nvidia-settings", "610.43.02-1"), []),
    ],
)
def test_another_branch_on_offer_is_reported(candidate: tuple[str, str], found: list[str]) -> None:
    state = replace(STATE, candidates=(*STATE.candidates, candidate))
    assert difference_pairs(find_branch_differences(state, SOUND)) == [
        ("apt to offer only branch 580", one) for one in found
    ]


@pytest.mark.parametrize(
    ("changes", "differences"),
    [
        (
            {"reboot": True, "reboot_for": ("linux-image-6.8.0-90-generic", "libc6")},
            [("no reboot to be pending", "for libc6, linux-image-6.8.0-90-generic")],
        ),
        ({"reboot": True}, [("no reboot to be pending", "one is pending")]),
        # came back on the old kernel
        (
            {"kernels": (*STATE.kernels, KernelModule(NEXT, True, VERSION, "", ""))},
            [(f"kernel {NEXT}, the newest that is installed", RUNNING)],
        ),
    ],
)
def test_a_pending_reboot_is_reported(changes: dict[str, Any], differences: list[tuple[str, str]]) -> None:
    assert difference_pairs(find_pending_reboot(replace(STATE, **changes))) == differences


@pytest.mark.parametrize(
    ("module", "step"), [(VERSION, "wait until no request is under way"), ("", "do not reboot yet: ")]
)
def test_no_reboot_leads_into_a_kernel_without_the_module(module: str, step: str) -> None:
    kernels = (*STATE.kernels, KernelModule(NEXT, True, module, "", ""))
    for asked in (False, True):
        found = find_pending_reboot(replace(STATE, kernels=kernels, reboot=asked))
        assert [one.cure.startswith(step) for one in found] == [True] * (1 + asked)
    # a host without any driver has nothing to lose
    bare = replace(STATE, kernels=(replace(STATE.kernels[0], version=""), KernelModule(NEXT, True, "", "", "")))
    assert [one.cure for one in find_pending_reboot(bare)] == [
        "wait until no request is under way; then as root on the host: systemctl reboot"
    ]


WAITING = (("linux-image-generic", "6.8.0-90.91"), ("linux-image-generic", "6.8.0-85.85"), ("libc6", "2.39-1"))


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"security": WAITING, "kernel_days": KERNEL_DAYS}, ["6.8.0-90.91"]),
        ({"security": WAITING, "kernel_days": KERNEL_DAYS - 1}, []),
        ({"security": WAITING, "kernel_days": None}, []),
        ({"security": WAITING[2:], "kernel_days": 400}, []),
        # the operator's choice
        ({"security": WAITING, "kernel_days": 400, "holds": frozenset()}, []),
    ],
)
def test_security_updates_that_a_hold_keeps_away_for_long_are_reported(
    changes: dict[str, Any], found: list[str]
) -> None:
    differences = find_missed_security(replace(STATE, **changes), SOUND, HOLDS)
    assert difference_pairs(differences) == [
        (
            "the security updates of linux-image-generic",
            f"{version} is available, and the running kernel was built {changes['kernel_days']} days ago",
        )
        for version in found
    ]


DEBIAN = driverless_host("debian-13", **installed_facts("NVIDIA", "595.71.05-1", *debian_packages(), "libcuda1"))


@pytest.mark.parametrize(
    ("facts", "changes", "said"),
    [
        # the operator's own hold, until there is a driver that builds for the next kernel
        (
            DEBIAN,
            {"holds": frozenset({"linux-image-amd64"}), "security": (("linux-image-amd64", "6.12.107-1"),)},
            [
                (
                    "the security updates of linux-image-amd64",
                    "6.12.107-1 is available, and the running kernel was built 42",
                )
            ],
        ),
        # or what brings them removed, for the same reason
        (
            replace(DEBIAN, kernel_packages=()),
            {"holds": frozenset(debian_packages())},
            [("a metapackage for security updates", "none for 6.12.94+deb13-amd64, which was built 42")],
        ),
        (DEBIAN, {"holds": frozenset(debian_packages())}, []),
        (replace(DEBIAN, kernel="6.12.9-custom"), {"holds": frozenset(debian_packages())}, []),
        (replace(DEBIAN, kernel_packages=()), {"holds": frozenset(debian_packages()), "kernel_days": 1}, []),
    ],
)
def test_a_kernel_that_the_host_builds_for_and_that_is_kept_back_is_reported(
    facts: DriverFacts, changes: dict[str, Any], said: list[tuple[str, str]]
) -> None:
    state = KernelFacts(facts.kernel, (KernelModule(facts.kernel, True, "595.71.05", "", ""),), kernel_days=KERNEL_DAYS)
    found = find_missed_security(replace(state, **changes), facts, debian_packages())
    assert [expected for expected, _ in difference_pairs(found)] == [expected for expected, _ in said]
    assert all(there.startswith(start) for (_, there), (_, start) in zip(difference_pairs(found), said, strict=True))
    # an upgrade of the driver moves a kernel only with modules that were made for it
    assert not any("upgrade the driver" in one.cure for one in found)


def test_a_hold_on_a_kernel_that_neither_runs_nor_boots_next_keeps_no_update_from_it() -> None:
    """generic next to generic-hwe-24.04: a held kernel stays so until the next upgrade lets go of it."""
    newer = "6.14.0-27-generic"
    facts = replace(
        SOUND,
        kernel=newer,
        kernel_packages=(*SOUND.kernel_packages, ("linux-image-generic-hwe-24.04", newer)),
        kernel_modules=((newer, VERSION),),
    )
    state = replace(STATE, holds=frozenset({"linux-image-generic"}), security=WAITING, kernel_days=KERNEL_DAYS)
    assert find_missed_security(state, facts, ("linux-image-generic-hwe-24.04",)) == []
