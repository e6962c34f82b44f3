"""Sound drivers and sound cards, and the messages about others."""

from dataclasses import replace

import pytest

from checks.nvidia.card_health import find_card_faults, find_pcie_differences, find_persistence_differences
from checks.nvidia.driver_status import (
    CardHolder,
    find_device_differences,
    find_holder_differences,
    find_unanswering_cards,
    find_version_differences,
)
from rigwright.nvidia.cards.smi import App, gpus
from tests.unit.nvidia_host import ADDRESSES, CAPTURED_OUTPUT, FACTS, H200, OURS, RIG, VERSION, difference_pairs
from tests.unit.samples import sample_facts, sample_instance, sample_rig

ONE, TWO = gpus(0, CAPTURED_OUTPUT["busy"], "")
FIRST, SECOND = ADDRESSES
SERVER = App(493, FIRST, 1542)
OWN = CardHolder("llama-server", OURS.strip().removeprefix("0::"))
LIBRARY = f"/usr/lib/x86_64-linux-gnu/libcuda.so.{VERSION}"
DEVICES = ["device /dev/nvidiactl", "device /dev/nvidia-uvm", "device /dev/nvidia0", "device /dev/nvidia1"]
MINORS = [f"minor {FIRST} 0", f"minor {SECOND} 1"]
XID = "NVRM: Xid (PCI:0000:00:07): "


def driver_answers(said: list[str]) -> tuple[set[str], dict[str, str], bool]:
    """Device files, cards that the module has, and whether nouveau is there."""
    rows = [line.split(" ") for line in said]
    files = {row[1] for row in rows if row[0] == "device"}
    return files, {row[1]: row[2] for row in rows if row[0] == "minor"}, "nouveau" in said


def test_a_sound_machine_has_no_difference() -> None:
    assert find_unanswering_cards(RIG.cards, FACTS, (ONE, TWO)) == []
    assert find_version_differences(VERSION, [LIBRARY, LIBRARY], VERSION, 580) == []
    assert find_device_differences(RIG.cards, FACTS, *driver_answers([*DEVICES, *MINORS])) == []
    assert (
        find_holder_differences(RIG.cards, RIG.reserved_gpus, RIG.instances, FACTS, (ONE, TWO), (SERVER,), {493: OWN})
        == []
    )
    assert find_persistence_differences(RIG.cards, RIG.reserved_gpus, FACTS, (ONE, TWO)) == []
    assert find_card_faults(RIG.cards, FACTS, (ONE, TWO), {FIRST: "None"}, ["NVRM: loading"]) == []
    assert find_pcie_differences(RIG.cards, RIG.driver, FACTS, (ONE, TWO)) == []


@pytest.mark.parametrize(
    ("cards", "expected", "found"),
    [
        ((ONE,), f"card 1 at {SECOND} to answer", f"nvidia-smi lists {FIRST}"),
        ((ONE, replace(TWO, index=2)), f"card 1 at {SECOND} with CUDA device 1", "2"),
        ((ONE, replace(TWO, name="NVIDIA H100")), f"card 1 at {SECOND} with name NVIDIA H200", "NVIDIA H100"),
        ((replace(ONE, capability="8.0"), TWO), f"card 0 at {FIRST} with compute capability 9.0", "8.0"),
        # a 16th of 143771 MiB gone to ECC
        ((replace(ONE, total_mib=134785), TWO), f"card 0 at {FIRST} with at least 139457 MiB", "134785 MiB"),
        ((replace(ONE, total_mib=None), TWO), f"card 0 at {FIRST} with at least 139457 MiB", "unknown"),
    ],
)
def test_a_card_that_is_not_the_declared_one_is_reported(cards: tuple, expected: str, found: str) -> None:
    assert difference_pairs(find_unanswering_cards(RIG.cards, FACTS, cards)) == [(expected, found)]


def test_a_little_less_memory_is_the_declared_card() -> None:
    assert find_unanswering_cards(RIG.cards, FACTS, (replace(ONE, total_mib=139457), TWO)) == []


def test_a_card_that_is_off_the_bus_is_reported() -> None:
    there = sample_facts(pci_cards=FACTS.pci_cards[:1])
    assert difference_pairs(find_unanswering_cards(RIG.cards, there, (ONE,))) == [("2 cards on the PCI bus", "1")]


