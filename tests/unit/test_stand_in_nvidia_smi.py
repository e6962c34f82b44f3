"""The lab's nvidia-smi says what rigwright understands, and is as particular as the true one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab.nvidia import package_contents
from rigwright.nvidia.cards import smi
from tests.unit import short_programs

VERSION = "580.159.03"
CARDS = {"0000:01:00.0": "0x1e07", "0000:02:00.0": "0x2204", "0000:c1:00.0": "0x2b85"}
SHELLCHECK = shutil.which("shellcheck", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
UUIDS = [f"GPU-00000000-0000-0000-0000-00000000000{number}" for number in range(3)]


class SmiFolder:
    """A folder that is a host with three cards."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("smi", package_contents.render_smi(VERSION))
        self.write("sys/module/nvidia/version", f"{VERSION}\n")
        for number, (address, device) in enumerate(CARDS.items()):
            bus = f"sys/bus/pci/devices/{address}"
            rows = {"vendor": "0x10de", "device": device, "class": "0x030000", "numa_node": "0"}
            rows |= {"current_link_width": "8", "max_link_width": "16", "local_cpulist": "0-31"}
            for name, value in rows.items():
                self.write(f"{bus}/{name}", f"{value}\n")
            text = f"Model: \t\t NVIDIA Card {number}\nGPU UUID: \t {UUIDS[number]}\nDevice Minor: \t {number}\n"
            self.write(f"proc/driver/nvidia/gpus/{address}/information", text)

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def card(self, address: str, **values: object) -> None:
        self.write(f"var/lib/lab/cards/{address}", "".join(f"{key}={value}\n" for key, value in values.items()))

    def run(self, *words: str) -> tuple[int, str, str]:
        """What rigwright's questions begin with is left out."""
        environment = os.environ | {"LAB_ROOT": str(self.root)}
        command = ["sh", str(self.root / "smi"), *words]
        done = short_programs.run_program(command, env=environment)
        return done.returncode, done.stdout, done.stderr

    def ask(self, question: tuple[str, ...]) -> tuple[int, str, str]:
        return self.run(*question)


@pytest.fixture
def box(tmp_path: Path) -> SmiFolder:
    return SmiFolder(tmp_path)


@pytest.mark.skipif(SHELLCHECK is None, reason="no shellcheck here")
def test_shellcheck_finds_nothing(tmp_path: Path) -> None:
    build = package_contents.dkms_source(VERSION, "open")[f"usr/src/nvidia-{VERSION}/build.sh"]
    daemon = package_contents.persistenced_files(VERSION, "")["usr/bin/nvidia-persistenced"]
    for number, text in enumerate((package_contents.render_smi(VERSION), build, daemon)):
        script = tmp_path / str(number)
        script.write_text(str(text))
        done = short_programs.run_program([str(SHELLCHECK), str(script)])
        assert done.stdout == ""


def test_sound_cards_are_understood(box: SmiFolder) -> None:
    box.card("0000:02:00.0", uncorrected=3, name="NVIDIA GeForce RTX 3090")
    box.write("run/lab/cards/0000:02:00.0.apps", "493 1542\n494 8\n")
    found = smi.gpus(*box.ask(smi.GPUS))
    assert [one.address for one in found] == list(CARDS)
    assert [one.capability for one in found] == ["7.5", "8.6", "12.0"]
    assert [one.total_mib for one in found] == [11264, 24576, 32607]
    assert [one.name for one in found] == ["NVIDIA Card 0", "NVIDIA GeForce RTX 3090", "NVIDIA Card 2"]
    assert [one.uncorrected for one in found] == [None, 3, None]
    assert {(one.driver, one.width, one.width_max) for one in found} == {(VERSION, 8, 16)}
    assert [one.used_mib for one in found] == [0, 1550, 0]
    apps = smi.apps(*box.ask(smi.APPS))
    assert [(one.pid, one.used_mib) for one in apps] == [(493, 1542), (494, 8)]
    assert set(smi.recovery(*box.ask(smi.RECOVERY)).values()) == {"None"}


def test_units_and_names_are_there_unless_asked_away(box: SmiFolder) -> None:
    fields = "--query-gpu=uuid,power.limit,memory.total,ecc.mode.current"
    _, text, _ = box.run(fields, "--format=csv", "-i", UUIDS[2])
    assert text.splitlines() == [
        "uuid, power.limit [W], memory.total [MiB], ecc.mode.current",
        f"{UUIDS[2]}, 575.00 W, 32607 MiB, [N/A]",
    ]


def test_an_unknown_field_fails_the_whole_question(box: SmiFolder) -> None:
    status, text, _ = box.run("--query-gpu=index,no_such_field", smi.FORMAT)
    assert (status, text) == (2, 'Field "no_such_field" is not a valid field to query.\n\n')


