"""The program that boots a throwaway host, with stand-ins for the programs that it starts."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import cgroups
from lab.hosts import HostSpec, LabHost
from lab.machine_requirements import cgroup_hierarchies
from rigwright.project_root import ROOT
from tests.unit.rendered_scripts import write_stand_in

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not cgroup_hierarchies(), reason="makes time namespaces and cgroups"
)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LabHost]:
    """A host without files, on a machine whose `unshare` is that of util-linux 2.39: it takes no negative offset."""
    found = LabHost(HostSpec("h1"), tmp_path, f"rwtest{os.getpid()}", "192.0.2.1", tmp_path / "key")
    (tmp_path / "host.json").write_text(f'{{"namespace": "{found.namespace}", "boot_options": []}}')
    refuse = "echo unshare: failed to parse boottime offset >&2; exit 1"
    write_stand_in(
        tmp_path / "bin", "unshare", f'case "$*" in *--boottime\\ -*) {refuse};; esac; exec /usr/bin/unshare "$@"'
    )
    write_stand_in(tmp_path / "bin", "ssh", "exit 255")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    yield found
    cgroups.kill_cgroup(found.namespace)


def test_every_boot_begins_at_zero_whatever_unshare_takes(host: LabHost) -> None:
    boots = host.folder / "boots"
    again = f'[ "$(wc -l < {boots})" -lt 2 ] && exit 133; exit 3'
    write_stand_in(host.folder / "bin", "systemd-nspawn", f"cut -d ' ' -f 1 /proc/uptime >> {boots}; {again}")
    done = subprocess.run(
        [sys.executable, "-m", "lab.host_supervisor", str(host.folder)], cwd=ROOT, capture_output=True, text=True
    )
    uptimes = [float(line) for line in boots.read_text().split()] if boots.exists() else []
    assert len(uptimes) == 2, done.stderr
    assert max(uptimes) < 5
    assert done.returncode == 3


def test_a_host_whose_boot_has_ended_is_not_waited_for(host: LabHost) -> None:
    write_stand_in(host.folder / "bin", "systemd-nspawn", "echo no such root >&2; exit 7")
    started = time.monotonic()
    with pytest.raises(RuntimeError, match=r"^h1 has ended.*: no such root / .* exited with 7$"):
        host.start()
        host.wait()
    assert time.monotonic() - started < 20
