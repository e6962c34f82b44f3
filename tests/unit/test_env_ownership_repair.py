"""An installation that gets owner and modes back is what it was: a user with write access there may have done this."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rigwright.engines import unprivileged_steps
from rigwright.model.installation import FILES, MARKER
from rigwright.render import render


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "made"
    (made / "env").mkdir(parents=True)
    (made / "env" / "module.py").write_text("x = 1")
    shell(made, f"sha256sum env/module.py > {FILES}")
    return made


def shell(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-ec", script], cwd=folder, capture_output=True, text=True, check=False)


def given_back(folder: Path) -> subprocess.CompletedProcess[str]:
    """The actions of a deploy where owner or modes of a whole one are wrong."""
    (folder / MARKER).write_text("{}")
    values: dict[str, Any] = {"job": SimpleNamespace(target=str(folder)), "spec": "", "record": f"{folder}.record"}
    values |= dict.fromkeys(("unit", "work", "body", "programs", "package"), "") | {"marker": MARKER}
    values |= {"offline": (), "seen": {"work": "", "script": ""}, "program": "python"}
    values |= {"limits": unprivileged_steps.LIMITS, "supervisor": ""}
    return shell(folder, render("engines/install.sh.j2", **values))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_lists_that_others_could_change_prove_nothing(folder: Path) -> None:
    folder.chmod(0o755)
    (folder / "env").chmod(0o777)
    assert (given_back(folder).returncode, (folder / "env").stat().st_mode & 0o777) == (0, 0o755)
    for path in (folder, folder / FILES):
        path.chmod(0o777)
        done = given_back(folder)
        assert done.returncode == 1, path
        assert "others could change the lists" in done.stdout
        path.chmod(0o755)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_with_a_record_of_roots_lists_need_prove_nothing(folder: Path) -> None:
    folder.chmod(0o777)
    Path(f"{folder}.record").touch()
    assert (given_back(folder).returncode, folder.stat().st_mode & 0o777) == (0, 0o755)
