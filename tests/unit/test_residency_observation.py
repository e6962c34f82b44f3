"""The residency service's view of the box: output of systemctl and nvidia-smi in any form, and host memory."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.stand_in_card import RESERVE_MIB, render_smi_of_card
from roles.residency.host import observation
from roles.residency.host.state import MemoryDevice, UnitObserved
from tests.stand_ins.nvidia.package_contents import render_smi

MIB = 1 << 20
UUID = "GPU-01234567-89ab-cdef-0123-456789abcdef"
OTHER = "GPU-fedcba98-89ab-cdef-0123-456789abcdef"


def test_memory_of_a_card_by_instance_and_by_other_processes() -> None:
    cards = f"0, {UUID}, 5000, 19000\n1, {OTHER}, 10, 23990\n"
    rows = ((100, UUID, "3000"), (101, UUID, "1000"), (102, UUID, "500"), (100, OTHER, "5"))
    unnamed = [(process, uuid, "[N/A]") for process in (103, 104) for uuid in (UUID, OTHER)]
    apps = "".join(f"{process}, {uuid}, {size}\n" for process, uuid, size in (*rows, *unnamed))
    found, uuids = observation.parse_cards(cards, apps, {100: "one", 101: "one", 103: "two"})
    assert uuids == {"0": UUID, "1": OTHER}
    assert found["0"] == MemoryDevice(24000 * MIB, 5000 * MIB, {"one": 4000 * MIB, "two": 0}, frozenset({"two"}))
    assert found["1"].ours == {"one": 5 * MIB, "two": 0}


@pytest.mark.parametrize("word", ["[N/A]", "[Not Supported]", "[GPU is lost]"])
def test_a_word_without_a_figure_leaves_the_rest_known(word: str) -> None:
    cards = f"0, {UUID}, 5000, 19000\n"
    by_need = MemoryDevice(24000 * MIB, 5000 * MIB, {"one": 0, "two": 0}, frozenset({"one", "two"}))
    owners = {100: "one", 101: "two"}
    for apps in (f"{word}\n", f"{word}, {UUID}, {word}\n", f"{word}, {UUID}, 50\n"):
        assert observation.parse_cards(cards, apps, owners)[0] == {"0": by_need}, apps
    one = MemoryDevice(24000 * MIB, 5000 * MIB, {"one": 70 * MIB}, frozenset({"one"}))
    apps = f"100, {UUID}, 70\n100, {word}, 50\n7, {UUID}, {word}\n"
    assert observation.parse_cards(cards, apps, owners)[0] == {"0": one}
    lost = f"1, {OTHER}, {word}, {word}\n2, {word}, 5, 5\n{word}\n"
    assert observation.parse_cards(cards + lost, f"100, {OTHER}, 5\n", owners)[0].keys() == {"0"}


@pytest.mark.parametrize(
    "line",
    [
        "WARNING: infoROM is corrupted at gpu 0000:01:00.0",
        "Unable to determine the device handle for GPU1: 0000:02:00.0: GPU is lost.  Reboot the system",
        "N/A",
    ],
)
def test_a_message_about_one_card_leaves_the_others_known(line: str) -> None:
    cards = f"{line}\n0, {UUID}, 5000, 19000\n"
    known = MemoryDevice(24000 * MIB, 5000 * MIB, {"one": 50 * MIB})
    assert observation.parse_cards(cards, f"100, {UUID}, 50\n", {100: "one"})[0] == {"0": known}
    if line != "N/A":
        assert observation.parse_cards(cards, f"100, {UUID}, 50\n{line}\n", {100: "one"})[0] == {"0": known}


@pytest.mark.parametrize("row", ["100, {}, 199,00", "100, {}, ERR!", "100, {}", "{}", "100, {}, [1]"])
def test_one_row_that_is_none_makes_the_answer_void(row: str) -> None:
    cards, apps = f"0, {UUID}, 5000, 19000\n", f"7, {UUID}, 50\n"
    assert observation.parse_cards(cards, apps + row.format(UUID), {100: "one"}) == ({}, {})
    assert observation.parse_cards(f"{cards}1, {OTHER}, ERR!, 5\n", apps, {}) == ({}, {})


@given(st.text(), st.text())
def test_any_output_of_nvidia_smi_gives_cards_or_none(cards: str, apps: str) -> None:
    found, uuids = observation.parse_cards(cards, apps, {})
    assert found.keys() == uuids.keys()


@given(st.text())
def test_any_output_of_systemctl_gives_known_states(text: str) -> None:
    for row in observation.parse_units(text).values():
        assert observation.unit_state(row).state in (
            *("active", "activating", "deactivating", "inactive", "failed", "restarting"),
        )


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"ActiveState": "active", "SubState": "running", "Job": "0"}, "active"),
        ({"ActiveState": "active", "SubState": "running", "Job": "17"}, "deactivating"),
        ({"ActiveState": "inactive", "SubState": "dead", "Job": "17"}, "activating"),
        ({"ActiveState": "inactive", "SubState": "dead", "Job": ""}, "inactive"),
        ({"ActiveState": "activating", "SubState": "start-post", "Job": "17"}, "activating"),
        ({"ActiveState": "activating", "SubState": "auto-restart", "Job": "0"}, "restarting"),
        ({"ActiveState": "failed", "SubState": "failed", "Job": "0"}, "failed"),
        ({}, "inactive"),
    ],
)
def test_states_of_a_unit(row: dict[str, str], expected: str) -> None:
    assert observation.unit_state(row).state == expected


def test_a_failure_names_its_reason_without_the_log() -> None:
    row = {"ActiveState": "activating", "SubState": "auto-restart", "Result": "oom-kill"}
    assert observation.unit_state(row) == UnitObserved(
        "restarting", "oom-kill", "the kernel ended it for lack of memory"
    )
    row |= {"Result": "exit-code", "ExecMainStatus": "3"}
    assert observation.unit_state(row).reason == "its engine ended with status 3"
    row |= {"ExecMainStatus": "15", "ExecMainCode": "2"}
    assert observation.unit_state(row).reason == "a step of its start failed"
    row |= {"Result": "signal", "ExecMainStatus": "9"}
    assert observation.unit_state(row).reason == "its engine was ended by signal 9"
    row |= {"Result": "exit-code", "ExecMainStatus": "0", "ExecMainCode": "0"}
    assert observation.unit_state(row).reason == "its unit failed (exit-code)"


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        # 1000 MiB are available of 4000; anonymous memory of ours is 500 MiB
        ("100%", MemoryDevice(4000 * MIB, 3000 * MIB, {"one": 500 * MIB})),
        # 2500 MiB of others fit beside the budget of 1000 MiB
        ("1000M", MemoryDevice(1000 * MIB, 500 * MIB, {"one": 500 * MIB})),
        # and leave 1500 MiB of a budget of 2000
        ("50%", MemoryDevice(2000 * MIB, 1000 * MIB, {"one": 500 * MIB})),
    ],
)
def test_host_memory_within_a_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, declared: str, expected: MemoryDevice
) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(f"MemTotal:       {4000 << 10} kB\nMemAvailable:   {1000 << 10} kB\n")
    monkeypatch.setattr(observation, "own_memory", lambda group: 500 * MIB)
    assert observation.read_host({"one": "/rigwright.slice/a"}, declared, str(meminfo)) == expected
    meminfo.write_text("MemTotal: x\n")
    assert observation.read_host({}, declared, str(meminfo)) is None


def test_memory_of_a_control_group_is_without_files(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/memory.stat").write_text(f"anon {3 * MIB}\nfile {900 * MIB}\nshmem {MIB}\nkernel 10\n")
    assert observation.own_memory("/a", str(tmp_path)) == 4 * MIB + 10
    assert observation.own_memory("/none", str(tmp_path)) == 0


def test_processes_of_control_groups_and_those_below(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/cgroup.procs").write_text("10\n11\n")
    (tmp_path / "a/b/cgroup.procs").write_text("12\nx\n")
    assert observation.list_processes({"one": "/a", "two": ""}, str(tmp_path)) == dict.fromkeys((10, 11, 12), "one")


def test_the_stand_in_for_nvidia_smi_tells_foreign_processes_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = "0000:01:00.0"
    for path, text in {
        "sys/module/nvidia/version": "580.159.04\n",
        f"sys/bus/pci/devices/{address}/vendor": "0x10de\n",
        f"sys/bus/pci/devices/{address}/device": "0x2335\n",
        f"sys/bus/pci/devices/{address}/class": "0x030200\n",
        f"proc/driver/nvidia/gpus/{address}/information": "",
        f"run/lab/cards/{address}.apps": "100 60000\n200 9000\n",
        "smi": render_smi("580.159.04"),
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (tmp_path / "smi").chmod(0o755)
    monkeypatch.setenv("LAB_ROOT", str(tmp_path))
    monkeypatch.setattr(observation, "SMI", str(tmp_path / "smi"))
    found, uuids = observation.CardSampler().query({100: "one"})
    card = found["0"]
    assert card.total == 143771 * MIB
    assert card.used >= 69000 * MIB
    assert card.ours == {"one": 60000 * MIB}
    assert uuids["0"].startswith("GPU-")
    (tmp_path / "smi").write_text("#!/bin/sh\nexit 15\n")
    assert observation.CardSampler().query({}) == ({}, {}), "unknown is not free"


def test_a_stand_in_card_has_a_part_that_is_neither_used_nor_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").write_text("100\n")
    (tmp_path / "smi").write_text(render_smi_of_card(1200, str(tmp_path / "taken"), str(tmp_path / "fault")))
    (tmp_path / "smi").chmod(0o755)
    monkeypatch.setattr(observation, "SMI", str(tmp_path / "smi"))
    assert observation.CardSampler().query({})[0]["0"].total == (1200 - RESERVE_MIB) * MIB


CARDS, APPS = f"0, {UUID}, 700, 500\\n", f"100, {UUID}, 690\\n"


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("", {"0": MemoryDevice(1200 * MIB, 700 * MIB, {"one": 690 * MIB})}),
        ("kill -KILL $$", {}),
        ("printf '0, '; exec sleep 100", {}),
        ("exit 9", {}),
        ("printf 'NVIDIA-SMI has failed\\n'; exit", {}),
        # half a line is another figure
        (f"printf '0, {UUID}, 700, 5'; exit", {}),
        (f"printf '100, {UUID}, 69'; exit", {}),
        ("exec yes", {}),
    ],
)
@pytest.mark.parametrize("faulty", ["gpu", "compute-apps"])
def test_only_a_whole_answer_of_nvidia_smi_says_what_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faulty: str, fault: str, expected: dict[str, MemoryDevice]
) -> None:
    program = tmp_path / "smi"
    program.write_text(
        f"#!/bin/sh\ncase $1 in --query-{faulty}=*) {fault or ':'} ;; esac\n"
        f"case $1 in --query-gpu=*) printf '{CARDS}' ;; *) printf '{APPS}' ;; esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(observation, "SMI", str(program))
    monkeypatch.setattr(observation, "SMI_S", 1.0)
    sampler = observation.CardSampler()
    assert sampler.query({100: "one"})[0] == expected
    assert all(one.wait(10) is not None for one in sampler.processes), "none is left"


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """As many open descriptors as a service has with 1,100 clients that wait."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        for _ in range(1100):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        yield