@pytest.mark.parametrize("words", [("-q", "-x"), ("-q", "-d", "SUPPORTED_CLOCKS"), ("--format=csv", "-zz")])
def test_what_nobody_should_ask_is_refused(box: SmiFolder, words: tuple[str, ...]) -> None:
    assert box.run(*words)[0] == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="settings of cards are root's")
def test_settings_last_and_have_bounds(box: SmiFolder) -> None:
    status, text, _ = box.run("-i", UUIDS[2], "-pl", "350")
    assert status == 2
    assert "should be between 400.00 W and 575.00 W" in text
    assert box.run("-i", UUIDS[2], "-pl", "450")[0] == 0
    assert box.run("-i", UUIDS[1], "-pm", "1")[0] == 0
    assert box.run("-i", UUIDS[1], "-lgc", "210,1500")[0] == 0
    _, text, _ = box.run("--query-gpu=power.limit,persistence_mode", smi.FORMAT)
    assert text.splitlines() == ["250.00, Disabled", "350.00, Enabled", "450.00, Disabled"]
    assert (box.root / "run/lab/cards/0000:02:00.0.clocks").read_text() == "210,1500\n"
    box.card("0000:02:00.0", clock=1900)
    clock = ("-i", UUIDS[1], "--query-gpu=clocks.current.graphics", smi.FORMAT)
    assert box.run(*clock)[1] == "1500\n"
    assert box.run("-rgc")[0] == 0
    assert box.run(*clock)[1] == "1900\n"
    assert not (box.root / "run/lab/cards/0000:02:00.0.clocks").exists()
    shutil.rmtree(box.root / "run")  # as a reboot does
    assert box.run("--query-gpu=power.limit", smi.FORMAT)[1].splitlines()[2] == "575.00"


def test_links_and_memory_windows(box: SmiFolder) -> None:
    for one, other in (("0000:01:00.0", "0000:02:00.0"), ("0000:02:00.0", "0000:01:00.0")):
        box.card(one, nvlinks=4, bridge=other)
    _, text, _ = box.run("topo", "-m")
    assert [line.split("\t")[1:4] for line in text.splitlines()[1:4]] == [
        [" X ", "NV4", "PHB"],
        ["NV4", " X ", "PHB"],
        ["PHB", "PHB", " X "],
    ]
    _, text, _ = box.run("topo", "-p2p", "r")
    assert text.splitlines()[1:4] == [" GPU0\tX\tOK\tCNS\t", " GPU1\tOK\tX\tCNS\t", " GPU2\tCNS\tCNS\tX\t"]
    assert box.run("nvlink", "-s")[1].count("GB/s") == 8
    _, text, _ = box.run("-q", "-d", "MEMORY", "-i", "0")
    assert text.partition("BAR1 Memory Usage\n")[2].split("\n")[0].split() == ["Total", ":", "256", "MiB"]


def test_a_driver_that_is_not_there_or_another_one_is_said(box: SmiFolder) -> None:
    box.write("sys/module/nvidia/version", "580.178.04\n")
    said = (18, "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.159\n", "")
    assert box.run("-L") == said
    with pytest.raises(ValueError, match="version mismatch"):
        smi.gpus(*box.ask(smi.GPUS))
    (box.root / "sys/module/nvidia/version").unlink()
    status, text, _ = box.run("-L")
    assert status == 9
    assert text.startswith("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")


def test_cards_that_the_driver_has_not_are_not_named(box: SmiFolder) -> None:
    shutil.rmtree(box.root / "proc/driver/nvidia/gpus/0000:02:00.0")
    assert [one.address for one in smi.gpus(*box.ask(smi.GPUS))] == ["0000:01:00.0", "0000:c1:00.0"]
    shutil.rmtree(box.root / "proc")
    assert box.run("-L") == (6, "No devices were found\n", "")


def test_a_lost_card_ends_the_answer(box: SmiFolder) -> None:
    box.card("0000:02:00.0", fault="Unknown Error")
    status, text, _ = box.ask(smi.GPUS)
    assert status == 15
    assert text.startswith("0, 00000000:01:00.0")
    cards, warning = smi.those_that_answer(*box.ask(smi.GPUS))
    assert [one.address for one in cards] == ["0000:01:00.0"]
    assert "Unable to determine the device handle for GPU1" in warning


def test_a_card_can_hang(box: SmiFolder) -> None:
    box.card("0000:01:00.0", hang="yes")
    environment = os.environ | {"LAB_ROOT": str(box.root)}
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(
            ["sh", str(box.root / "smi"), "-L"], env=environment, capture_output=True, timeout=1, check=False
        )
