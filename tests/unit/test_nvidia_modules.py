"""The right kernel module, now and at the next boot, and the messages about others."""

from dataclasses import replace
from typing import Any

import pytest

from checks.nvidia.module_state import (
    allowed_flavours,
    find_disk_differences,
    find_dkms_differences,
    find_flavour_differences,
    find_option_differences,
    find_signature_differences,
)
from rigwright.nvidia.driver.driver_facts import DriverFacts
from rigwright.nvidia.driver.kernel_facts import DkmsEntry, KernelFacts, KernelModule
from tests.unit.driver_samples import (
    C22G,
    C2080,
    C3090,
    C5090,
    LOADED,
    SERVER,
    UBUNTU,
    driver_rig,
    driverless_host,
    installed_facts,
)
from tests.unit.nvidia_host import difference_pairs

VERSION = "580.159.03"
RUNNING, NEXT = "6.8.0-40-generic", "6.8.0-90-generic"
OPEN, PROPRIETARY = "Dual MIT/GPL", "NVIDIA"
SIGNER = "Canonical Ltd. Kernel Module Signing"
HERE = KernelModule(RUNNING, True, VERSION, OPEN, SIGNER)
THERE = KernelModule(NEXT, True, VERSION, OPEN, SIGNER)
BUILT = (DkmsEntry(VERSION, RUNNING, "installed", ""), DkmsEntry(VERSION, NEXT, "installed", ""))
STATE = KernelFacts(RUNNING, (HERE, THERE), dkms=BUILT)
NVIDIA = {"module": VERSION, "module_open": False}
PACKAGED = installed_facts("Ubuntu", UBUNTU, *SERVER)


def ready(*pci_ids: str, **changes: Any) -> DriverFacts:
    return driverless_host("ubuntu-24.04", *pci_ids, **{**LOADED, **changes})


def test_a_sound_host_has_no_difference() -> None:
    box_rig = driver_rig(C3090)
    assert (
        find_flavour_differences(
            box_rig.cards, box_rig.driver, box_rig.driver_supply, box_rig.toolkit, ready("10de:2204"), STATE
        )
        == []
    )
    assert (
        find_disk_differences(VERSION, STATE)
        == find_dkms_differences(STATE)
        == find_signature_differences("on", STATE)
        == []
    )
    assert find_option_differences(driver_rig(C3090).driver, STATE) == []


@pytest.mark.parametrize(
    ("cards", "keys", "facts", "wanted"),
    [
        ((C5090,), {}, ready("10de:2b85"), ("open",)),
        # one Blackwell card decides for all, whatever the inventory says
        ((C2080, C5090), {}, ready("10de:1e07", "10de:2b85"), ("open",)),
        ((C5090,), {"flavour": "proprietary"}, ready("10de:2b85"), ("open",)),
        # a foreign driver may have either where cards leave the choice
        ((C2080, C3090), {}, ready("10de:1e07", "10de:2204"), ("open", "proprietary")),
        ((C3090,), {"flavour": "open"}, ready("10de:2204"), ("open",)),
        ((C22G,), {}, ready("10de:1e07"), ("proprietary",)),
        ((C22G,), {"force_open_modules": True}, ready("10de:1e07"), ("open", "proprietary")),
        # a managed one has its plan's
        ((C3090,), {"managed": True}, ready("10de:2204", **PACKAGED), ("open",)),
        ((C3090,), {"managed": True, "flavour": "proprietary"}, ready("10de:2204", **PACKAGED), ("proprietary",)),
    ],
)
def test_cards_and_inventory_say_which_flavours_will_do(
    cards: tuple, keys: dict[str, Any], facts: DriverFacts, wanted: tuple[str, ...]
) -> None:
    box_rig = driver_rig(*cards, **keys)
    assert allowed_flavours(box_rig.cards, box_rig.driver, box_rig.driver_supply, box_rig.toolkit, facts) == wanted


@pytest.mark.parametrize(
    ("loaded", "licence", "differences"),
    [
        ({"module": ""}, OPEN, [("a loaded kernel module `nvidia`", "none")]),
        (NVIDIA, OPEN, [("the open kernel module", "the proprietary one is loaded")]),
        (LOADED, PROPRIETARY, [(f"the open module for kernel {RUNNING}", "a module with the licence NVIDIA")]),
    ],
)
def test_the_wrong_flavour_is_reported(loaded: dict, licence: str, differences: list[tuple[str, str]]) -> None:
    state = replace(STATE, kernels=(replace(HERE, license=licence), THERE))
    box_rig = driver_rig(C5090)
    assert (
        difference_pairs(
            find_flavour_differences(
                box_rig.cards,
                box_rig.driver,
                box_rig.driver_supply,
                box_rig.toolkit,
                ready("10de:2b85", **loaded),
                state,
            )
        )
        == differences
    )