@pytest.mark.usefixtures("many_descriptors")
def test_cards_are_known_while_many_clients_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "smi"
    program.write_text(f"#!/bin/sh\ncase $1 in --query-gpu=*) printf '{CARDS}' ;; *) printf '{APPS}' ;; esac\n")
    program.chmod(0o755)
    monkeypatch.setattr(observation, "SMI", str(program))
    expected = {"0": MemoryDevice(1200 * MIB, 700 * MIB, {"one": 690 * MIB})}
    assert observation.CardSampler().query({100: "one"})[0] == expected


def test_a_fault_of_the_question_leaves_cards_unknown_and_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(groups: object) -> dict[int, str]:
        raise RuntimeError(groups)

    monkeypatch.setattr(observation, "list_processes", fail)
    sampler, answers = observation.CardSampler(), []
    sampler.notify = lambda: answers.append(sampler.sample.devices)
    for _ in range(2):
        sampler.look({}, observation.monotonic())
        assert sampler.thread
        sampler.thread.join(10)
    assert answers == [{}, {}], "the service hears of each answer"
    assert capsys.readouterr().out.count("RuntimeError") == 1


def test_the_kernel_tells_which_boot_it_is() -> None:
    # without it, a service that starts again takes its ledger for one of another boot
    assert re.fullmatch("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", observation.boot_id())