def test_cards_after_the_declared_ones_are_ignored() -> None:
    one = sample_rig(sample_instance(cards=(0,)), cards=(H200,))
    sick = replace(TWO, name="X", persistence="Disabled", uncorrected=9, width=1, used_mib=9999)
    cards = (ONE, sick)
    assert (
        find_unanswering_cards(one.cards, FACTS, cards)
        == find_persistence_differences(one.cards, one.reserved_gpus, FACTS, cards)
        == find_pcie_differences(one.cards, one.driver, FACTS, cards)
        == []
    )
    assert find_card_faults(one.cards, FACTS, cards, {SECOND: "Reset"}, [f"{XID}79, off"]) == []
    assert (
        find_holder_differences(
            one.cards, one.reserved_gpus, one.instances, FACTS, cards, (SERVER, App(7, SECOND, 5)), {493: OWN}
        )
        == []
    )
    assert find_device_differences(one.cards, FACTS, *driver_answers([*DEVICES[:3], MINORS[0]])) == []


@pytest.mark.parametrize(
    ("module", "libraries", "smi", "differences"),
    [
        ("", [LIBRARY], VERSION, [("a loaded kernel module `nvidia`", "none")]),
        (
            "580.126.09",
            [LIBRARY],
            "nvidia-smi reports: Failed to initialize NVML: Driver/library version mismatch",
            [
                ("libcuda.so.1 of the loaded module's version 580.126.09", VERSION),
                (
                    "nvidia-smi to report 580.126.09",
                    "nvidia-smi reports: Failed to initialize NVML: Driver/library version mismatch",
                ),
            ],
        ),
        (VERSION, [], VERSION, [("one libcuda.so.1 in the loader's cache", "none")]),
        # another library in the way, also one whose name has the right version
        (
            VERSION,
            ["/opt/x/libcuda.so.1", LIBRARY],
            VERSION,
            [
                ("one libcuda.so.1 in the loader's cache", f"/opt/x/libcuda.so.1, {LIBRARY}"),
                (
                    f"libcuda.so.1 of the loaded module's version {VERSION}",
                    "a file without a version, /opt/x/libcuda.so.1",
                ),
            ],
        ),
        (
            VERSION,
            [f"/opt/x/libcuda.so.{VERSION}", LIBRARY],
            VERSION,
            [("one libcuda.so.1 in the loader's cache", f"/opt/x/libcuda.so.{VERSION}, {LIBRARY}")],
        ),
        ("550.163.01", ["/lib/libcuda.so.550.163.01"], "550.163.01", [("branch 580 or later", "550.163.01")]),
    ],
)
def test_two_versions_are_no_driver(
    module: str, libraries: list[str], smi: str, differences: list[tuple[str, str]]
) -> None:
    assert difference_pairs(find_version_differences(module, libraries, smi, 580)) == differences


@pytest.mark.parametrize(
    ("said", "differences"),
    [
        ([*DEVICES[1:], *MINORS], [("the device /dev/nvidiactl", "none")]),
        ([DEVICES[0], *DEVICES[2:], *MINORS], [("the device /dev/nvidia-uvm", "none")]),
        ([*DEVICES[:3], *MINORS], [(f"the device /dev/nvidia1 of card 1 at {SECOND}", "none")]),
        # the number in a file's name is the driver's own, not the card's
        (
            [*DEVICES[:3], f"minor {FIRST} 7", f"minor {SECOND} 0"],
            [(f"the device /dev/nvidia7 of card 0 at {FIRST}", "none")],
        ),
        ([*DEVICES, MINORS[0]], [(f"the driver nvidia on card 1 at {SECOND}", "another driver, or none")]),
        ([*DEVICES, *MINORS, "nouveau"], [("no kernel module nouveau", "it is loaded")]),
    ],
)
def test_a_card_without_its_way_in_is_reported(said: list[str], differences: list[tuple[str, str]]) -> None:
    assert difference_pairs(find_device_differences(RIG.cards, FACTS, *driver_answers(said))) == differences


FOREIGN = f"only this rig on card 1 at {SECOND}"


@pytest.mark.parametrize(
    ("name", "cgroup"),
    [
        ("python3", "/user.slice/session-3.scope"),
        # a unit of ours that this rig does not declare
        ("llama-server", "/rigwright.slice/rigwright-old.service"),
        # places that begin or end as ours does
        ("x", "/rigwright.slice/rigwright-chat.service2"),
        ("x", "/user.slice/rigwright.slice/rigwright-chat.service"),
    ],
)
def test_a_foreign_process_is_named(name: str, cgroup: str) -> None:
    cards = (ONE, replace(TWO, used_mib=300))
    processes = {493: OWN, 7: CardHolder(name, cgroup)}
    found = f"pid 7 ({name}) with 300 MiB in {cgroup}"
    assert difference_pairs(
        find_holder_differences(
            RIG.cards, RIG.reserved_gpus, RIG.instances, FACTS, cards, (SERVER, App(7, SECOND, 300)), processes
        )
    ) == [(FOREIGN, found)]


