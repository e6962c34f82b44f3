"""The deep re-hash as a program of a host, and what ends it in the middle."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rigwright.project_root import ROOT
from tests.unit.weight_shelf import WeightShelf, is_fresh


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The package as it lies on a host."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/rigwright_weights").symlink_to(ROOT / "roles/weights/host")
    return tmp_path / "lib"


def command(program: Path, shelf: WeightShelf) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "rigwright_weights.rehash", str(shelf.records), str(shelf.locks), "--now"]
    environment = {"PYTHONPATH": str(program), "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, text=True)


def test_it_runs_as_a_program_with_nothing_but_its_own_folder(program: Path, tmp_path: Path) -> None:
    shelf = WeightShelf(tmp_path)
    file = shelf.add_file("x")
    shelf.corrupt_file(file, b"WEIGHTS")
    with command(program, shelf) as run:
        said, _ = run.communicate(timeout=60)
    assert run.returncode == 1
    assert f"{shelf.root / 'x'}: expected {file.sha256}" in said


@pytest.mark.parametrize("turn", range(3))
def test_whatever_ends_it_a_wrong_file_is_found_by_the_next_run(program: Path, tmp_path: Path, turn: int) -> None:
    shelf = WeightShelf(tmp_path)
    files = [shelf.add_file(f"{n}", bytes([n]) * (turn + 1) * 5_000_000, 30 - n) for n in range(6)]
    shelf.corrupt_file(files[2], b"\0" * (turn + 1) * 5_000_000)
    with command(program, shelf) as run:
        while (
            run.poll() is None
            and not is_fresh(shelf.deep_record(files[turn]))
            and not shelf.wrong_record(files[2]).exists()
        ):
            time.sleep(0.001)
        run.send_signal(signal.SIGKILL)
    with command(program, shelf) as run:
        run.communicate(timeout=60)
    assert not shelf.has_file(files[2])
    assert shelf.wrong_record(files[2]).exists()
    assert all(shelf.has_file(file) and is_fresh(shelf.deep_record(file)) for file in files if file is not files[2])


def test_a_run_that_ends_between_mark_and_record_is_made_good(
    shelf: WeightShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = shelf.add_file("x")
    shelf.corrupt_file(file, b"WEIGHTS")

    def cut(path: Path, missing_ok: bool = False) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "unlink", cut)
        shelf.run_rehash()
    assert shelf.wrong_record(file).exists()
    assert shelf.has_file(file)
    assert shelf.run_rehash() == 1
    assert not shelf.has_file(file)
