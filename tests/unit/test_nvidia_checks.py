"""The checks N01 to N07 and S08 as they run: green on a sound host, red on each that is not."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from checks import Drift, test_nvidia_driver, test_serving
from checks.survey.answers import SurveyAnswers
from checks.survey.cards import CARDS
from tests.unit.nvidia_host import ADDRESSES, CAPTURED_OUTPUT, FACTS, GROUP, RIG, NvidiaFolderHost
from tests.unit.samples import sample_instance, sample_rig

BUSY = CAPTURED_OUTPUT["busy"]
Change = Callable[[NvidiaFolderHost], object]


def unit(survey: SurveyAnswers, group: str) -> Any:
    """A unit that has the processes of a control group."""
    return SimpleNamespace(processes=[one for one in survey.read(CARDS).processes if one.cgroup == group])


def run(name: str, survey: SurveyAnswers) -> None:
    """Run one check, with what its fixtures would give it."""
    checks: dict[str, Callable[[], None]] = {
        "N01": lambda: test_nvidia_driver.test_cards_answer(survey, RIG.cards, FACTS),
        "N02": lambda: test_nvidia_driver.test_one_version(survey, RIG.cards, RIG.driver_supply),
        "N03": lambda: test_nvidia_driver.test_device_files(survey, RIG.cards, FACTS),
        "N04": lambda: test_nvidia_driver.test_cards_are_ours(
            survey, RIG.cards, RIG.reserved_gpus, RIG.instances, FACTS
        ),
        "N05": lambda: test_nvidia_driver.test_persistence(survey, RIG.cards, RIG.reserved_gpus, FACTS),
        "N06": lambda: test_nvidia_driver.test_no_trouble(survey, RIG.cards, FACTS),
        "N07": lambda: test_nvidia_driver.test_links(survey, RIG.cards, RIG.driver, FACTS),
        "S08": lambda: test_serving.test_sees_its_cards(survey, FACTS, RIG.instances[0], unit(survey, GROUP)),
    }
    checks[name]()


ALL = ("N01", "N02", "N03", "N04", "N05", "N06", "N07", "S08")


@pytest.fixture
def host(tmp_path: Path) -> NvidiaFolderHost:
    return NvidiaFolderHost(tmp_path.resolve())


def red(host: NvidiaFolderHost) -> dict[str, str]:
    """The checks that do not hold, with what they say; it is one line."""
    said, survey = {}, host.run_survey()
    for name in ALL:
        try:
            run(name, survey)
        except Drift as drift:
            said[name] = str(drift)
            assert "\n" not in said[name]
            assert said[name].startswith("expected ")
    return said


def another_library_first(host: NvidiaFolderHost) -> None:
    """One with the right version in its name, that the loader finds before the driver's."""
    host.write("opt/x/libcuda.so.580.159.04", "")
    line = "\tlibcuda.so.1 (libc6,x86-64) => /opt/x/libcuda.so.580.159.04\n"
    host.write("says/ldconfig", line + CAPTURED_OUTPUT["ldconfig"])


def foreign(host: NvidiaFolderHost) -> None:
    host.set_smi_answers(
        apps=CAPTURED_OUTPUT["apps"] + "700, 00000000:00:07.0, 512\n", gpus=BUSY.replace("143771, 0,", "143771, 512,")
    )
    host.add_process(700, "py\x1b[31mthon\t3", "0::/user.slice/user-1000.slice/session-3.scope\n")


def stray(host: NvidiaFolderHost) -> None:
    """A former process of ours is now a foreign one."""
    host.add_process(493, "llama-server", "0::/system.slice/ollama.service\n")