def test_a_process_with_few_facts_counts_as_foreign() -> None:
    found = difference_pairs(
        find_holder_differences(
            RIG.cards, RIG.reserved_gpus, RIG.instances, FACTS, (ONE, TWO), (SERVER, App(7, SECOND, None)), {493: OWN}
        )
    )
    assert found == [(FOREIGN, "pid 7 (out of sight) with an unknown amount")]


def test_a_process_of_ours_may_be_a_child_in_a_group_below() -> None:
    below = CardHolder("worker", f"{OWN.cgroup}/sub")
    assert (
        find_holder_differences(RIG.cards, RIG.reserved_gpus, RIG.instances, FACTS, (ONE, TWO), (SERVER,), {493: below})
        == []
    )


@pytest.mark.parametrize(("used", "said"), [(1542 + 256, []), (1542 + 257, ["257 MiB"]), (100, []), (None, [])])
def test_memory_that_no_process_has_is_a_desktops(used: int | None, said: list[str]) -> None:
    found = difference_pairs(
        find_holder_differences(
            RIG.cards,
            RIG.reserved_gpus,
            RIG.instances,
            FACTS,
            (replace(ONE, used_mib=used), TWO),
            (SERVER,),
            {493: OWN},
        )
    )
    expected = f"at most 256 MiB of card 0 at {FIRST} in use outside compute processes"
    assert found == [(expected, size) for size in said]


def test_memory_is_not_judged_where_a_share_is_unknown() -> None:
    unknown = replace(SERVER, used_mib=None)
    assert (
        find_holder_differences(
            RIG.cards,
            RIG.reserved_gpus,
            RIG.instances,
            FACTS,
            (replace(ONE, used_mib=9999), TWO),
            (unknown,),
            {493: OWN},
        )
        == []
    )


def test_a_card_that_is_not_kept_ready_is_reported() -> None:
    found = difference_pairs(
        find_persistence_differences(RIG.cards, RIG.reserved_gpus, FACTS, (ONE, replace(TWO, persistence="Disabled")))
    )
    assert found == [(f"persistence mode Enabled on card 1 at {SECOND}", "Disabled")]


@pytest.mark.parametrize(
    ("errors", "recovery", "differences"),
    [
        (None, {}, []),
        (3, {}, [(f"no uncorrected memory error on card 1 at {SECOND}", "3")]),
        (0, {SECOND: "Reset"}, [(f"recovery action None of card 1 at {SECOND}", "Reset")]),
    ],
)
def test_a_card_that_reports_trouble_is_reported(
    errors: int | None, recovery: dict[str, str], differences: list[tuple[str, str]]
) -> None:
    assert (
        difference_pairs(find_card_faults(RIG.cards, FACTS, (ONE, replace(TWO, uncorrected=errors)), recovery, []))
        == differences
    )


@pytest.mark.parametrize(
    ("log", "code", "found"),
    [
        ([f"{XID}79, GPU has fallen off the bus."], 79, "1: it fell off the bus"),
        ([f"{XID}119, a", f"{XID}119, b"], 119, "2: its firmware did not respond"),
        ([f"{XID}154, GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)"], 154, "1: it needs a reset"),
        # eight digits of a domain, and a function
        (["NVRM: Xid (PCI:00000000:00:07.0): 48, x"], 48, "1: a memory error that ECC could not correct"),
    ],
)
def test_an_xid_that_tells_of_the_card_is_reported(log: list[str], code: int, found: str) -> None:
    ((expected, there),) = difference_pairs(find_card_faults(RIG.cards, FACTS, (ONE, TWO), {}, log))
    assert expected == f"no Xid {code} of card 1 since boot"
    assert there.startswith(found)


@pytest.mark.parametrize(
    "line",
    [
        f"{XID}31, pid=7, name=python3",  # a program's mistake
        f"{XID}154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
        "NVRM: Xid (PCI:0000:99:00): 79, GPU has fallen off the bus.",  # not a declared card
        "NVRM: Xid : 79, x",
        f"{XID}x, 79",
    ],
)
def test_other_lines_of_the_log_are_no_trouble(line: str) -> None:
    assert find_card_faults(RIG.cards, FACTS, (ONE, TWO), {}, [line]) == []


@pytest.mark.parametrize(
    ("width", "most", "differences"),
    [(8, 16, [(f"a PCIe link width of x16 to card 1 at {SECOND}", "8")]), (8, 8, []), (None, 16, []), (16, None, [])],
)
def test_a_link_with_fewer_lanes_than_it_could_have_is_reported(
    width: int | None, most: int | None, differences: list[tuple[str, str]]
) -> None:
    assert (
        difference_pairs(
            find_pcie_differences(RIG.cards, RIG.driver, FACTS, (ONE, replace(TWO, width=width, width_max=most)))
        )
        == differences
    )
