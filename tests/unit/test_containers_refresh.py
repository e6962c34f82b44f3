"""The program that writes the spec of the cards, on a folder that stands in for a host, with the lab's nvidia-ctk."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from checks.survey.host import containers
from rigwright.engines.image.bundle import edits
from rigwright.render import render
from tests.stand_ins.nvidia import container_packages
from tests.unit import short_programs
from tests.unit.rendered_scripts import write_stand_in

LIBRARIES = "usr/lib/x86_64-linux-gnu"
UUIDS = ("GPU-aaaaaaaa-0000-0000-0000-000000000001", "GPU-aaaaaaaa-0000-0000-0000-000000000002")


class CardHost:
    """A host with cards, whose driver is files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in (LIBRARIES, "proc/driver/nvidia", "run/cdi", "bin", "usr/bin"):
            (root / name).mkdir(parents=True)
        (made,) = [
            deb for deb in container_packages.toolkit_packages("1.20.0") if deb.name == "nvidia-container-toolkit-base"
        ]
        text = str(made.files["usr/bin/nvidia-ctk"])
        for place in ("/usr/lib/", "/proc/driver/", "/run/cdi/", "/usr/bin/nvidia-smi", "/usr/bin/nvidia-cdi-hook"):
            text = text.replace(f" {place}", f" {root}{place}")
        # a device is any file here
        write_stand_in(root / "bin", "nvidia-ctk", text.replace("-c ", "-e ").replace("#!/bin/sh\n", ""))
        write_stand_in(root / "bin", "nvidia-smi", f'[ -e {root}/answers ] && echo "$(cat {root}/cards)"')
        found = f"ls {root}/{LIBRARIES}/libcuda.so.* | sed 's,^,\tlibcuda.so.1 (libc6\\,x86-64) => ,'"
        write_stand_in(root / "bin", "ldconfig", found)
        for name in ("modprobe", "sleep"):
            write_stand_in(
                root / "bin", name, f'echo "{name} $*" >> {root}/asked; [ ! -e {root}/late ] || . {root}/late'
            )
        write_stand_in(root / "usr/bin", "nvidia-cdi-hook", "true")
        self.driver("595.58.03")
        self.cards(*UUIDS)

    def driver(self, version: str) -> None:
        """Have another driver, and no file of the one before."""
        for path in (self.root / LIBRARIES).iterdir():
            path.unlink()
        (self.root / f"{LIBRARIES}/libcuda.so.{version}").touch()
        says = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (x)\n"
        (self.root / "proc/driver/nvidia/version").write_text(says)

    def cards(self, *uuids: str) -> None:
        """Have these cards answer."""
        (self.root / "answers").touch()
        (self.root / "cards").write_text("".join(f"{uuid}\n" for uuid in uuids))

    def refresh(self) -> subprocess.CompletedProcess[str]:
        """Run it."""
        script = render("containers/refresh.sh.j2", spec=f"{self.root}/run/cdi/nvidia.yaml", patience=3)
        for place in ("/proc/driver/", "/run/rigwright-cdi"):
            script = script.replace(f" {place}", f" {self.root}{place}")
        script = script.replace("PATH=/usr/local/sbin", f"PATH={self.root}/bin:/usr/local/sbin")
        return short_programs.run_program(["sh", "-c", script], env={"PATH": os.environ["PATH"]})

    @property
    def spec(self) -> Path:
        return self.root / "run/cdi/nvidia.yaml"


@pytest.fixture
def host(tmp_path: Path) -> CardHost:
    return CardHost(tmp_path)


def survey_specs(host: CardHost) -> dict[str, object]:
    """The survey's findings in the folder of specs."""
    (found,) = containers.specs([f"{host.root}/run/cdi"])
    return found


def test_a_spec_names_the_driver_that_is_loaded_and_each_card(host: CardHost) -> None:
    done = host.refresh()
    assert (done.returncode, done.stderr) == (0, "")
    found = survey_specs(host)
    assert (found["kind"], found["missing"]) == ("nvidia.com/gpu", [])
    assert {*UUIDS, "all", "0", "1"} <= set(found["names"])  # type: ignore[call-overload]
    assert f"{host.root}/{LIBRARIES}/libcuda.so.595.58.03" in found["paths"]  # type: ignore[operator]
    assert host.spec.stat().st_mode & 0o777 == 0o644
    assert sorted(path.name for path in (host.root / "run").iterdir()) == ["cdi"]


def test_a_spec_that_is_right_is_left_alone(host: CardHost) -> None:
    host.refresh()
    before = host.spec.stat().st_mtime_ns
    assert (host.refresh().returncode, host.spec.stat().st_mtime_ns) == (0, before)


def test_another_driver_or_another_card_is_another_spec(host: CardHost) -> None:
    host.refresh()
    host.driver("595.71.05")
    assert host.refresh().returncode == 0
    assert "libcuda.so.595.71.05" in host.spec.read_text()
    assert survey_specs(host)["missing"] == []
    other = "GPU-bbbbbbbb-0000-0000-0000-000000000003"
    host.cards(UUIDS[0], other)
    assert host.refresh().returncode == 0
    assert other in survey_specs(host)["names"]  # type: ignore[operator]


