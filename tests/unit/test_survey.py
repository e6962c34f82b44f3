"""The survey's output becomes a typed value; the survey itself runs on any Linux, as root or not."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rigwright.host import script_output
from rigwright.host.basic_facts import ListeningSocket
from rigwright.render import render
from rigwright.survey import box_survey
from rigwright.survey.box_survey import (
    BoxSurvey,
    GpuProcess,
    ObservedCard,
    ObservedDisk,
    ObservedModelServer,
    parse_survey,
)
from tests.unit import short_programs
from tests.unit.channel_records import card_record, channel_lines_of
from tests.unit.rendered_scripts import write_stand_in

CAPTURES = Path(__file__).parent / "captures"
CONTAINER = "0123456789abcdef" * 4
SYSTEM = ["os_id\tdebian", "os_version\t12", "hostname\th1", "kernel\t6.1.0", "uid\t0"]
SYSTEM += ["memory_kib\t65843212", "cpus\t8", "numa_nodes\t1"]
BARE = BoxSurvey("debian", "12", "h1", "6.1.0", 0, 65843212, 8, 1)
PCI = "pci\t0000:01:00.0\t10de:2204\t0\t16\t16\t2.5 GT/s PCIe\t16.0 GT/s PCIe"
LINK = {"lanes": 16, "lanes_max": 16}
CARD = ObservedCard("0000:01:00.0", "10de:2204", numa_node=0, **LINK, speed="2.5 GT/s PCIe", speed_max="16.0 GT/s PCIe")


def records(lines: list[str]) -> list[tuple[str, ...]]:
    """Lines of words with tabs between them, as records; a row of topology is one word."""
    found: list[tuple[str, ...]] = []
    for key, *fields in (line.split("\t") for line in lines):
        if key == "pci":
            found.append(card_record(*fields[:2], "", "", fields[2], "", *fields[3:]))
        elif key == "topo":
            found.append((key, "\t".join(fields)))
        else:
            found.append((key, *fields))
    return found


def capture(name: str) -> BoxSurvey:
    lines = (CAPTURES / f"{name}.txt").read_text().splitlines()
    return parse_survey(channel_lines_of(records([line for line in lines if "\t" in line])))


def test_two_h200_behind_nvlink_with_a_process_on_one() -> None:
    found = capture("h200-x2")
    more: dict[str, Any] = {**LINK, "speed": "32.0 GT/s PCIe", "speed_max": "32.0 GT/s PCIe", "name": "NVIDIA H200"}
    more |= {"vram_mib": 143771, "capability": "9.0", "nvlinks": 18}
    assert found.cards == (
        ObservedCard("0000:00:06.0", "10de:2335", **more, nvlink_peers=(1,)),
        ObservedCard("0000:00:07.0", "10de:2335", **more, nvlink_peers=(0,)),
    )
    # it has both cards' device files open, and computes on the second alone
    assert found.processes == (GpuProcess(656, "root", "python", "", "", ((1, 1634),)),)
    assert (found.os_id, found.driver, found.cpus) == ("ubuntu", "580.159.04", 32)
    assert found.disks == (ObservedDisk("/", "/dev/vda", "ext4", 264212084, 134199276, True),)


def test_a_throwaway_host_with_a_card_and_no_driver() -> None:
    found = capture("lab")
    assert found.cards == (ObservedCard("0000:01:00.0", "10de:2204"),)
    assert (found.driver, found.processes, found.record) == ("", (), None)
    assert found.listeners == (ListeningSocket(22, "sshd", "ssh.service", "::", 812),)
    assert [disk.mount for disk in found.disks] == ["/"]


def test_a_box_that_serves_already() -> None:
    found = capture("two-sockets")
    assert [card.address[5:7] for card in found.cards] == ["01", "21", "81", "c1"]
    assert [card.numa_node for card in found.cards] == [0, 0, 1, 1]
    assert [card.nvlink_peers for card in found.cards] == [(), (), (3,), (2,)]
    assert [card.vram_mib for card in found.cards] == [22528, 24576, 24576, 24576]
    assert found.processes == (
        GpuProcess(700, "root", "nvidia-persiste", "nvidia-persistenced.service", ""),
        GpuProcess(
            4242,
            "root",
            "python3",
            f"docker-{CONTAINER}.scope",
            "docker vllm-main vllm/vllm-openai:v0.11.0",
            ((1, 20480),),
        ),
        GpuProcess(4343, "ollama", "ollama", "ollama.service", "", ((0, 0),)),
    )
    assert [process.is_foreign for process in found.processes] == [False, True, True]
    assert [disk.mount for disk in found.disks] == ["/", "/archive", "/data", "/nas"]
    assert [disk.mount for disk in found.disks if not disk.is_local] == ["/nas"]
    assert [disk.mount for disk in found.disks if not disk.writable] == ["/archive"]
    assert found.units == (ObservedModelServer("ollama.service", "active", "/etc/systemd/system/ollama.service"),)
    assert found.record == "old"


@pytest.mark.parametrize(
    ("lines", "changes"),
    [
        ([], {}),
        (["pci\t0000:01:00.0\t10de:2204\t\t\t\t\t"], {"cards": (ObservedCard("0000:01:00.0", "10de:2204"),)}),
        # a link that is down reads as 63 or 255 lanes
        (
            ["pci\t0000:01:00.0\t10de:2204\t-1\t63\t255\tUnknown\tUnknown"],
            {"cards": (ObservedCard("0000:01:00.0", "10de:2204", speed="Unknown", speed_max="Unknown"),)},
        ),
        ([PCI], {"cards": (CARD,)}),
        (
            [PCI, "driver\t390.157", "gpu\t0, 00000000:01:00.0, 24576, NVIDIA GeForce RTX 3090"],
            {"driver": "390.157", "cards": (replace(CARD, name="NVIDIA GeForce RTX 3090", vram_mib=24576),)},
        ),
        (
            [PCI, "driver\t580.1", "gpu\t0, 00000000:01:00.0, [N/A], [N/A], Odd, One"],
            {"driver": "580.1", "cards": (replace(CARD, name="Odd, One"),)},
        ),
        ([PCI, "driver\t580.1", "gpu\tNo devices were found", "app\t"], {"driver": "580.1", "cards": (CARD,)}),
        # a card that is in nvidia-smi and not on the bus that we see
        ([PCI, "driver\t580.1", "gpu\t0, 00000000:99:00.0, 1, 8.6, X"], {"driver": "580.1", "cards": (CARD,)}),
        (
            [PCI, "driver\t580.1", "smi_failed\tFailed to initialize NVML: Driver/library version mismatch"],
            {
                "driver": "580.1",
                "cards": (CARD,),
                "smi_failure": "Failed to initialize NVML: Driver/library version mismatch",
            },
        ),
        ([PCI, "driver\t580.1", "smi_failed\t"], {"driver": "580.1", "cards": (CARD,), "smi_failure": "nothing"}),
        (
            ["listener_hex\t1F54", "listener_hex\t0016", "listener_hex\t0016"],
            {"listeners": (ListeningSocket(22, "", ""), ListeningSocket(8020, "", ""))},
        ),
        (
            [
                "listener\t8020\t*\tpython3\t/user.slice/user-1000.slice/user@1000.service/app.slice/my.service/inner\t9\t1000"
            ],
            {"listeners": (ListeningSocket(8020, "python3", "user@1000.service", "*", 9, 1000),)},
        ),
        (["process\t7\t\t\t"], {"processes": (GpuProcess(7, "", "", "", ""),)}),
        (
            [f"process\t7\troot\tpython3\t/docker/{CONTAINER}"],
            {"processes": (GpuProcess(7, "root", "python3", "", CONTAINER[:12]),)},
        ),
        (["record\t{}"], {"record": ""}),
        (["record\tno json"], {"record": ""}),
        (["record\t[1]"], {"record": ""}),
    ],
)
def test_odd_or_missing_lines_are_read_as_far_as_possible(lines: list[str], changes: dict[str, object]) -> None:
    assert parse_survey(["Welcome to h1!", *channel_lines_of(records([*SYSTEM, *lines]))]) == replace(BARE, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("number", range(len(SYSTEM)))
def test_missing_answers_are_reported(number: int) -> None:
    with pytest.raises(ValueError, match=f"'{SYSTEM[number].partition(chr(9))[0]}' no times"):
        parse_survey(channel_lines_of(records(SYSTEM[:number] + SYSTEM[number + 1 :])))


@pytest.mark.parametrize(
    "line",
    [
        *("uid\troot", "cpus\t", "card\t0000:01:00.0", "disk\t/dev/vda\text4", "disk\ta\tb\trw\tx\ty\t/", "unit\tx"),
        *(
            "listener\tssh\t*\tsshd\t\t\t",
            "listener\t22",
            "listener_hex\tzz",
            "process\tx\t\t\t",
            "process\t1",
            "nvlink\t0",
        ),
        *("container\tx\tdocker\ta\tb", "unit\ta b\tactive\t/x", "driver\tx", "colour\tred"),
    ],
)
def test_malformed_text_is_no_survey(line: str) -> None:
    with pytest.raises(ValueError, match=r"the host reported|the host's report"):
        parse_survey(
            channel_lines_of(records([*(one for one in SYSTEM if one.split("\t")[0] != line.split("\t")[0]), line]))
        )


def run(**environment: str) -> BoxSurvey:
    script = render("probe/survey.sh.j2")
    done = short_programs.run_program(["sh", "-c", script], env=environment or None, check=True)
    assert done.stderr == ""
    return parse_survey(done.stdout.splitlines())


def test_the_survey_runs_here() -> None:
    found = run()
    assert found.kernel
    assert found.cpus > 0
    assert any(disk.mount == "/" for disk in found.disks)


def test_the_survey_runs_without_what_a_minimal_system_may_lack(tmp_path: Path) -> None:
    for name in (
        "sh",
        "sed",
        "awk",
        "tr",
        "df",
        "id",
        "base64",
        "cat",
        "tail",
        "uname",
        "nproc",
        "timeout",
        "cut",
        "sort",
        "find",
        "stat",
    ):
        source = short_programs.run_program(["which", name], check=True).stdout.strip()
        (tmp_path / name).symlink_to(source)
    found = run(PATH=str(tmp_path))
    assert found.units == ()
    assert all(one.process == "" for one in found.listeners)


def test_a_driver_that_hangs_is_not_waited_for_long_and_its_slowest_question_is_never_asked() -> None:
    script = render("probe/survey.sh.j2")
    assert "SUPPORTED_CLOCKS" not in script
    assert [line for line in script.splitlines() if "nvidia-smi" in line] == ['smi() { timeout 20 nvidia-smi "$@"; }']


@pytest.mark.parametrize("status", [0, 14, 15])
def test_a_warning_or_a_lost_card_hides_no_other_card(tmp_path: Path, status: int) -> None:
    (tmp_path / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Release Build\n")
    row = "0, 00000000:01:00.0, 24576, 8.6, NVIDIA GeForce RTX 3090"
    lines = ["WARNING: infoROM is corrupted at gpu 0000:02:00.0", row, "Unable to determine the device handle for GPU1"]
    answer = "".join(f"echo '{line}'; " for line in lines)
    write_stand_in(tmp_path / "bin", "nvidia-smi", f"case $* in *compute_cap*) {answer} exit {status} ;; esac; exit 6")
    script = render("probe/survey.sh.j2").replace("/proc/driver/nvidia/version", f"{tmp_path}/version")
    done = short_programs.run_program(["sh", "-c", script], env={"PATH": f"{tmp_path}/bin:{os.environ['PATH']}"})
    report = script_output.parse_output(done.stdout.splitlines(), box_survey.SCHEMA)
    assert (report.all("gpu"), report.all("smi_failed")) == ([row], [])


def test_a_mount_with_an_odd_name_is_not_suggested() -> None:
    rows = [("disk", "/dev/sdb1", "ext4", "rw", "9", "8", f"/data{odd}") for odd in ("", "\nuid\t7", "\x1b[2J", " b")]
    found = parse_survey(channel_lines_of([*records(SYSTEM), *rows]))
    assert [disk.mount for disk in found.disks] == ["/data"]
    assert found.uid == 0
