"""A step of a job ends at its limits, and the last line that is printed says at which."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rigwright.engines import unprivileged_steps
from rigwright.model.roots import Roots
from roles.engines import SUPERVISOR
from roles.operations import job_step_limits
from tests.unit.rendered_scripts import write_stand_in

UNIT = "rw-job-x-compile.service"
PLENTY = 1 << 40


def supervised(
    folder: Path, script: str, *, most_kib: int = PLENTY, free_kib: int = 0, log: int = PLENTY, result: str = "success"
) -> subprocess.CompletedProcess[bytes]:
    """Run a script as a step; `systemctl kill` ends it. The host has no cgroups."""
    work, pid = folder / "work", folder / "pid"
    work.mkdir()
    answers = f"*ControlGroup*) exit ;; kill*) kill -KILL $(cat {pid}) ;; show*) echo {result} ;;"
    write_stand_in(folder / "bin", "systemctl", f'case $* in {answers} esac; echo "$*" >> {folder}/asked')
    words = [sys.executable, "-I", "-S", str(SUPERVISOR), UNIT, str(most_kib), str(free_kib), str(log), str(work)]
    return subprocess.run(
        [*words, "--", "sh", "-c", f"echo $$ > {pid}; cd {work}; {script}"],
        env={"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(("script", "status"), [("echo done", 0), ("echo done; exit 7", 7), ("echo done >&2", 0)])
def test_a_step_within_its_limits_is_passed_through(tmp_path: Path, script: str, status: int) -> None:
    done = supervised(tmp_path, script)
    assert (done.returncode, done.stdout) == (status, b"done\n")


def test_output_of_a_step_is_bounded_and_the_step_goes_on(tmp_path: Path) -> None:
    done = supervised(tmp_path, "head -c 3000000 /dev/zero; echo made > file", log=1 << 20)
    assert done.returncode == 0
    assert done.stdout == bytes(1 << 20) + b"\nlimit: it has printed 1 MiB; the rest is dropped\n"
    assert (tmp_path / "work" / "file").read_text() == "made\n"


def test_a_step_that_writes_more_than_it_may_is_ended(tmp_path: Path) -> None:
    done = supervised(tmp_path, "head -c 3000000 /dev/zero > file; exec sleep 600", most_kib=2048)
    last = done.stdout.decode().splitlines()[-1]
    assert (done.returncode, last) == (1, f"limit: {UNIT} was ended: it has written 2 MiB, and may write 2")
    assert (tmp_path / "asked").read_text().splitlines()[:2] == [f"kill --signal=KILL {UNIT}", f"stop {UNIT}"]


def test_a_step_is_ended_before_its_disk_is_full(tmp_path: Path) -> None:
    done = supervised(tmp_path, "exec sleep 600", free_kib=PLENTY)
    last = done.stdout.decode().splitlines()[-1]
    assert done.returncode == 1
    assert last.endswith(f"MiB are left where it writes ({tmp_path / 'work'}): free space, then deploy again")


@pytest.mark.parametrize("result", sorted(job_step_limits.CAUSES))
def test_a_limit_of_systemds_is_named(tmp_path: Path, result: str) -> None:
    done = supervised(tmp_path, "exit 1", result=result)
    assert done.returncode == 1
    assert done.stdout.decode() == f"limit: {UNIT} was ended: {job_step_limits.CAUSES[result]}\n"
    assert (tmp_path / "asked").read_text().splitlines()[-1] == f"reset-failed {UNIT}"


def test_files_that_run_out_end_a_step_and_folders_that_are_gone_do_not(tmp_path, monkeypatch):
    assert job_step_limits.describe_shortage([str(tmp_path), str(tmp_path / "gone")], 0) == ""
    monkeypatch.setattr(job_step_limits, "FILES", 1 << 62)
    if os.statvfs(tmp_path).f_files:
        assert "remove files" in job_step_limits.describe_shortage([str(tmp_path)], 0)


def test_its_own_tmp_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_step_limits, "TEMPORARY", (str(tmp_path),))
    mine = tmp_path / r"systemd-private-0123-rw-job-a\x2db-compile.service-Ab3xYz"
    for path in (mine, tmp_path / "systemd-private-0123-other.service-Ab3xYz"):
        path.mkdir()
    assert job_step_limits.temporary_folders(r"rw-job-a\x2db-compile.service") == [str(mine)]


def test_every_program_that_came_from_outside_has_all_limits() -> None:
    names = ("RuntimeMaxSec", "LimitFSIZE", "MemoryMax", "TasksMax")
    for words in (
        unprivileged_steps.systemd_run_options(Roots()),
        unprivileged_steps.unprivileged_command(Roots(), ("true",)),
    ):
        found = {word.split("=")[1] for word in words if word.startswith("--property=")}
        assert set(names) <= found
