"""Only what systemd made for a step is measured, and a step at its limit is ended until it is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from roles.operations import supervisor
from tests.unit.scripts import stand_in


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


def test_files_that_a_process_has_removed_and_still_has_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = """
import mmap, os, sys
for name, mapped in (("a", False), ("b", True)):
    file = os.open(name, os.O_RDWR | os.O_CREAT)
    os.write(file, bytes(1 << 20))
    os.unlink(name)
    if mapped:
        kept = mmap.mmap(file, 1 << 20)
        os.close(file)
again = os.dup(3)
print("ready", flush=True)
sys.stdin.read()
"""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=tmp_path, stdin=-1, stdout=-1) as step:
        assert step.stdout and step.stdout.readline() == b"ready\n"
        monkeypatch.setattr(supervisor, "processes_of", lambda unit: [str(step.pid)])
        mapped = 1024 if os.geteuid() == 0 else 0  # of another user's maps root alone is told
        assert supervisor.unlinked_kib([str(step.pid)], [str(tmp_path)]) == 1024 + mapped
        assert supervisor.unlinked_kib([str(step.pid)], ["/proc"]) == 0
        assert "it has written" in supervisor.excess([str(tmp_path)], 1000, "x")
        assert supervisor.excess([str(tmp_path)], 10_000, "x") == ""
        monkeypatch.setattr(supervisor, "PATIENCE", -1.0)
        with pytest.raises(supervisor.Uncountable):
            supervisor.unlinked_kib([str(step.pid)], [str(tmp_path)])


def test_processes_of_a_unit_are_those_of_its_cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = tmp_path / "system.slice/x.service"
    (group / "inner").mkdir(parents=True)
    (group / "cgroup.procs").write_text("7\n8\n")
    (group / "inner/cgroup.procs").write_text("9\n")
    monkeypatch.setattr(supervisor, "CGROUPS", str(tmp_path))
    path = stand_in(tmp_path / "bin", "systemctl", "echo /system.slice/x.service")
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    assert sorted(supervisor.processes_of("x.service")) == ["7", "8", "9"]
    stand_in(tmp_path / "bin", "systemctl", "echo")
    assert supervisor.processes_of("x.service") == []
