"""The parts of its driver that a host lacks, that apt keeps, and why the running one may not be it."""

from dataclasses import replace

import pytest

from rigwright.host.pci_cards import PciCard
from rigwright.nvidia.driver.driver_facts import DriverFacts, InstalledPackage
from rigwright.nvidia.packages.driver_target import (
    describe_unloaded,
    find_missing_driver_parts,
    find_unheld_driver_packages,
    is_kernel_behind,
    needs_transaction,
    required_holds,
)
from tests.unit.driver_samples import C3090, driver_rig
from tests.unit.managed_driver_samples import (
    CONVERGED_HOST,
    KERNEL,
    LOCKED,
    NAMES,
    NEW,
    NEXT,
    OLD,
    UBUNTU_HOST,
    driver_target,
    managed_rig,
    with_versions,
)

LACKING: dict[str, tuple[DriverFacts, list[str]]] = {
    "nothing": (CONVERGED_HOST, []),
    "a package": (with_versions(CONVERGED_HOST, libcuda1=""), ["libcuda1 is not installed"]),
    "a package's version": (with_versions(CONVERGED_HOST, libcuda1=OLD), [f"libcuda1 is for {OLD}, not {NEW}"]),
    "a package's revision": (
        replace(
            CONVERGED_HOST,
            packages=tuple(
                replace(one, version=f"{NEW}-0") if one.name == "libcuda1" else one for one in CONVERGED_HOST.packages
            ),
        ),
        [f"libcuda1 is {NEW}-0, not {NEW}-1"],
    ),
    "the end of an installation": (
        replace(CONVERGED_HOST, half=("nvidia-kernel-open-dkms",)),
        ["the installation of nvidia-kernel-open-dkms was not completed"],
    ),
    "a module for the kernel that boots next": (
        replace(CONVERGED_HOST, kernel_modules=((KERNEL, NEW), (NEXT, ""))),
        [f"kernel {NEXT} has no module, {NEW} is required"],
    ),
    "the right module for that": (
        replace(CONVERGED_HOST, kernel_modules=((KERNEL, NEW), (NEXT, OLD))),
        [f"kernel {NEXT} has the module {OLD}, {NEW} is required"],
    ),
    "a module for the kernel that runs, which a reboot mends": (
        replace(CONVERGED_HOST, kernel_modules=((KERNEL, ""), (NEXT, NEW))),
        [],
    ),
    "an initial file system": (
        replace(CONVERGED_HOST, old_initrds=(KERNEL,)),
        [f"the initramfs of kernel {KERNEL} lacks the declared module options"],
    ),
    "a kernel that is told": (
        replace(CONVERGED_HOST, kernel_modules=()),
        [f"kernel {KERNEL} has no module, {NEW} is required"],
    ),
}


@pytest.mark.parametrize("name", LACKING)
def test_a_host_lacks(name: str) -> None:
    facts, expected = LACKING[name]
    assert find_missing_driver_parts(LOCKED, facts) == expected


def test_a_host_that_lacks_what_comes_before_the_driver_has_it_installed() -> None:
    first = replace(LOCKED, plan=replace(LOCKED.plan, before=("linux-headers-amd64",)))
    bare = replace(CONVERGED_HOST, headers=frozenset({f"linux-headers-{KERNEL}"}))
    (said,) = find_missing_driver_parts(first, bare)
    assert said.startswith("linux-headers-amd64 is not installed")
    assert (needs_transaction(first, bare), needs_transaction(LOCKED, bare)) == (True, False)
    assert (find_missing_driver_parts(first, CONVERGED_HOST), needs_transaction(first, CONVERGED_HOST)) == ([], False)


def test_a_hold_that_is_gone_is_nothing_that_the_driver_lacks() -> None:
    facts = replace(CONVERGED_HOST, held=CONVERGED_HOST.held - {"libcuda1"})
    assert (
        find_missing_driver_parts(LOCKED, facts),
        find_unheld_driver_packages(LOCKED, facts),
        find_unheld_driver_packages(LOCKED, CONVERGED_HOST),
    ) == ([], ["libcuda1 is not held"], [])


def test_a_host_that_has_what_is_to_go_lacks_its_removal() -> None:
    gone = replace(LOCKED, plan=replace(LOCKED.plan, removed=("nvidia-settings",)))
    settings = InstalledPackage("nvidia-settings", "510.47.03-0ubuntu4")
    facts = replace(CONVERGED_HOST, packages=(*CONVERGED_HOST.packages, settings))
    assert find_missing_driver_parts(gone, facts) == ["nvidia-settings is still installed"]
    assert find_missing_driver_parts(LOCKED, facts) == []


def test_of_a_version_that_is_not_fixed_the_libraries_are_the_measure() -> None:
    adopted = driver_target(managed_rig(), CONVERGED_HOST)
    assert (adopted.version, find_missing_driver_parts(adopted, CONVERGED_HOST)) == ("", [])
    moved = with_versions(replace(CONVERGED_HOST, kernel_modules=((NEXT, NEW),)), libcuda1=OLD)
    assert f"nvidia-driver-cuda is for {NEW}, not {OLD}" in find_missing_driver_parts(adopted, moved)
    assert f"kernel {NEXT} has the module {NEW}, {OLD} is required" in find_missing_driver_parts(adopted, moved)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ((), []),
        ((InstalledPackage("nvidia-container-toolkit", "1.20.0-1"),), []),
        ((InstalledPackage("nvidia-settings", "510.47.03-0ubuntu4"),), []),
        ((InstalledPackage("nvidia-modprobe", f"{NEW}-1"),), ["nvidia-modprobe"]),
        ((InstalledPackage("libnvidia-ml1", f"{NEW}-1"),), ["libnvidia-ml1"]),
    ],
    ids=["the driver", "not a toolkit", "not a tool of its own", "a tool of the driver's", "what came along"],
)
def test_the_installed_driver_is_held(more: tuple[InstalledPackage, ...], expected: list[str]) -> None:
    facts = replace(CONVERGED_HOST, packages=(*CONVERGED_HOST.packages, *more))
    assert required_holds(LOCKED, facts) == sorted([*NAMES, *expected])


