"""What is told of cards, by a stand-in for the driver's library: names, units, what is left out, what is counted."""

from __future__ import annotations

import pytest

from roles.monitoring.host.gpu import Cards, limits
from tests.unit.stand_in_nvml import Card, StandInNvml


def told(cards: Cards) -> dict[tuple[str, str], float]:
    """Figure and card -> value; for one that is told of each reason, of the host's clocks too."""
    found = {}
    for one in cards.samples():
        labels = dict(one.labels)
        found[f"{one.name}{labels.get('reason', '')}", labels.get("gpu", "")] = one.value
    return found


def test_figures_have_the_names_and_units_of_dcgm() -> None:
    found = told(Cards(StandInNvml([Card(0, uncorrected=2)]), [280]))
    assert found == {
        ("rigwright_gpus_declared", ""): 1,
        ("DCGM_FI_DEV_SM_CLOCK", "0"): 1000,  # MHz
        ("DCGM_FI_DEV_MEM_CLOCK", "0"): 2000,
        ("DCGM_FI_DEV_GPU_TEMP", "0"): 40,  # degrees
        ("DCGM_FI_DEV_POWER_USAGE", "0"): 120.5,  # W
        ("DCGM_FI_DEV_POWER_MGMT_LIMIT", "0"): 280,
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "0"): 7,  # mJ
        ("DCGM_FI_DEV_GPU_UTIL", "0"): 90,  # %
        ("DCGM_FI_DEV_MEM_COPY_UTIL", "0"): 30,
        ("DCGM_FI_DEV_FB_USED", "0"): 20480,  # MiB
        ("DCGM_FI_DEV_FB_FREE", "0"): 4096,
        ("DCGM_FI_DEV_FB_RESERVED", "0"): 480,
        ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "0"): 0,
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "0"): 2,
        ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "0"): 0,
        ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "0"): 0,
        ("rigwright_gpu_throttledhardware", "0"): 0,
        ("rigwright_gpu_throttledsoftware thermal", "0"): 0,
        ("rigwright_gpu_throttledhardware thermal", "0"): 0,
        ("rigwright_gpu_throttledpower brake", "0"): 0,
        ("DCGM_FI_DEV_XID_ERRORS", "0"): 0,
        ("rigwright_gpu_xid_events", "0"): 0,
        ("rigwright_gpu_power_limit_declared_watts", "0"): 280,
    }


def test_a_card_is_named_as_dcgm_names_it() -> None:
    (labels,) = {one.labels for one in Cards(StandInNvml([Card(0)]), [None]).samples() if one.name.endswith("GPU_TEMP")}
    assert dict(labels) == {
        **{"gpu": "0", "UUID": "GPU-0", "pci_bus_id": "00000000:01:00.0", "device": "nvidia0"},
        "modelName": "NVIDIA GeForce RTX 3090",
    }


def test_what_a_card_does_not_tell_is_left_out_and_the_rest_is_told() -> None:
    found = told(Cards(StandInNvml([Card(0, temperature=None), Card(1)]), [None, 250]))
    assert ("DCGM_FI_DEV_GPU_TEMP", "0") not in found
    assert found["DCGM_FI_DEV_GPU_TEMP", "1"] == 40
    assert ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "1") not in found
    assert ("rigwright_gpu_power_limit_declared_watts", "0") not in found
    assert found["rigwright_gpu_power_limit_declared_watts", "1"] == 250


def test_a_card_that_has_fallen_off_the_bus_is_missing_and_the_others_are_not() -> None:
    found = told(Cards(StandInNvml([Card(0, lost=True), Card(1)]), [None, None]))
    assert found["rigwright_gpus_declared", ""] == 2
    assert {gpu for _, gpu in found} == {"", "1"}


@pytest.mark.parametrize(
    ("reasons", "slow"),
    [(0x4, []), (0x8, ["hardware"]), (0xE4, ["software thermal", "hardware thermal", "power brake"])],
    ids=["its power limit", "hardware", "all at once"],
)
def test_what_slows_a_card_down_is_told_apart_from_its_power_limit(reasons: int, slow: list[str]) -> None:
    found = told(Cards(StandInNvml([Card(0, reasons=reasons)]), [None]))
    prefix = "rigwright_gpu_throttled"
    assert [
        name.removeprefix(prefix) for (name, _), value in found.items() if name.startswith(prefix) and value
    ] == slow


def test_errors_of_the_driver_are_counted_with_the_last_one() -> None:
    nvml = StandInNvml([Card(0, uncorrected=0), Card(1, uncorrected=0)], xids=[(1, 31), (1, 79)])
    cards = Cards(nvml, [None, None])
    assert cards.open()
    assert [cards.wait(0) for _ in range(3)] == [True, True, True]
    found = told(cards)
    assert (found["DCGM_FI_DEV_XID_ERRORS", "1"], found["rigwright_gpu_xid_events", "1"]) == (79, 2)
    assert (found["DCGM_FI_DEV_XID_ERRORS", "0"], found["rigwright_gpu_xid_events", "0"]) == (0, 0)


def test_without_a_driver_it_says_how_many_cards_there_should_be_and_finds_one_that_comes() -> None:
    nvml = StandInNvml(driver=False)
    cards = Cards(nvml, [None, None])
    assert told(cards) == {("rigwright_gpus_declared", ""): 2}
    assert not cards.lost
    nvml.driver = True
    assert ("DCGM_FI_DEV_GPU_TEMP", "1") in told(cards)
    nvml.driver = False
    assert told(cards) == {("rigwright_gpus_declared", ""): 2}
    assert cards.lost


def test_limits_are_one_a_card() -> None:
    assert limits("280,-,300") == [280, None, 300]
