"""What the lab asks of the machine that it runs on."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from lab import machine
from rigwright.inventory import ROOT


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
    with pytest.raises(machine.Unsupported) as refused:
        machine.require_packages()
    assert str(refused.value) == "missing numpy, gguf (the extra `lab`): `./rig lab` brings them"
    for name in ("numpy", "gguf"):
        (site / f"{name}-9.dist-info").mkdir()
        (site / f"{name}-9.dist-info/METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 9\n")
    importlib.invalidate_caches()
    machine.require_packages()


@pytest.mark.parametrize("verb", [["lab", "up"], ["demo"]], ids=" ".join)
def test_a_verb_without_them_says_so_and_does_nothing(verb: list[str], tmp_path: Path) -> None:
    program = tmp_path / "without.py"
    program.write_text(
        "from importlib import metadata\n"
        "from lab import machine\n"
        "def gone(name): raise metadata.PackageNotFoundError(name)\n"
        "machine.distribution = gone\n"
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
    assert (done.returncode, done.stdout) == (1, "")
    missing = "missing openai, gguf, numpy, starlette, uvicorn (the extra `lab`)"
    assert done.stderr.splitlines() == [f"Error: {missing}: `./rig lab` brings them"]
