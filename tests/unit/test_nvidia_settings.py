"""The settings of cards and their connections: nvidia-smi's words, and the messages where those differ from the
declaration."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from checks.nvidia.card_settings import (
    find_bar_differences,
    find_bridge_differences,
    find_clock_differences,
    find_peer_differences,
    find_power_differences,
)
from checks.nvidia.driver_drift import find_driver_drift, find_vital_differences
from rigwright.model.inventory_schema import DriverEntry
from rigwright.model.rig import Rig
from rigwright.nvidia.cards.smi import gpus
from rigwright.nvidia.cards.smi_text_reports import parse_nvlinks, parse_sections, parse_topology_matrix
from rigwright.nvidia.driver.driver_files import DriverRecord, RecordedCard, driver_record_path, parse_driver_record
from rigwright.nvidia.driver.kernel_facts import KernelFacts
from tests.unit.nvidia_host import ADDRESSES, CAPTURED_OUTPUT, FACTS, RIG, difference_pairs
from tests.unit.samples import sample_card, sample_facts, sample_instance, sample_rig

FIRST, SECOND = ADDRESSES
SETTINGS = {gpu.address: gpu for gpu in gpus(0, CAPTURED_OUTPUT["gpus"])}
TEMPERATURE = parse_sections(0, CAPTURED_OUTPUT["temperature"], "")
VBIOS = "96.00.A5.00.1A"
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\n"
# two RTX 3090 with a bridge, in the layout of `nvidia-smi nvlink --status`
BRIDGED = """\
GPU 0: NVIDIA GeForce RTX 3090 (UUID: GPU-00000000-0000-0000-0000-000000000000)
\t Link 0: 14.062 GB/s
\t Link 1: 14.062 GB/s
\t Link 2: 14.062 GB/s
\t Link 3: 14.062 GB/s
GPU 1: NVIDIA GeForce RTX 3090 (UUID: GPU-11111111-1111-1111-1111-111111111111)
\t Link 0: 14.062 GB/s
\t Link 1: 14.062 GB/s
\t Link 2: 14.062 GB/s
\t Link 3: 14.062 GB/s
"""
UNBRIDGED = """\
GPU 0: NVIDIA GeForce RTX 3090 (UUID: GPU-00000000-0000-0000-0000-000000000000)
NVML: Unable to retrieve NVLink information as all links are inActive
GPU 1: NVIDIA GeForce RTX 3090 (UUID: GPU-11111111-1111-1111-1111-111111111111)
NVML: Unable to retrieve NVLink information as all links are inActive
"""
JOINED = {(0, 1): "NV4", (1, 0): "NV4"}


def rig_with_driver(**keys: Any) -> Rig:
    return replace(RIG, driver=DriverEntry.model_construct(**DriverEntry().model_dump() | keys))


@pytest.mark.parametrize("read", [parse_sections, parse_nvlinks, parse_topology_matrix])
def test_a_driver_that_does_not_answer_is_no_silence(read: Callable[[int, str, str], object]) -> None:
    with pytest.raises(ValueError, match="version mismatch"):
        read(18, MISMATCH, "")
    with pytest.raises(ValueError, match="did not answer within 20 s"):
        read(124, "", "")


def test_an_answer_without_cards_is_refused() -> None:
    with pytest.raises(ValueError, match="lists no card"):
        parse_sections(0, "Attached GPUs : 0\n", "")
    with pytest.raises(ValueError, match="no topology table"):
        parse_topology_matrix(0, "Legend:\n", "")


@pytest.mark.parametrize(
    ("keys", "limit", "found"),
    [
        ({}, 500.0, []),
        ({"power_w": 700}, 700.0, []),
        ({"power_w": 699}, 700.0, []),
        ({"power_w": 450}, 450.4, []),
        # a reboot has lost it
        ({"power_w": 450}, 700.0, [f"a power limit of 450 W on card 0 at {FIRST}: 700 W"]),
        ({"power_w": (700, 450)}, 700.0, []),
        ({"power_w": (450, 700)}, 451.5, [f"a power limit of 450 W on card 0 at {FIRST}: 451.5 W"]),
        ({"power_w": 450}, None, [f"a power limit of 450 W on card 0 at {FIRST}: none"]),
    ],
)
def test_a_power_limit_that_is_not_the_declared_one_is_reported(
    keys: dict[str, Any], limit: float | None, found: list[str]
) -> None:
    there = {FIRST: replace(SETTINGS[FIRST], limit_w=limit)}
    box_rig = rig_with_driver(**keys)
    assert [
        f"{expected}: {said}"
        for expected, said in difference_pairs(find_power_differences(box_rig.cards, box_rig.driver, FACTS, there))
    ] == found


@pytest.mark.parametrize(
    ("keys", "clock", "found"),
    [
        ({}, 1980.0, []),
        ({"clocks_mhz": (210, 1980)}, 1995.0, []),
        ({"clocks_mhz": (210, 1400)}, 210.0, []),
        ({"clocks_mhz": (210, 1400)}, None, []),
        # below the lowest one at rest is no fault
        ({"clocks_mhz": (1000, 1400)}, 345.0, []),
        ({"clocks_mhz": (210, 1400)}, 1980.0, [("at most 1400 MHz on card 0 at 0000:00:06.0", "1980 MHz")]),
    ],
)
def test_a_clock_above_the_declared_ones_is_reported(
    keys: dict[str, Any], clock: float | None, found: list[tuple[str, str, str]]
) -> None:
    there = {FIRST: replace(SETTINGS[FIRST], clock_mhz=clock)}
    box_rig = rig_with_driver(**keys)
    assert difference_pairs(find_clock_differences(box_rig.cards, box_rig.driver, FACTS, there)) == found


@pytest.mark.parametrize(
    ("capability", "vram", "total", "found"),
    [
        ("8.6", 24576, "32768 MiB", []),
        ("12.0", 32607, "32768 MiB", []),
        ("7.5", 11264, "256 MiB", []),
        ("8.6", 24576, "N/A", []),
        # the firmware's update has switched it off
        ("8.6", 24576, "256 MiB", [("Resizable BAR enabled, with BAR1", "24576", "256 MiB")]),
        ("12.0", 32607, "16384 MiB", [("Resizable BAR enabled, with BAR1", "32607", "16384 MiB")]),
        ("7.5", 11264, "64 MiB", [("BAR1", "256", "64 MiB")]),
    ],
)
def test_a_small_window_into_a_cards_memory_is_reported(
    capability: str, vram: int, total: str, found: list[tuple[str, str, str]]
) -> None:
    one = sample_rig(cards=(sample_card(capability).model_copy(update={"vram_mib": vram}),))
    memory = {FIRST: {"BAR1 Memory Usage/Total": total, "FB Memory Usage/Total": f"{vram} MiB"}}
    assert difference_pairs(
        find_bar_differences(one.cards, sample_facts(pci_cards=((FIRST, "10de:2204"),)), memory)
    ) == [(f"{what} of at least {least} MiB on card 0 at {FIRST}", there) for what, least, there in found]


def test_links_are_counted() -> None:
    assert parse_nvlinks(0, BRIDGED, "") == {0: (4, 4), 1: (4, 4)}
    assert parse_nvlinks(0, BRIDGED.replace("Link 2: 14.062 GB/s", "Link 2: <inactive>", 1), "") == {
        0: (3, 4),
        1: (4, 4),
    }
    assert parse_nvlinks(0, UNBRIDGED, "") == {}
    assert parse_nvlinks(0, "", "") == {}


@pytest.mark.parametrize(
    ("said", "ways", "found"),
    [
        (BRIDGED, JOINED, []),
        (UNBRIDGED, {(0, 1): "PHB", (1, 0): "PHB"}, [("NVLink between cards 0 and 1", "PHB")]),
        (UNBRIDGED, {}, [("NVLink between cards 0 and 1", "nothing")]),
        (
            BRIDGED.replace("Link 3: 14.062 GB/s", "Link 3: <inactive>"),
            {(0, 1): "NV3"},
            [("every link of cards 0 and 1 to be up", "3 of 4 and 3 of 4")],
        ),
        (UNBRIDGED, JOINED, [("every link of cards 0 and 1 to be up", "0 of 0 and 0 of 0")]),
    ],
)
def test_a_bridge_that_does_not_join_is_reported(
    said: str, ways: dict[tuple[int, int], str], found: list[tuple[str, str, str]]
) -> None:
    one = rig_with_driver(nvlinks=((0, 1),))
    assert (
        difference_pairs(find_bridge_differences(one.driver, {0: 0, 1: 1}, parse_nvlinks(0, said, ""), ways)) == found
    )
    assert find_bridge_differences(rig_with_driver().driver, {0: 0, 1: 1}, parse_nvlinks(0, said, ""), ways) == []


def test_a_bridges_cards_are_known_by_the_numbers_that_nvidia_smi_has() -> None:
    one = rig_with_driver(nvlinks=((0, 1),))
    up = {1: (4, 4), 2: (4, 4)}
    assert find_bridge_differences(one.driver, {0: 1, 1: 2}, up, {(1, 2): "NV4"}) == []
    assert difference_pairs(find_bridge_differences(one.driver, {0: 0, 1: 2}, up, {(1, 2): "NV4"})) == [
        ("NVLink between cards 0 and 1", "nothing")
    ]
    # N01 says that a card does not answer
    assert find_bridge_differences(one.driver, {0: 0}, {}, {}) == []


@pytest.mark.parametrize(
    ("cards", "nvlinks", "red"),
    [
        ((0, 1), (), True),
        ((0,), (), True),
        ((0, 1), ((1, 0),), False),
        ((0, 1, 2), ((0, 1),), True),
        ((0, 1, 2), ((0, 1), (1, 2), (0, 2)), False),
    ],
)
def test_copies_from_card_to_card_are_for_bridges_alone(
    cards: tuple[int, ...], nvlinks: tuple[tuple[int, int], ...], red: bool
) -> None:
    one = sample_rig(
        sample_instance(cards=cards),
        driver=DriverEntry.model_construct(**DriverEntry().model_dump() | {"nvlinks": nvlinks}),
    )
    found = find_peer_differences(one.instances, one.driver, KernelFacts("6.1", p2p=(("chat", 100),)))
    assert bool(found) == red
    assert [one.found for one in found] == ["set in pid 100"] * red
    assert find_peer_differences(one.instances, one.driver, KernelFacts("6.1")) == []


RECORD = DriverRecord(
    version="580.159.04",
    kernel="6.8.0-40-generic",
    packages={"nvidia-utils-580": "1", "libcuda1": "1"},
    cards=(RecordedCard(address=FIRST, vbios=VBIOS), RecordedCard(address=SECOND)),
)


def test_a_record_is_read_whole_or_not_at_all() -> None:
    assert driver_record_path(RIG.roots) == "/etc/rigwright/driver.json"
    assert parse_driver_record(RECORD.model_dump_json()) == RECORD
    extra = '{"version": "1", "kernel": "2", "branch": 580, "cards": [{"slot": 0, "address": "a", "uuid": "u"}]}'
    assert parse_driver_record(extra) == DriverRecord(version="1", kernel="2", cards=(RecordedCard(address="a"),))
    assert parse_driver_record("") is None
    assert parse_driver_record("[1]") is None
    assert parse_driver_record('{"version": 5}') is None


@pytest.mark.parametrize(
    ("record", "kernel", "module", "packages", "found"),
    [
        (RECORD, "6.8.0-40-generic", "580.159.04", RECORD.packages | {"more": "1"}, []),
        (RECORD, "6.8.0-90-generic", "580.159.04", RECORD.packages, [("kernel 6.8.0-40-generic", "6.8.0-90-generic")]),
        (RECORD, "6.8.0-40-generic", "", RECORD.packages, [("driver 580.159.04", "none")]),
        (
            RECORD,
            "6.8.0-40-generic",
            "580.159.04",
            {"nvidia-utils-580": "2"},
            [("the packages of the last deploy", "libcuda1 gone, nvidia-utils-580 2")],
        ),
        (None, "6.1", "1", {}, [("a record of the driver by the last deploy", "none")]),
    ],
)
def test_changes_since_the_last_deploy_are_reported(
    record: DriverRecord | None, kernel: str, module: str, packages: dict[str, str], found: list[tuple[str, str, str]]
) -> None:
    assert difference_pairs(find_driver_drift(record, kernel, module, packages)) == found


def older(current: str) -> dict[str, str]:
    """A card whose driver tells where it slows down."""
    return {"Temperature/GPU Current Temp": current, "Temperature/GPU Slowdown Temp": "95 C"}


@pytest.mark.parametrize(
    ("temperature", "found"),
    [
        (TEMPERATURE[FIRST], []),
        (older("94 C"), []),
        (older("95 C"), [(f"card 0 at {FIRST} below 95 C, where it throttles", "95 C")]),
        (TEMPERATURE[FIRST] | {"Temperature/GPU T.Limit Temp": "-1 C"}, []),
        (
            TEMPERATURE[FIRST] | {"Temperature/GPU T.Limit Temp": "-4 C"},
            [(f"card 0 at {FIRST} below its throttling temperature", "2 C above")],
        ),
        (TEMPERATURE[FIRST] | {"Temperature/GPU T.Limit Temp": "N/A"}, []),
        ({}, []),
    ],
)
def test_a_hot_card_is_reported(temperature: dict[str, str], found: list[tuple[str, str]]) -> None:
    assert difference_pairs(find_vital_differences(RIG.cards, FACTS, SETTINGS, {FIRST: temperature}, RECORD)) == found


def test_another_vbios_is_reported_where_one_was_written_down() -> None:
    other = {address: replace(setting, vbios="96.00.B0.00.00") for address, setting in SETTINGS.items()}
    assert difference_pairs(find_vital_differences(RIG.cards, FACTS, other, TEMPERATURE, RECORD)) == [
        (f"VBIOS {VBIOS} on card 0 at {FIRST}", "96.00.B0.00.00")
    ]
    assert find_vital_differences(RIG.cards, FACTS, other, TEMPERATURE, None) == []
