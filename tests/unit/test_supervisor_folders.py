"""Only what systemd made for a step is measured, and a step at its limit is ended until it is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from roles.operations import supervisor


def test_links_files_and_folders_of_others_are_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "TEMPORARY", (str(tmp_path),))
    name = "systemd-private-0-x.service-"
    (tmp_path / f"{name}link").symlink_to("/usr")
    (tmp_path / f"{name}file").touch()
    (tmp_path / f"{name}other").mkdir()
    if os.getuid() == 0:
        os.chown(tmp_path / f"{name}other", 65534, 65534)
    assert supervisor.temporary_folders("x.service") == []


def test_a_step_at_its_limit_is_ended_until_it_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(command, stdout=-1) as step:

        def end(unit: str) -> None:
            calls.append(unit)
            if len(calls) == 3:
                step.kill()

        monkeypatch.setattr(supervisor, "end", end)
        why = supervisor.follow(step.stdout, "x", 1, 1 << 60, 1 << 20, [str(tmp_path)])  # type: ignore[arg-type]
    assert "free space" in why and len(calls) >= 3
