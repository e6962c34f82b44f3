"""The output of nvidia-smi becomes a typed value, or one sentence."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from rigwright.nvidia.cards.smi import (
    App,
    Gpu,
    apps,
    bus_address,
    gpus,
    recovery,
    those_that_answer,
)
from tests.unit.nvidia_host import CAPTURED_OUTPUT

UUIDS = tuple(f"GPU-0000000{n}-0000-0000-0000-000000000000" for n in (0, 1))
FIRST = Gpu(
    index=0,
    address="0000:00:06.0",
    uuid=UUIDS[0],
    driver="580.159.04",
    capability="9.0",
    total_mib=143771,
    used_mib=0,
    persistence="Enabled",
    width=16,
    width_max=16,
    uncorrected=0,
    limit_w=700.0,
    least_w=200.0,
    most_w=700.0,
    usual_w=700.0,
    clock_mhz=345.0,
    vbios="96.00.A5.00.1A",
    name="NVIDIA H200",
)
ROW = CAPTURED_OUTPUT["gpus"].splitlines()[0]
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.178\n"
LOST = (
    "Unable to determine the device handle for GPU1: 0000:02:00.0: GPU is lost.  Reboot the system to recover this GPU"
)


def test_two_cards_that_are_idle() -> None:
    assert gpus(0, CAPTURED_OUTPUT["gpus"], "") == (
        FIRST,
        replace(FIRST, index=1, address="0000:00:07.0", uuid=UUIDS[1]),
    )
    assert recovery(0, CAPTURED_OUTPUT["recovery"], "") == {"0000:00:06.0": "None", "0000:00:07.0": "None"}
    assert apps(0, "", "") == ()


def test_a_card_with_a_foreign_process() -> None:
    assert gpus(0, CAPTURED_OUTPUT["busy"], "")[0] == replace(FIRST, used_mib=1551)
    assert apps(0, CAPTURED_OUTPUT["apps"], "") == (App(493, "0000:00:06.0", 1542),)


@pytest.mark.parametrize("unsaid", ["[N/A]", "N/A", "[Not Supported]"])
def test_missing_figures_of_a_card_are_none(unsaid: str) -> None:
    line = (
        f"0, 00000000:01:00.0, GPU-1, 580.1, 8.6, 24576, {unsaid}, Enabled, 4, {unsaid}, {unsaid}, {unsaid}, {unsaid}, "
        f"{unsaid}, {unsaid}, {unsaid}, 90.02, Odd, One"
    )
    none: dict[str, None] = dict.fromkeys(("used_mib", "width_max", "uncorrected", "limit_w", "least_w", "most_w"))
    assert gpus(0, line, "") == (
        replace(
            FIRST,
            address="0000:01:00.0",
            uuid="GPU-1",
            driver="580.1",
            capability="8.6",
            total_mib=24576,
            width=4,
            usual_w=None,
            clock_mhz=None,
            vbios="90.02",
            name="Odd, One",
            **none,
        ),
    )
    assert apps(0, f"7, 00000000:01:00.0, {unsaid}\n", "") == (App(7, "0000:01:00.0", None),)
    assert recovery(0, f"00000000:01:00.0, {unsaid}\n", "") == {}


def test_a_driver_that_does_not_know_the_recovery_action_has_none() -> None:
    said = CAPTURED_OUTPUT["unknown field, status 2"].replace("no_such_field", "gpu_recovery_action")
    assert recovery(2, said, "") == {}
    assert recovery(2, "", said) == {}


INFOROM = "WARNING: infoROM is corrupted at gpu 0000:01:00.0"
UNABLE = "Unable to determine the device handle for GPU0000:02:00.0: Unknown Error"


@pytest.mark.parametrize(
    ("status", "line"), [(14, INFOROM), (0, INFOROM), (15, LOST), (255, UNABLE)], ids=["14", "0", "lost", "unable"]
)
@pytest.mark.parametrize("place", ["before", "after", "stderr"])
def test_a_warning_leaves_the_rows_readable_and_is_shown(status: int, line: str, place: str) -> None:
    def answered(row: str) -> tuple[int, str, str]:
        out = {"before": f"{line}\n{row}\n", "after": f"{row}\n{line}\n", "stderr": f"{row}\n"}[place]
        return status, out, line if place == "stderr" else ""

    found, warning = those_that_answer(*answered(ROW))
    assert (len(found), warning) == (1, f"nvidia-smi reports: {line}")
    assert gpus(*answered(ROW)) == found
    assert len(apps(*answered("812, 00000000:01:00.0, 22000"))) == 1
    assert recovery(*answered("00000000:01:00.0, None")) == {"0000:01:00.0": "None"}


def test_a_sick_card_leaves_the_others_readable() -> None:
    sick = ROW.replace("580.159.04", "[GPU requires reset]")
    found, warning = those_that_answer(0, f"{sick}\n{ROW}\n")
    assert len(found) == 1
    assert "GPU requires reset" in warning


@pytest.mark.parametrize("read", [gpus, recovery, apps])
@pytest.mark.parametrize(
    ("status", "stdout", "stderr", "sentence"),
    [
        (124, "", "", "nvidia-smi did not answer within 20 s"),
        (137, ROW, "", "nvidia-smi did not answer within 20 s"),
        (127, "", "timeout: failed to run command 'nvidia-smi'", "nvidia-smi is not installed"),
        (18, MISMATCH, "", "nvidia-smi reports: Failed to initialize NVML: Driver/library version mismatch"),
        (6, CAPTURED_OUTPUT["no device file of a card, status 6"], "", "nvidia-smi reports: No devices were found"),
        (0, "No devices were found\n", "", "nvidia-smi reports: No devices were found"),
        (
            17,
            CAPTURED_OUTPUT["no access to /dev/nvidiactl, status 17"],
            "",
            "nvidia-smi reports: Failed to initialize NVML: GPU access blocked by the operating system",
        ),
        (15, f"{LOST}\n", "", f"nvidia-smi reports: {LOST}"),
        (0, f"{LOST}\n", "", f"nvidia-smi reports: {LOST}"),
        (9, "", "\nno driver\n", "nvidia-smi reports: no driver"),
        (255, "", "", "nvidia-smi ended with status 255"),
    ],
)
def test_an_nvidia_smi_that_fails_is_one_sentence(
    read: Callable[[int, str, str], object], status: int, stdout: str, stderr: str, sentence: str
) -> None:
    with pytest.raises(ValueError) as caught:
        read(status, stdout, stderr)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("stdout", "sentence"),
    [
        ("", "nvidia-smi lists no card"),
        ("\n", "nvidia-smi lists no card"),
        (ROW.replace("9.0", "[Unknown Error]"), "nvidia-smi reports [Unknown Error] for the card at 0000:00:06.0"),
        (
            ROW.replace("143771", "[GPU is lost]"),
            "nvidia-smi reports [GPU is lost] for memory.total of the card at 0000:00:06.0",
        ),
        (
            ROW.replace("16, 16", "16, ERR!"),
            "nvidia-smi reports ERR! for pcie.link.width.max of the card at 0000:00:06.0",
        ),
        (
            ROW.replace(" 16,", " ,"),
            "nvidia-smi reports nothing for pcie.link.width.current of the card at 0000:00:06.0",
        ),
        ("0, 00000000:00:06.0", "nvidia-smi reports: 0, 00000000:00:06.0"),
        (ROW.replace("0,", "GPU is lost,", 1), f"nvidia-smi reports: {ROW.replace('0,', 'GPU is lost,', 1)}"),
    ],
)
def test_a_card_that_is_sick_is_one_sentence(stdout: str, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        gpus(0, stdout, "")
    assert str(caught.value) == sentence


@pytest.mark.parametrize("line", ["[N/A], 00000000:01:00.0, 5", "7, 00000000:01:00.0", "7, 00000000:01:00.0, x"])
def test_a_process_that_is_malformed_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="nvidia-smi reports"):
        apps(0, line, "")


def test_a_driver_too_old_for_a_question_says_which_field() -> None:
    with pytest.raises(ValueError, match=r'^nvidia-smi reports: Field "compute_cap" is not a valid field to query\.$'):
        gpus(2, CAPTURED_OUTPUT["unknown field, status 2"].replace("no_such_field", "compute_cap"), "")


def test_an_address_of_nvidia_smis_is_one_of_the_kernels() -> None:
    assert bus_address("00000000:C1:00.0") == "0000:c1:00.0"
    assert bus_address("00010000:03:00.0") == "10000:03:00.0"
