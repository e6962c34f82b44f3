"""The wheel on a clean host of each release: installed by pipx, from the host's own Python and the package index."""

import sys
from pathlib import Path

import pytest

from distribution import build_backend
from rigwright.project_root import ROOT
from tests.hosts.conftest import BootHost
from tests.hosts.support import on_both
from tests.unit.test_wheel import INVENTORY, run

COMMAND = "/root/.local/bin/rigwright"


@pytest.mark.all_only
@on_both
def test_a_clean_host_gets_the_command_from_the_wheel(boot: BootHost, tmp_path: Path) -> None:
    host = boot()
    name = build_backend.build_wheel(str(tmp_path))
    (tmp_path / "rig.py").write_text(INVENTORY)
    for file in (name, "rig.py"):
        (host.upper_folder / "root" / file).write_bytes((tmp_path / file).read_bytes())
    host.run("apt-get -qq update && apt-get -qq -y --no-install-recommends install pipx >/dev/null 2>&1")
    host.run(f"pipx install /root/{name} 2>&1")
    clone = run(tmp_path, sys.executable, str(ROOT), "--help")
    for words, status in (("--help", 0), ("--version", 0), ("validate rig.py", 0), ("plan rig.py", 3)):
        said = host.run(f"cd /root && {{ {COMMAND} {words} 2>&1; echo status $?; }}")
        assert said.splitlines()[-1] == f"status {status}", said
        if words == "--help":
            assert said == f"{clone[1]}status 0\n"
    assert "(the extra `lab`)" in host.run(f"cd /root && {COMMAND} demo 2>&1; true")
    # newer releases of pipx have another folder
    packages = host.run("ls -d /root/.local/{,share/}pipx/venvs/rigwright/lib/python3*/site-packages/* || true").split()
    packages = [Path(path).name for path in packages]
    assert "rigwright_command" in packages
    assert not {"cli", "checks", "roles", "lab", "bench", "rigwright"} & {*packages}