@pytest.mark.parametrize(
    ("loaded", "kernels", "differences"),
    [
        # upgraded packages without a reboot
        (
            VERSION,
            (replace(HERE, version="580.178.04"), replace(THERE, version="580.178.04")),
            [(f"module {VERSION}, which is loaded, for kernel {RUNNING}", "580.178.04")],
        ),
        (
            VERSION,
            (replace(HERE, version=""), THERE),
            [(f"module {VERSION}, which is loaded, for kernel {RUNNING}", "none")],
        ),
        # the next kernel has none, or another
        (
            VERSION,
            (HERE, replace(THERE, version="")),
            [(f"module {VERSION} for kernel {NEXT}, which boots next", "none")],
        ),
        (
            VERSION,
            (HERE, replace(THERE, version="535.1.2")),
            [(f"module {VERSION} for kernel {NEXT}, which boots next", "535.1.2")],
        ),
        # after a boot into a kernel without one
        (
            "",
            (replace(HERE, version=""), replace(THERE, version="")),
            [
                (f"a module nvidia for kernel {RUNNING}", "none"),
                (f"module nvidia for kernel {NEXT}, which boots next", "none"),
            ],
        ),
        # the old kernel has none, and the next one has
        ("", (replace(HERE, version=""), THERE), [(f"a module nvidia for kernel {RUNNING}", "none")]),
        # a kernel that is not in /boot does not boot
        (VERSION, (HERE, replace(THERE, version="", bootable=False)), []),
        # nor does an older one
        (VERSION, (HERE, KernelModule("6.8.0-9-generic", True, "", "", "")), []),
    ],
)
def test_a_boot_without_the_module_is_seen_before_it(
    loaded: str, kernels: tuple[KernelModule, ...], differences: list[tuple[str, str]]
) -> None:
    assert difference_pairs(find_disk_differences(loaded, KernelFacts(RUNNING, kernels))) == differences


def test_the_wrong_flavour_for_the_next_kernel_is_reported_before_it_boots() -> None:
    for bootable, licence, said in ((True, PROPRIETARY, 1), (True, OPEN, 0), (True, "", 0), (False, PROPRIETARY, 0)):
        state = KernelFacts(RUNNING, (HERE, replace(THERE, license=licence, bootable=bootable)))
        box_rig = driver_rig(C5090)
        found = find_flavour_differences(
            box_rig.cards, box_rig.driver, box_rig.driver_supply, box_rig.toolkit, ready("10de:2b85"), state
        )
        assert [one.expected for one in found] == [f"the open module for kernel {NEXT}"] * said


@pytest.mark.parametrize(
    ("installed", "newest", "steps"),
    [
        # upgraded, and the running kernel's headers are no more to be had: the next boot is right
        ("595.91.07", "595.91.07", ["deploy INVENTORY --reboot"]),
        # and here a reboot would be one into a box without cards
        ("595.91.07", VERSION, ["deploy INVENTORY", "deploy INVENTORY"]),
    ],
)
def test_the_next_boot_is_compared_with_the_installed_driver(installed: str, newest: str, steps: list[str]) -> None:
    kernels = (replace(HERE, version=""), replace(THERE, version=newest))
    found = find_disk_differences(VERSION, KernelFacts(RUNNING, kernels), installed)
    assert [one.cure for one in found] == steps


@pytest.mark.parametrize(
    ("rows", "differences"),
    [
        ((BUILT[0],), [(f"DKMS to have nvidia {VERSION} installed for kernel {NEXT}", "nothing for it")]),
        (
            (BUILT[0], replace(BUILT[1], state="built")),
            [(f"DKMS to have nvidia {VERSION} installed for kernel {NEXT}", f"{VERSION} built")],
        ),
        (
            (BUILT[0], replace(BUILT[1], version="570.1.1")),
            [(f"DKMS to have nvidia {VERSION} installed for kernel {NEXT}", "570.1.1 installed")],
        ),
        (
            (BUILT[0], replace(BUILT[1], remark="(Built modules are missing in the kernel modules folder)")),
            [
                (
                    f"DKMS to have nvidia {VERSION} installed for kernel {NEXT}",
                    f"{VERSION} installed (Built modules are missing in the kernel modules folder)",
                )
            ],
        ),
        (
            (*BUILT, DkmsEntry("570.1.1", "", "added", "")),
            [("DKMS to have nvidia 570.1.1 installed or not at all", "added")],
        ),
        (
            (*BUILT, DkmsEntry("570.1.1", "", "broken", "")),
            [("DKMS to have nvidia 570.1.1 installed or not at all", "broken")],
        ),
        (
            (BUILT[0], replace(BUILT[1], remark="(WARNING! Missing some built modules!)")),
            [
                (
                    f"DKMS to have nvidia {VERSION} installed for kernel {NEXT}",
                    f"{VERSION} installed (WARNING! Missing some built modules!)",
                )
            ],
        ),
        (
            (BUILT[0], replace(BUILT[1], remark="(Differences between built and installed modules)")),
            [
                (
                    f"the module nvidia {VERSION} that DKMS has built for kernel {NEXT}",
                    "another one (Differences between built and installed modules)",
                )
            ],
        ),
        # said of every compressed module by versions up to 3.1
        ((BUILT[0], replace(BUILT[1], remark="(WARNING! Diff between built and installed module!)")), []),
        # an old kernel's does not matter
        ((*BUILT, DkmsEntry("570.1.1", "6.8.0-9-generic", "built", "")), []),
    ],
)
def test_a_build_that_was_left_out_is_reported(rows: tuple[DkmsEntry, ...], differences: list[tuple[str, str]]) -> None:
    assert difference_pairs(find_dkms_differences(replace(STATE, dkms=rows))) == differences