def test_cards_that_come_late_are_waited_for(host: CardHost) -> None:
    (host.root / "answers").unlink()
    # the module is there with the second look
    (host.root / "late").write_text(f"[ $(wc -l < {host.root}/asked) -lt 4 ] || touch {host.root}/answers\n")
    assert host.refresh().returncode == 0
    assert "libcuda" in host.spec.read_text()


def test_cards_that_never_answer_leave_the_spec_as_it_was(host: CardHost) -> None:
    host.spec.write_text("kind: nvidia.com/gpu\n")
    (host.root / "answers").unlink()
    done = host.refresh()
    assert done.returncode == 1
    assert "the cards do not answer: no spec is written" in done.stderr
    assert host.spec.read_text() == "kind: nvidia.com/gpu\n"


def test_libraries_of_another_driver_than_the_loaded_one_are_reported(host: CardHost) -> None:
    host.refresh()
    (host.root / "proc/driver/nvidia/version").write_text(
        "NVRM version: NVIDIA UNIX x86_64  580.95.05  Release Build\n"
    )
    done = host.refresh()
    assert done.returncode == 1
    assert done.stderr == "the spec names no libcuda.so.580.95.05, which is loaded\n"


def test_a_spec_that_is_not_whole_does_not_take_the_place_of_one(host: CardHost) -> None:
    host.refresh()
    before = host.spec.read_text()
    other = "GPU-bbbbbbbb-0000-0000-0000-000000000003"
    host.cards(*UUIDS, other)
    ctk = host.root / "bin/nvidia-ctk"
    ctk.write_text(ctk.read_text().replace('one "$uuid"', f'[ "$uuid" = {other} ] || one "$uuid"'))
    done = host.refresh()
    assert (done.returncode, done.stderr) == (1, f"the spec has no card {other}\n")
    assert host.spec.read_text() == before
    assert sorted(path.name for path in (host.root / "run").iterdir()) == ["cdi"]


def test_a_device_file_that_is_gone_is_another_spec(host: CardHost) -> None:
    host.refresh()
    host.spec.write_text(host.spec.read_text().replace("deviceNodes:\n", "deviceNodes:\n  - path: /dev/gone\n", 1))
    assert (survey_specs(host)["missing"], host.refresh().returncode) == (["/dev/gone"], 0)
    assert survey_specs(host)["missing"] == []


def test_a_path_in_a_spec_is_no_program(host: CardHost) -> None:
    host.refresh()
    hostile = f"/lib/firmware/nvidia/580.95.05|e touch {host.root}/pwned;#&"
    host.spec.write_text(f"{host.spec.read_text()}    hostPath: {hostile}\n")
    done = host.refresh()
    assert (done.returncode, done.stderr) == (0, "")
    assert not (host.root / "pwned").exists()
    assert hostile not in host.spec.read_text()


def test_a_folder_in_place_of_the_spec_is_reported(host: CardHost) -> None:
    host.spec.mkdir()
    done = host.refresh()
    assert done.returncode == 1
    assert "Is a directory" in done.stderr or "cannot overwrite directory" in done.stderr
    assert list(host.spec.iterdir()) == []


def test_an_error_in_place_of_a_name_is_no_card(host: CardHost) -> None:
    host.cards(UUIDS[0], "[Unknown Error]")
    assert host.refresh().returncode == 0
    assert UUIDS[0] in survey_specs(host)["names"]  # type: ignore[operator]


def test_a_driver_with_three_digits_in_its_middle_is_read_whole(tmp_path: Path) -> None:
    host = CardHost(tmp_path)
    host.driver("580.159.04")
    done = host.refresh()
    assert (done.returncode, done.stderr) == (0, "")


def test_the_stand_ins_spec_says_the_same_in_both_formats(host: CardHost) -> None:
    host.refresh()
    known, at = survey_specs(host), host.root / "cards.json"
    words = [str(host.root / "bin/nvidia-ctk"), "--quiet", "cdi", "generate", "--format=json", f"--output={at}"]
    short_programs.run_program(words, env={"PATH": f"{host.root}/bin:{os.environ['PATH']}"})
    said = json.loads(at.read_text())
    assert {one["name"] for one in said["devices"]} == set(known["names"])  # type: ignore[call-overload]
    (_, added) = edits(said, ["nvidia.com/gpu=0"])
    assert not added.get("mounts")
    files = {one["hostPath"] for one in said["containerEdits"]["mounts"]}
    assert [one["path"] for one in said["containerEdits"]["hooks"]] == ["/usr/bin/nvidia-cdi-hook"]
    nodes = {one["path"] for each in said["devices"] for one in each["containerEdits"]["deviceNodes"]}
    nodes |= {one["path"] for one in said["containerEdits"]["deviceNodes"]}
    assert files | nodes == {one for one in known["paths"] if not one.endswith("-hook")}  # type: ignore[attr-defined]
