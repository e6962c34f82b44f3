"""An environment that gets its owner and modes back is what it was: whoever could write there may have done so."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from checks import Drift
from checks.test_engines import test_files_are_unchanged as files_are_unchanged
from rigwright.engines.kind import FILES, MARKER
from rigwright.envs.installer import TREE, changed
from rigwright.render import render


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "module.py").write_text("x = 1")
    (tmp_path / "env" / "python").symlink_to("module.py")
    shell(tmp_path, f"sha256sum env/module.py > {FILES}")
    shell(tmp_path, f"{{\n{render('envs/seen.sh.j2', folder=str(tmp_path))}\n}} > {TREE}")
    return tmp_path


def shell(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", "-ec", script], cwd=folder, capture_output=True, text=True, check=False)


def again(folder: Path) -> subprocess.CompletedProcess[str]:
    return shell(folder, render("envs/again.sh.j2", folder=str(folder), files=FILES, tree=TREE))


def test_other_modes_are_written_down_anew(folder: Path) -> None:
    (folder / "env" / "module.py").chmod(0o640)
    assert shell(folder, changed(str(folder))).stdout == "env/module.py\n"
    done = again(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert shell(folder, changed(str(folder))).stdout == ""
    assert not (folder / f"{TREE}.new").exists()


def _another(link: Path) -> None:
    link.unlink()
    link.symlink_to("/bin/true")


CHANGES: dict[str, Callable[[Path], object]] = {
    "a file too many": lambda env: (env / "evil.pth").write_text("import evil"),
    "a folder too many": lambda env: (env / "more").mkdir(),
    "another link": lambda env: _another(env / "python"),
    "a link that is gone": lambda env: (env / "python").unlink(),
    "other bytes": lambda env: (env / "module.py").write_text("x = 2"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_was_changed_meanwhile_is_not_taken_for_ours(folder: Path, what: str) -> None:
    CHANGES[what](folder / "env")
    assert again(folder).returncode == 1
    assert shell(folder, changed(str(folder))).stdout != ""


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("what", CHANGES)
def test_a_deep_check_sees_what_any_check_sees(folder: Path, what: str, deep: bool) -> None:
    def run(command: str, *words: str) -> Any:
        done = shell(folder, command % tuple(map(shlex.quote, words)))
        return SimpleNamespace(rc=done.returncode, stdout=done.stdout, stderr=done.stderr)

    rig: Any = SimpleNamespace(engines={}, installed=lambda _: str(folder))
    made: Any = SimpleNamespace(name="small", folder="small-1")
    asked: Any = SimpleNamespace(getoption=lambda _: deep)
    host: Any = SimpleNamespace(run=run)
    files_are_unchanged(host, rig, made, asked, lambda *_: None)
    CHANGES[what](folder / "env")
    with pytest.raises(Drift):
        files_are_unchanged(host, rig, made, asked, lambda *_: None)


def given_back(folder: Path) -> subprocess.CompletedProcess[str]:
    """What a deploy does where owner or modes of a whole one are wrong."""
    (folder / MARKER).write_text("{}")
    values: dict[str, Any] = {"job": SimpleNamespace(target=str(folder)), "again": "echo proven", "spec": ""}
    values |= dict.fromkeys(("unit", "work", "body", "programs", "package"), "") | {"marker": MARKER}
    values |= {"online": (), "offline": (), "seen": {"work": "", "script": ""}, "program": "python"}
    return shell(folder, render("engines/install.sh.j2", **values))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_lists_that_others_could_change_prove_nothing(folder: Path) -> None:
    folder.chmod(0o755)
    (folder / "env").chmod(0o777)
    assert "proven" in given_back(folder).stdout
    for path in (folder, folder / FILES):
        path.chmod(0o777)
        done = given_back(folder)
        assert (done.returncode, "proven" in done.stdout) == (1, False), path
        assert "others could change the lists" in done.stdout
        path.chmod(0o755)