def test_a_kernel_without_any_module_of_dkms_is_reported_too() -> None:
    bare = replace(STATE, kernels=(HERE, replace(THERE, version="")), dkms=(BUILT[0],))
    assert difference_pairs(find_dkms_differences(bare)) == [
        (f"DKMS to have nvidia installed for kernel {NEXT}", "nothing for it")
    ]


def test_a_module_that_is_gone_is_reported_where_dkms_says_that_it_is_installed() -> None:
    gone = "(WARNING! Diff between built and installed module!)"  # the words of 3.0.10, Debian 12's
    bare = replace(STATE, kernels=(HERE, replace(THERE, version="")), dkms=(BUILT[0], replace(BUILT[1], remark=gone)))
    said = f"{VERSION} installed {gone}, but /lib/modules/{NEXT} has no module"
    assert difference_pairs(find_dkms_differences(bare)) == [(f"DKMS to have nvidia installed for kernel {NEXT}", said)]


@pytest.mark.parametrize(
    ("secure_boot", "kernels", "releases"),
    [
        ("on", (replace(HERE, signer=""), THERE), [RUNNING]),
        ("on", (HERE, replace(THERE, signer="")), [NEXT]),
        ("off", (replace(HERE, signer=""), THERE), []),
        ("unknown", (replace(HERE, signer=""), THERE), []),
        # a driver without a module has no signature either, and N09 says so
        ("on", (HERE, replace(THERE, version="", signer="")), []),
    ],
)
def test_an_unsigned_module_is_reported_where_that_counts(
    secure_boot: str, kernels: tuple[KernelModule, ...], releases: list[str]
) -> None:
    found = find_signature_differences(secure_boot, KernelFacts(RUNNING, kernels))
    assert difference_pairs(found) == [
        (f"a signed module for kernel {release}, since Secure Boot is on", "no signature") for release in releases
    ]


# of an H200's driver 580.159.04
PARAMS = (("RmProfilingAdminOnly", "1"), ("EnableResizableBar", "0"), ("UsePageAttributeTable", "4294967295"))


@pytest.mark.parametrize(
    ("options", "params", "found"),
    [
        ({"NVreg_EnableResizableBar": 0}, PARAMS, []),
        ({"NVreg_EnableResizableBar": 1}, PARAMS, [("module option NVreg_EnableResizableBar=1", "0")]),
        # shown under another name than it is set by
        ({"NVreg_RestrictProfilingToAdminUsers": 1}, PARAMS, []),
        (
            {"NVreg_RestrictProfilingToAdminUsers": 0},
            PARAMS,
            [("module option NVreg_RestrictProfilingToAdminUsers=0", "1")],
        ),
        (
            {"NVreg_UsePageAttributeTable": 1},
            PARAMS,
            [("module option NVreg_UsePageAttributeTable=1", "the driver's default")],
        ),
        ({"NVreg_Old": 1}, PARAMS, [("module option NVreg_Old=1", "no such option")]),
        ({"NVreg_EnableResizableBar": 0}, (), [("module option NVreg_EnableResizableBar=0", "no such option")]),
    ],
)
def test_a_module_option_that_is_not_in_force_is_reported(
    options: dict[str, int], params: tuple[tuple[str, str], ...], found: list[tuple[str, str]]
) -> None:
    assert (
        difference_pairs(
            find_option_differences(driver_rig(C3090, module_options=options).driver, replace(STATE, params=params))
        )
        == found
    )


def test_a_kernel_setting_that_something_else_has_set_is_reported() -> None:
    made = driver_rig(C3090, sysctl={"vm.swappiness": 10, "vm.max_map_count": 262144, "kernel.gone": 1})
    state = replace(STATE, sysctl=(("kernel.gone", ""), ("vm.max_map_count", "262144"), ("vm.swappiness", "60")))
    assert difference_pairs(find_option_differences(made.driver, state)) == [
        ("sysctl kernel.gone 1", "none"),
        ("sysctl vm.swappiness 10", "60"),
    ]
