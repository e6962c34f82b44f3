"""File systems that do not answer, and processes that look into them."""

import os
import time
from pathlib import Path

import pytest

from checks.survey.host import fs_responsiveness


@pytest.fixture
def dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose readers never hear again, as of one whose server is gone."""
    folder, pipe = tmp_path / "home", tmp_path / "pipe"
    folder.mkdir(exist_ok=True)
    os.mkfifo(pipe)
    # it never has a writer
    monkeypatch.setattr(fs_responsiveness, "look", lambda one: pipe.read_bytes() if one == str(folder) else None)
    return folder


def test_no_more_than_a_few_dead_servers_are_waited_for(dead: Path, tmp_path: Path) -> None:
    began = time.monotonic()
    assert fs_responsiveness.silent([str(tmp_path), *[str(dead)] * 20], 0.5) == [str(dead)] * 20
    assert time.monotonic() - began < 10


def test_slow_disks_do_not_count_as_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fs_responsiveness, "look", lambda one: time.sleep(0.3))
    assert fs_responsiveness.silent([str(tmp_path)] * 6, 1.2) == []


def test_whatever_else_becomes_of_a_look_is_an_answer(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert fs_responsiveness.silent([str(tmp_path / one) for one in ("", "file", "not there")], 20.0) == []
