"""What of its driver a host lacks, what apt keeps of it, and why the one that runs may not be it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rigwright.nvidia.driver.found import BusCard, DriverFacts, Package
from rigwright.nvidia.packages.wanted import behind, holds, lacking, transaction, unheld, unloaded
from tests.unit.driver_hosts import C3090, box
from tests.unit.driver_ours import KERNEL, LOCKED, NAMES, NEW, NEXT, OLD, UBUNTU_HOST, WHOLE, asked, other, rig

LACKING: dict[str, tuple[DriverFacts, list[str]]] = {
    "nothing": (WHOLE, []),
    "a package": (other(WHOLE, libcuda1=""), ["libcuda1 is not installed"]),
    "a package's version": (other(WHOLE, libcuda1=OLD), [f"libcuda1 is for {OLD}, not {NEW}"]),
    "a package's revision": (
        replace(
            WHOLE,
            packages=tuple(
                replace(one, version=f"{NEW}-0") if one.name == "libcuda1" else one for one in WHOLE.packages
            ),
        ),
        [f"libcuda1 is {NEW}-0, not {NEW}-1"],
    ),
    "the end of an installation": (
        replace(WHOLE, half=("nvidia-kernel-open-dkms",)),
        ["the installation of nvidia-kernel-open-dkms was not completed"],
    ),
    "a module for the kernel that boots next": (
        replace(WHOLE, kernel_modules=((KERNEL, NEW), (NEXT, ""))),
        [f"kernel {NEXT} has no module, {NEW} is required"],
    ),
    "the right module for that": (
        replace(WHOLE, kernel_modules=((KERNEL, NEW), (NEXT, OLD))),
        [f"kernel {NEXT} has the module {OLD}, {NEW} is required"],
    ),
    "a module for the kernel that runs, which a reboot mends": (
        replace(WHOLE, kernel_modules=((KERNEL, ""), (NEXT, NEW))),
        [],
    ),
    "an initial file system": (
        replace(WHOLE, old_initrds=(KERNEL,)),
        [f"the initramfs of kernel {KERNEL} lacks the declared module options"],
    ),
    "a kernel that is told": (
        replace(WHOLE, kernel_modules=()),
        [f"kernel {KERNEL} has no module, {NEW} is required"],
    ),
}


@pytest.mark.parametrize("name", LACKING)
def test_a_host_lacks(name: str) -> None:
    facts, expected = LACKING[name]
    assert lacking(LOCKED, facts) == expected


def test_a_host_that_lacks_what_comes_before_the_driver_has_it_installed() -> None:
    first = replace(LOCKED, plan=replace(LOCKED.plan, before=("linux-headers-amd64",)))
    bare = replace(WHOLE, headers=frozenset({f"linux-headers-{KERNEL}"}))
    (said,) = lacking(first, bare)
    assert said.startswith("linux-headers-amd64 is not installed")
    assert (transaction(first, bare), transaction(LOCKED, bare)) == (True, False)
    assert (lacking(first, WHOLE), transaction(first, WHOLE)) == ([], False)


def test_a_hold_that_is_gone_is_nothing_that_the_driver_lacks() -> None:
    facts = replace(WHOLE, held=WHOLE.held - {"libcuda1"})
    assert (lacking(LOCKED, facts), unheld(LOCKED, facts), unheld(LOCKED, WHOLE)) == ([], ["libcuda1 is not held"], [])


def test_a_host_that_has_what_is_to_go_lacks_its_removal() -> None:
    gone = replace(LOCKED, plan=replace(LOCKED.plan, removed=("nvidia-settings",)))
    settings = Package("nvidia-settings", "510.47.03-0ubuntu4")
    facts = replace(WHOLE, packages=(*WHOLE.packages, settings))
    assert lacking(gone, facts) == ["nvidia-settings is still installed"]
    assert lacking(LOCKED, facts) == []


def test_of_a_version_that_is_not_fixed_the_libraries_are_the_measure() -> None:
    adopted = asked(rig(), WHOLE)
    assert (adopted.version, lacking(adopted, WHOLE)) == ("", [])
    moved = other(replace(WHOLE, kernel_modules=((NEXT, NEW),)), libcuda1=OLD)
    assert f"nvidia-driver-cuda is for {NEW}, not {OLD}" in lacking(adopted, moved)
    assert f"kernel {NEXT} has the module {NEW}, {OLD} is required" in lacking(adopted, moved)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ((), []),
        ((Package("nvidia-container-toolkit", "1.20.0-1"),), []),
        ((Package("nvidia-settings", "510.47.03-0ubuntu4"),), []),
        ((Package("nvidia-modprobe", f"{NEW}-1"),), ["nvidia-modprobe"]),
        ((Package("libnvidia-ml1", f"{NEW}-1"),), ["libnvidia-ml1"]),
    ],
    ids=["the driver", "not a toolkit", "not a tool of its own", "a tool of the driver's", "what came along"],
)
def test_what_is_held_is_the_driver_as_it_is_there(more: tuple[Package, ...], expected: list[str]) -> None:
    facts = replace(WHOLE, packages=(*WHOLE.packages, *more))
    assert holds(LOCKED, facts) == sorted([*NAMES, *expected])


def test_a_kernel_is_held_with_modules_that_are_made_for_it_alone() -> None:
    assert "linux-image-generic" in holds(asked(box(C3090, managed=True), UBUNTU_HOST), UBUNTU_HOST)
    assert not [name for name in holds(LOCKED, WHOLE) if name.startswith("linux-image")]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (WHOLE, False),
        (other(WHOLE, libcuda1=OLD), True),
        (other(WHOLE, libcuda1=""), True),
        (replace(WHOLE, half=("libcuda1",)), True),
        (replace(WHOLE, held=frozenset()), False),
        (replace(WHOLE, kernel_modules=((NEXT, ""),)), False),
    ],
    ids=["nothing", "a version", "a package", "half a package", "a hold", "a module"],
)
def test_apt_is_asked_only_where_packages_come_or_go(facts: DriverFacts, expected: bool) -> None:
    assert transaction(LOCKED, facts) is expected


def test_apt_is_asked_where_a_package_is_to_go() -> None:
    gone = replace(LOCKED, plan=replace(LOCKED.plan, removed=("nvidia-settings",)))
    assert not transaction(gone, WHOLE)
    assert transaction(gone, other(WHOLE, nvidia_settings=OLD))
    assert gone.targets[-1] == "nvidia-settings-"
    assert "libcuda1=595.71.05-1" in gone.targets


NOUVEAU = (BusCard("0000:01:00.0", "10de:2204", "nouveau"),)
UNLOADED: dict[str, tuple[DriverFacts, str]] = {
    "it runs": (WHOLE, ""),
    "it can be loaded": (replace(WHOLE, module="", module_open=False, devices=False), ""),
    "it runs, from a file that is gone": (replace(WHOLE, kernel_modules=((KERNEL, ""), (NEXT, NEW))), ""),
    "nouveau is loaded": (replace(WHOLE, nouveau=True), "nouveau is bound to the cards"),
    "nouveau has a card": (replace(WHOLE, cards=NOUVEAU), "nouveau is bound to the cards"),
    "another version runs": (replace(WHOLE, module=OLD), f"the module {OLD} is loaded, {NEW} is installed"),
    "the other flavour runs": (replace(WHOLE, module_open=False), "the proprietary module is loaded"),
    "the kernel has none": (
        replace(WHOLE, module="", kernel_modules=((KERNEL, ""), (NEXT, NEW))),
        f"the running kernel {KERNEL} has no module {NEW}",
    ),
    "the kernel has another": (
        replace(WHOLE, module="", kernel_modules=((KERNEL, OLD), (NEXT, NEW))),
        f"the running kernel {KERNEL} has no module {NEW}",
    ),
}


@pytest.mark.parametrize("name", UNLOADED)
@pytest.mark.parametrize("fixed", [True, False], ids=["locked", "as it is"])
def test_a_reboot_is_asked_for_where(name: str, fixed: bool) -> None:
    facts, expected = UNLOADED[name]
    one = LOCKED if fixed else asked(rig(), WHOLE)
    assert unloaded(one, facts) == expected


def test_proprietary_modules_are_no_reason_where_they_are_wanted() -> None:
    closed = replace(LOCKED, plan=replace(LOCKED.plan, flavour="proprietary"))
    assert unloaded(closed, replace(WHOLE, module_open=False)) == ""
    assert unloaded(closed, WHOLE) == "the open module is loaded"


def test_a_kernel_lags_behind_the_modules_where_its_metapackage_brings_an_older_one() -> None:
    one, prefix = asked(box(C3090, managed=True), UBUNTU_HOST), "linux-modules-nvidia-580-server-open-"
    assert (one.kernel, LOCKED.kernel) == ("linux-image-generic", "")
    for release, late in {"6.8.0-40": False, "6.8.0-9": False, "6.8.0-45": True, "6.11.0-3": True}.items():
        modules = Package(f"{prefix}{release}-generic", f"{release}.1+1", "Ubuntu")
        facts = replace(UBUNTU_HOST, packages=(*UBUNTU_HOST.packages, modules))
        assert behind(one, facts) is late
        assert not behind(LOCKED, facts)
        assert not behind(one, replace(facts, kernel_packages=()))
    assert not behind(one, UBUNTU_HOST)


LOADED = (("EnableResizableBar", "0"), ("RmProfilingAdminOnly", "1"), ("UsePageAttributeTable", "4294967295"))
OPTIONS: dict[str, tuple[dict[str, int], tuple[tuple[str, str], ...], str]] = {
    "as it is loaded": ({"NVreg_EnableResizableBar": 0, "NVreg_RestrictProfilingToAdminUsers": 1}, LOADED, ""),
    "another value": (
        {"NVreg_EnableResizableBar": 1},
        LOADED,
        "the module is loaded with NVreg_EnableResizableBar=0, 1 is declared",
    ),
    "one that was left to the driver, and another": (
        {"NVreg_UsePageAttributeTable": 1, "NVreg_RestrictProfilingToAdminUsers": 0},
        LOADED,
        "the module is loaded with NVreg_RestrictProfilingToAdminUsers=1, 0 is declared; "
        "the module is loaded without NVreg_UsePageAttributeTable, 1 is declared",
    ),
    "one that it does not know": ({"NVreg_Old": 1}, LOADED, ""),
    "no module": ({"NVreg_EnableResizableBar": 1}, (), ""),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_that_are_not_in_force_ask_for_a_reboot(name: str) -> None:
    options, params, expected = OPTIONS[name]
    facts = replace(WHOLE, params=params)
    one = asked(rig(module_options=options), facts)
    assert (unloaded(one, facts), one.plan.reboot) == (expected, expected)
