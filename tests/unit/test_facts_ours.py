"""What the probe finds of our own things, and of disks, on a host that somebody has changed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.scripts import stand_in
from tests.unit.test_facts import probe


@pytest.mark.parametrize(
    ("target", "folder"),
    [
        ("/dev/null", ""),
        ("/etc/rigwright/current/units/rigwright.target", ""),
        ("/etc/other/current/units/rigwright.target", "/etc/other"),
    ],
)
def test_the_probe_finds_another_folder_that_the_host_is_served_from(tmp_path: Path, target: str, folder: str) -> None:
    (tmp_path / "rigwright.target").symlink_to(target)
    assert probe(units=str(tmp_path), config="/etc/rigwright").elsewhere == folder


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_the_probe_finds_the_service_users_processes() -> None:
    with subprocess.Popen(["sleep", "infinity"], user="nobody") as process:
        try:
            found = probe(service_user="nobody").user_processes
        finally:
            process.kill()
    assert f"sleep (pid {process.pid})" in [one.partition(", ")[0] for one in found]
    assert probe().user_processes == ()


def test_the_probe_finds_engines_that_others_can_change_or_cannot_run(tmp_path: Path) -> None:
    for name, modes in {"good": (0o755, 0o755), "closed": (0o700, 0o755), "open": (0o755, 0o757)}.items():
        server = tmp_path / name / "bin/llama-server"
        server.parent.mkdir(parents=True, mode=0o755)
        server.touch()
        server.chmod(modes[1])
        (tmp_path / name / "build.json").touch(mode=0o644)
        (tmp_path / name).chmod(modes[0])
    (tmp_path / "good/bin/libllama.so").symlink_to("libllama.so.0")
    (tmp_path / "still/bin").mkdir(parents=True)
    (tmp_path / "still/bin/llama-server").touch(mode=0o644)
    (tmp_path / "still/build.json").touch(mode=0o644)
    found = probe(engines=str(tmp_path))
    assert found.built_engines == {"good", "closed", "open", "still"}
    assert found.unfit_engines == {"closed", "open", "still"}


def test_a_folder_whose_disk_cannot_be_looked_at_takes_nothing_from_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = tmp_path / "dead"
    dead.mkdir()
    others = f'for word do shift; [ "$word" = {dead} ] && failed=1 || set -- "$@" "$word"; done; [ $# = 3 ] && exit 1'
    stand_in(tmp_path / "bin", "df", f'{others}\n{shutil.which("df")} "$@"\nexit ${{failed:-0}}')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    found = probe(folders=["/", str(dead), "/proc"])
    assert (found.file_systems["/"], found.file_systems["/proc"]) == ("/", "/proc")
    assert str(dead) not in found.disk_free_kib