SICK: dict[str, tuple[Change, dict[str, str]]] = {
    "a card that is another one": (
        lambda host: host.set_smi_answers(gpus=BUSY.replace("NVIDIA H200", "NVIDIA H100", 1)),
        {"N01": "name NVIDIA H200, found NVIDIA H100; declare the card that is there"},
    ),
    "a card that nvidia-smi does not name": (
        lambda host: host.set_smi_answers(gpus=BUSY.splitlines()[0]),
        {"N01": "expected card 1 at 0000:00:07.0 to answer, found nvidia-smi lists 0000:00:06.0"},
    ),
    "libraries of an upgrade": (
        lambda host: host.write("sys/module/nvidia/version", "580.126.09\n"),
        {"N02": "version 580.126.09, found 580.159.04; if the driver"},
    ),
    "another library first": (
        another_library_first,
        {"N02": "found /opt/x/libcuda.so.580.159.04, /usr/local/nvidia/lib64/libcuda.so.580.159.04; remove all others"},
    ),
    "no module": (
        lambda host: host.remove("sys/module/nvidia"),
        {"N02": "expected a loaded kernel module `nvidia`, found none"},
    ),
    "no device file of a card": (
        lambda host: host.remove("dev/nvidia1"),
        {"N03": "expected the device /dev/nvidia1 of card 1 at 0000:00:07.0, found none"},
    ),
    "a plain file for a device": (
        lambda host: (host.remove("dev/nvidia-uvm"), host.write("dev/nvidia-uvm", "")),
        {"N03": "expected the device /dev/nvidia-uvm, found none"},
    ),
    "a card of another driver": (
        lambda host: host.remove(f"proc/driver/nvidia/gpus/{ADDRESSES[1]}"),
        {"N03": "expected the driver nvidia on card 1 at 0000:00:07.0, found another driver, or none"},
    ),
    "nouveau": (
        lambda host: host.write("sys/module/nouveau/refcnt", "0\n"),
        {"N03": "expected no kernel module nouveau, found it is loaded"},
    ),
    "somebody else's process": (
        foreign,
        {"N04": "found pid 700 (py�[31mthon�3) with 512 MiB in /user.slice/user-1000.slice/session-3.scope; stop it"},
    ),
    "a process in a group whose name has a tab": (
        lambda host: (foreign(host), host.add_process(700, "x", "0::/user.slice/a\tb\n")),
        {"N04": "found pid 700 (x) with 512 MiB in /user.slice/a\ufffdb; stop it"},
    ),
    "a server that is not the rig's": (
        stray,
        {
            "N04": "found pid 493 (llama-server) with 1542 MiB in /system.slice/",
            "S08": "expected ['0000:00:06.0'], found []",
        },
    ),
    "a process that cannot be seen": (
        lambda host: host.remove("proc/493"),
        {"N04": "found pid 493 (out of sight) with 1542 MiB", "S08": "expected ['0000:00:06.0'], found []"},
    ),
    "a desktop": (
        lambda host: host.set_smi_answers(gpus=BUSY.replace("1551", "3000")),
        {"N04": "at most 256 MiB of card 0 at 0000:00:06.0 in use outside compute processes, found 1458 MiB"},
    ),
    "no persistence": (
        lambda host: host.set_smi_answers(gpus=BUSY.replace("Enabled", "Disabled", 1)),
        {"N05": "expected persistence mode Enabled on card 0 at 0000:00:06.0, found Disabled"},
    ),
    "memory errors": (
        lambda host: host.set_smi_answers(gpus=BUSY.replace("16, 16, 0", "16, 16, 2", 1)),
        {"N06": "expected no uncorrected memory error on card 0 at 0000:00:06.0, found 2"},
    ),
    "a card that asks for a reset": (
        lambda host: host.set_smi_answers(recovery=CAPTURED_OUTPUT["recovery"].replace("None", "Reset", 1)),
        {"N06": "expected recovery action None of card 0 at 0000:00:06.0, found Reset"},
    ),
    "an Xid": (
        lambda host: host.write("says/log", "NVRM: Xid (PCI:0000:00:06): 79, GPU has fallen off the bus.\n" * 3),
        {"N06": "expected no Xid 79 of card 0 since boot, found 3: it fell off the bus"},
    ),
    "half of the lanes": (
        lambda host: host.set_smi_answers(gpus=BUSY.replace("16, 16", "8, 16", 1)),
        {"N07": "expected a PCIe link width of x16 to card 0 at 0000:00:06.0, found 8"},
    ),
    "a server on the CPU": (
        lambda host: host.set_smi_answers(apps="", gpus=CAPTURED_OUTPUT["gpus"]),
        {"S08": "expected ['0000:00:06.0'], found []"},
    ),
    "a server on both cards": (
        lambda host: host.set_smi_answers(
            apps=CAPTURED_OUTPUT["apps"] + CAPTURED_OUTPUT["apps"].replace("06.0", "07.0")
        ),
        {"S08": "expected ['0000:00:06.0'], found ['0000:00:06.0', '0000:00:07.0']"},
    ),
}


