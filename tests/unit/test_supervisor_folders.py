"""Only what systemd made for a step is measured, and a step at its limit is ended until it is gone."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from roles.operations import job_step_limits
from tests.unit.rendered_scripts import write_stand_in


def test_links_files_and_folders_of_others_are_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_step_limits, "TEMPORARY", (str(tmp_path),))
    name = "systemd-private-0-x.service-"
    (tmp_path / f"{name}link").symlink_to("/usr")
    (tmp_path / f"{name}file").touch()
    (tmp_path / f"{name}other").mkdir()
    if os.getuid() == 0:
        os.chown(tmp_path / f"{name}other", 65534, 65534)
    assert job_step_limits.temporary_folders("x.service") == []


def test_a_step_at_its_limit_is_ended_until_it_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(command, stdout=-1) as step:

        def end(unit: str) -> None:
            calls.append(unit)
            if len(calls) == 3:
                step.kill()

        monkeypatch.setattr(job_step_limits, "end_unit", end)
        why = job_step_limits.watch_step(step.stdout, "x", 1, 1 << 60, 1 << 20, [str(tmp_path)])  # type: ignore[arg-type]
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
        monkeypatch.setattr(job_step_limits, "unit_processes", lambda unit: [str(step.pid)])
        mapped = 1024 if os.geteuid() == 0 else 0  # only root sees another user's maps
        until = time.monotonic() + 60
        assert job_step_limits.unlinked_kib([str(step.pid)], [str(tmp_path)], until) == 1024 + mapped
        assert job_step_limits.unlinked_kib([str(step.pid)], ["/proc"], until) == 0
        assert "it has written" in job_step_limits.describe_excess([str(tmp_path)], 1000, "x")
        assert job_step_limits.describe_excess([str(tmp_path)], 10_000, "x") == ""
        with pytest.raises(job_step_limits.TooManyFiles):
            job_step_limits.unlinked_kib([str(step.pid)], [str(tmp_path)], time.monotonic() - 1)


@pytest.mark.parametrize("own", [True, False], ids=["descriptors of its own", "the first thread has ended"])
def test_files_of_each_thread_count(tmp_path: Path, own: bool) -> None:
    script = """
import ctypes, mmap, os, sys, threading
own = sys.argv[1] == "True"
libc = ctypes.CDLL(None)
def work():
    if own:
        assert libc.unshare(0x400) == 0  # CLONE_FILES
    else:
        while open("/proc/self/stat").read().split()[2] != "Z":
            pass
    for name, mapped in (("a", False), ("b", True)):
        file = os.open(name, os.O_RDWR | os.O_CREAT)
        os.write(file, bytes(1 << 20))
        os.unlink(name)
        if mapped:
            kept = mmap.mmap(file, 1 << 20)
            os.close(file)
    print("ready", flush=True)
    sys.stdin.read()
thread = threading.Thread(target=work)
thread.start()
if own:
    thread.join()
libc.pthread_exit(None)
"""
    command = [sys.executable, "-c", script, str(own)]
    with subprocess.Popen(command, cwd=tmp_path, stdin=-1, stdout=-1) as step:
        assert step.stdout and step.stdout.readline() == b"ready\n"
        mapped = 1024 if os.geteuid() == 0 else 0
        found = job_step_limits.unlinked_kib([str(step.pid)], [str(tmp_path)], time.monotonic() + 60)
        step.kill()
    assert found == 1024 + mapped


def test_file_systems_are_looked_at_while_files_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counting, ended = threading.Event(), threading.Event()
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(command, stdout=-1) as step:

        def count(folders: list[str], most_kib: int, unit: str) -> str:
            counting.set()
            return "" if ended.wait(5) else "it was not ended while its files were counted"

        def end(unit: str) -> None:
            ended.set()
            step.kill()

        monkeypatch.setattr(job_step_limits, "MEASURE", 0.0)
        monkeypatch.setattr(job_step_limits, "describe_excess", count)
        monkeypatch.setattr(job_step_limits, "end_unit", end)
        monkeypatch.setattr(
            job_step_limits, "describe_shortage", lambda folders, least: "short" if counting.is_set() else ""
        )
        assert job_step_limits.watch_step(step.stdout, "x", 1, 1, 1 << 20, [str(tmp_path)]) == "short"  # type: ignore[arg-type]


def test_folders_and_open_files_have_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def measured(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        now[0] += job_step_limits.PATIENCE + 1
        return subprocess.CompletedProcess(command, 0, "0 total")

    monkeypatch.setattr(job_step_limits, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(job_step_limits, "open_files", lambda processes: [Path("/dev/null")])
    monkeypatch.setattr(job_step_limits, "unit_processes", lambda unit: ["1"])
    monkeypatch.setattr(job_step_limits.subprocess, "run", measured)
    assert "more files than can be counted" in job_step_limits.describe_excess([], 1, "x")


def test_processes_of_a_unit_are_those_of_its_cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = tmp_path / "system.slice/x.service"
    (group / "inner").mkdir(parents=True)
    (group / "cgroup.procs").write_text("7\n8\n")
    (group / "inner/cgroup.procs").write_text("9\n")
    monkeypatch.setattr(job_step_limits, "CGROUPS", str(tmp_path))
    path = write_stand_in(tmp_path / "bin", "systemctl", "echo /system.slice/x.service")
    monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
    assert sorted(job_step_limits.unit_processes("x.service")) == ["7", "8", "9"]
    write_stand_in(tmp_path / "bin", "systemctl", "echo")
    assert job_step_limits.unit_processes("x.service") == []