def test_a_kernel_is_held_with_modules_that_are_made_for_it_alone() -> None:
    assert "linux-image-generic" in required_holds(
        driver_target(driver_rig(C3090, managed=True), UBUNTU_HOST), UBUNTU_HOST
    )
    assert not [name for name in required_holds(LOCKED, CONVERGED_HOST) if name.startswith("linux-image")]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (CONVERGED_HOST, False),
        (with_versions(CONVERGED_HOST, libcuda1=OLD), True),
        (with_versions(CONVERGED_HOST, libcuda1=""), True),
        (replace(CONVERGED_HOST, half=("libcuda1",)), True),
        (replace(CONVERGED_HOST, held=frozenset()), False),
        (replace(CONVERGED_HOST, kernel_modules=((NEXT, ""),)), False),
    ],
    ids=["nothing", "a version", "a package", "half a package", "a hold", "a module"],
)
def test_apt_is_asked_only_where_packages_come_or_go(facts: DriverFacts, expected: bool) -> None:
    assert needs_transaction(LOCKED, facts) is expected


def test_apt_is_asked_where_a_package_is_to_go() -> None:
    gone = replace(LOCKED, plan=replace(LOCKED.plan, removed=("nvidia-settings",)))
    assert not needs_transaction(gone, CONVERGED_HOST)
    assert needs_transaction(gone, with_versions(CONVERGED_HOST, nvidia_settings=OLD))
    assert gone.targets[-1] == "nvidia-settings-"
    assert "libcuda1=595.71.05-1" in gone.targets


NOUVEAU = (PciCard("0000:01:00.0", "10de:2204", "nouveau"),)
UNLOADED: dict[str, tuple[DriverFacts, str]] = {
    "it runs": (CONVERGED_HOST, ""),
    "it can be loaded": (replace(CONVERGED_HOST, module="", module_open=False, devices=False), ""),
    "it runs, from a file that is gone": (replace(CONVERGED_HOST, kernel_modules=((KERNEL, ""), (NEXT, NEW))), ""),
    "nouveau is loaded": (replace(CONVERGED_HOST, nouveau=True), "nouveau is bound to the cards"),
    "nouveau has a card": (replace(CONVERGED_HOST, cards=NOUVEAU), "nouveau is bound to the cards"),
    "another version runs": (replace(CONVERGED_HOST, module=OLD), f"the module {OLD} is loaded, {NEW} is installed"),
    "the other flavour runs": (replace(CONVERGED_HOST, module_open=False), "the proprietary module is loaded"),
    "the kernel has none": (
        replace(CONVERGED_HOST, module="", kernel_modules=((KERNEL, ""), (NEXT, NEW))),
        f"the running kernel {KERNEL} has no module {NEW}",
    ),
    "the kernel has another": (
        replace(CONVERGED_HOST, module="", kernel_modules=((KERNEL, OLD), (NEXT, NEW))),
        f"the running kernel {KERNEL} has no module {NEW}",
    ),
}


@pytest.mark.parametrize("name", UNLOADED)
@pytest.mark.parametrize("fixed", [True, False], ids=["locked", "as it is"])
def test_a_reboot_is_asked_for_where(name: str, fixed: bool) -> None:
    facts, expected = UNLOADED[name]
    one = LOCKED if fixed else driver_target(managed_rig(), CONVERGED_HOST)
    assert describe_unloaded(one, facts) == expected


def test_proprietary_modules_are_no_reason_where_they_are_wanted() -> None:
    closed = replace(LOCKED, plan=replace(LOCKED.plan, flavour="proprietary"))
    assert describe_unloaded(closed, replace(CONVERGED_HOST, module_open=False)) == ""
    assert describe_unloaded(closed, CONVERGED_HOST) == "the open module is loaded"


def test_a_kernel_lags_behind_the_modules_where_its_metapackage_brings_an_older_one() -> None:
    one, prefix = driver_target(driver_rig(C3090, managed=True), UBUNTU_HOST), "linux-modules-nvidia-580-server-open-"
    assert (one.kernel, LOCKED.kernel) == ("linux-image-generic", "")
    for release, late in {"6.8.0-40": False, "6.8.0-9": False, "6.8.0-45": True, "6.11.0-3": True}.items():
        modules = InstalledPackage(f"{prefix}{release}-generic", f"{release}.1+1", "Ubuntu")
        facts = replace(UBUNTU_HOST, packages=(*UBUNTU_HOST.packages, modules))
        assert is_kernel_behind(one, facts) is late
        assert not is_kernel_behind(LOCKED, facts)
        assert not is_kernel_behind(one, replace(facts, kernel_packages=()))
    assert not is_kernel_behind(one, UBUNTU_HOST)


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
    facts = replace(CONVERGED_HOST, params=params)
    one = driver_target(managed_rig(module_options=options), facts)
    assert (describe_unloaded(one, facts), one.plan.reboot) == (expected, expected)