def test_a_sound_host_is_green(host: NvidiaFolderHost) -> None:
    assert red(host) == {}


@pytest.mark.parametrize("what", SICK)
def test_each_sick_host_turns_its_check_red_and_no_other(host: NvidiaFolderHost, what: str) -> None:
    change, expected = SICK[what]
    change(host)
    found = red(host)
    assert set(found) == set(expected)
    for name, part in expected.items():
        assert part in found[name]


def test_every_check_is_seen_red() -> None:
    assert {name for _, expected in SICK.values() for name in expected} == set(ALL)


@pytest.mark.parametrize(("status", "said"), [(18, "Driver/library version mismatch\n"), (124, ""), (127, "")])
def test_a_driver_that_does_not_answer_is_no_silence(host: NvidiaFolderHost, status: int, said: str) -> None:
    host.set_smi_answers(status, gpus=said, apps=said, recovery=said)
    assert set(red(host)) == set(ALL) - {"N03"}  # which asks the kernel alone


def test_a_kernel_log_that_cannot_be_read_is_no_silence(host: NvidiaFolderHost) -> None:
    host.remove("run/log/journal")
    assert "journald keeps nothing" in red(host)["N06"]


FALLEN = "NVRM: Xid (PCI:0000:00:06): 79, GPU has fallen off the bus."


@pytest.mark.parametrize(
    "message",
    [
        # the kernel's name for a program that is started without arguments is one that its author chose
        f"process 'x' launched '/tmp/{FALLEN}' with NULL argv: empty string added",
        f"process 'x' launched '/tmp/\n{FALLEN}' with NULL argv: empty string added",
        f'"MESSAGE" : "{FALLEN}"',
    ],
)
def test_a_file_with_the_name_of_a_broken_card_breaks_none(host: NvidiaFolderHost, message: str) -> None:
    host.write("says/log.json", json.dumps({"__CURSOR": "s=2", "MESSAGE": message}) + "\n")
    host.write("says/log", f"{message}\n")
    assert red(host) == {}


def test_a_library_of_a_forged_name_is_one_more(host: NvidiaFolderHost) -> None:
    host.write("opt/x/libcuda.so.580\x1b[2J", "")
    host.write(
        "says/ldconfig", CAPTURED_OUTPUT["ldconfig"] + "\tlibcuda.so.1 (libc6,x86-64) => /opt/x/libcuda.so.580\x1b[2J\n"
    )
    found = red(host)
    assert set(found) == {"N02"}
    assert "libcuda.so.580\ufffd[2J" in found["N02"]


def test_a_rig_without_cards_is_not_asked(host: NvidiaFolderHost) -> None:
    bare = sample_rig()
    survey = host.run_survey(bare)
    for check in (
        lambda: test_nvidia_driver.test_one_version(survey, bare.cards, bare.driver_supply),
        lambda: test_nvidia_driver.test_device_files(survey, bare.cards, FACTS),
    ):
        with pytest.raises(pytest.skip.Exception, match="the rig declares no cards"):
            check()
    assert not (host.root / "says/asked").exists()


def test_cards_of_a_worker_in_a_slice_of_the_instances_own_are_its_cards(host: NvidiaFolderHost) -> None:
    """systemd escapes a dash in the slice's name; the main process need not be the one that has the card."""
    own = replace(RIG, instances=(sample_instance("a-b", cards=(0,)),))
    group = f"/rigwright.slice/{own.instances[0].slice}/{own.instances[0].unit}"
    assert r"\x2d" in group
    host.add_process(493, "python3", f"0::{group}\n")
    survey = host.run_survey(own)
    test_serving.test_sees_its_cards(survey, FACTS, own.instances[0], unit(survey, group))
    test_nvidia_driver.test_cards_are_ours(host.run_survey(own), own.cards, own.reserved_gpus, own.instances, FACTS)
    host.add_process(493, "python3", f"0::{group}x\n")
    survey = host.run_survey(own)
    for check in (
        lambda: test_serving.test_sees_its_cards(survey, FACTS, own.instances[0], unit(survey, group)),
        lambda: test_nvidia_driver.test_cards_are_ours(
            host.run_survey(own), own.cards, own.reserved_gpus, own.instances, FACTS
        ),
    ):
        with pytest.raises(Drift):
            check()
