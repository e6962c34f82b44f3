"""The script `rig` at the top, before there is an environment to run anything from."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from rigwright.inventory import ROOT


@pytest.mark.parametrize("there", [True, False], ids=["another clone's", "nobody's"])
def test_an_environment_behind_a_link_is_refused_and_left_as_it_is(tmp_path: Path, there: bool) -> None:
    clone, other = tmp_path / "clone", tmp_path / "other"
    clone.mkdir()
    shutil.copy(ROOT / "rig", clone)
    if there:
        (other / "bin").mkdir(parents=True)
        (other / "bin/rigwright").touch()
    (clone / ".venv").symlink_to(other)
    done = subprocess.run([clone / "rig", "check"], capture_output=True, text=True, check=False, timeout=60)
    said = f"rig: {clone}/.venv is a symbolic link: remove it, then run this again\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)
    assert {path.name for path in clone.iterdir()} == {"rig", ".venv"}
    assert [path.name for path in other.rglob("rigwright")] == ["rigwright"] * there
