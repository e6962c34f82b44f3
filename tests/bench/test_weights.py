"""`python -m benchmarks weights`, with as little data as it takes."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.bench.bench_command import benchmark


@pytest.fixture
def nginx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The distribution's nginx, unpacked where this machine has none: installed, it would be started."""
    if not shutil.which("nginx"):
        lists = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", "update"]
        for command in (lists, ["apt-get", "-qq", "download", "nginx"]):
            subprocess.run(command, cwd=tmp_path, check=True)
        (package,) = tmp_path.glob("nginx_*.deb")
        subprocess.run(["dpkg-deb", "--extract", str(package), str(tmp_path / "nginx")], check=True)
        monkeypatch.setenv("PATH", f"{tmp_path}/nginx/usr/sbin:{os.environ['PATH']}")


@pytest.mark.usefixtures("nginx")
def test_weights_are_timed_beside_other_programs_and_nothing_is_left(tmp_path: Path) -> None:
    scratch, file = tmp_path / "scratch", tmp_path / "figures.json"
    scratch.mkdir()
    benchmark("weights", "--mebibytes", "64", "--runs", "1", "--folder", scratch, "--json", file)
    figures = json.loads(file.read_text())
    compared = [row for row in figures["rows"] if row["against"]]
    assert len(compared) == 6
    assert all(row["ratio"] > 0 for row in compared)
    assert figures["uplink"] >= 1
    assert list(scratch.iterdir()) == []
