"""The lab's needs of the machine that it runs on."""

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab import machine_requirements
from rigwright.project_root import ROOT


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Where Python packages are looked for, with the project in it and nothing else."""
    about = tmp_path / "rigwright-1.dist-info/METADATA"
    about.parent.mkdir()
    wanted = ["click>=8", "numpy>=2; extra == 'lab'", "tomli>=2; python_version < '4'", "ruff; extra == 'test'"]
    about.write_text(
        "Metadata-Version: 2.4\nName: rigwright\nVersion: 1\n"
        + "".join(f"Requires-Dist: {one}\n" for one in [*wanted, "gguf>=0.17; extra == 'lab'"])
    )
    return tmp_path


def test_packages_that_only_a_lab_needs_are_asked_for_in_one_line(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(site)])
    importlib.invalidate_caches()
    with pytest.raises(machine_requirements.UnsupportedMachine) as refused:
        machine_requirements.require_packages()
    assert str(refused.value) == "missing numpy, gguf (the extra `lab`): `./rig lab` installs them"
    for name in ("numpy", "gguf"):
        (site / f"{name}-9.dist-info").mkdir()
        (site / f"{name}-9.dist-info/METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 9\n")
    importlib.invalidate_caches()
    machine_requirements.require_packages()


@pytest.fixture
def able(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that can run a lab, and has all its programs."""
    monkeypatch.setattr(machine_requirements, "require_packages", lambda: None)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(machine_requirements, "_has_overlayfs", lambda: True)
    monkeypatch.setattr(machine_requirements, "cgroup_hierarchies", lambda: [Path("/sys/fs/cgroup")])
    monkeypatch.setattr(machine_requirements, "KEYRING", Path("/"))
    monkeypatch.setattr(Path, "exists", lambda path: True)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a program was started"))


LACKS: dict[str, tuple[object, str, object]] = {
    "need Linux": (sys, "platform", "darwin"),
    "need root": (os, "geteuid", lambda: 1000),
    "no time namespaces": (Path, "exists", lambda path: path != Path("/proc/self/ns/time")),
    "no overlayfs": (machine_requirements, "_has_overlayfs", lambda: False),
    "no writable cgroup hierarchy": (machine_requirements, "cgroup_hierarchies", list),
}


@pytest.mark.usefixtures("able")
@pytest.mark.parametrize("what", LACKS)
def test_missing_parts_of_a_machine_are_reported(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, name, value = LACKS[what]
    monkeypatch.setattr(place, name, value)
    with pytest.raises(machine_requirements.UnsupportedMachine, match=what):
        machine_requirements.require_lab()


class ScriptedApt:
    """apt-get of a machine that lacks some programs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lacks: tuple[str, ...], status: int = 0) -> None:
        self.asked: list[list[str]] = []
        self.status = status
        monkeypatch.setattr(shutil, "which", lambda name: None if name in lacks else name)
        monkeypatch.setattr(subprocess, "run", self.run)

    def run(self, command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        self.asked.append(command)
        return subprocess.CompletedProcess(command, self.status, "", "Reading\nE: no route to the archive\n")


@pytest.mark.usefixtures("able")
def test_programs_that_are_lacking_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    apt = ScriptedApt(monkeypatch, ("nft", "ip"))
    machine_requirements.require_lab()
    assert [command[0] for command in apt.asked] == ["apt-get", "apt-get"]
    assert [command[-1] for command in apt.asked] == ["update", "nftables"]
    assert apt.asked[1][-2] == "iproute2"


@pytest.mark.usefixtures("able")
def test_the_archives_keys_come_with_what_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda path: path != machine_requirements.KEYRING)
    apt = ScriptedApt(monkeypatch, ())
    machine_requirements.install_programs({"nft": "nftables"})
    assert apt.asked == []
    machine_requirements.install_programs({"debootstrap": "debootstrap"})
    assert apt.asked[1][-1] == "debian-archive-keyring"


@pytest.mark.usefixtures("able")
@pytest.mark.parametrize(
    ("lacks", "said"),
    [
        (("nft", "apt-get"), "missing nftables, and there is no apt-get here"),
        (("nft",), "update` failed: E: no route to the archive"),
    ],
)
def test_an_installation_that_cannot_be_is_one_line(lacks, said, monkeypatch):
    ScriptedApt(monkeypatch, lacks, status=100)
    with pytest.raises(machine_requirements.UnsupportedMachine, match=said) as refused:
        machine_requirements.require_lab()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("verb", [["lab", "up"], ["demo"]], ids=" ".join)
def test_a_verb_without_them_says_so_and_does_nothing(verb: list[str], tmp_path: Path) -> None:
    program = tmp_path / "without.py"
    program.write_text(
        "from importlib import metadata\n"
        "from lab import machine_requirements\n"
        "def gone(name): raise metadata.PackageNotFoundError(name)\n"
        "machine_requirements.distribution = gone\n"
        "from cli import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, program, *verb],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
    )
    assert (done.returncode, done.stdout) == (2, "")
    missing = "missing openai, gguf, numpy, starlette, uvicorn (the extra `lab`)"
    assert done.stderr.splitlines() == [f"Error: {missing}: `./rig lab` installs them"]
