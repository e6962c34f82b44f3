"""A host that an earlier version of ours has deployed is taken over: nothing is compiled, fetched or started again."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lab.labs import Lab
from rigwright.inventory import ROOT
from tests.hosts.conftest import Boot, FirstRun
from tests.hosts.support import PYINFRA, deploy, main_pid, plan, red, served, until, write_inventory

# the last one before engines were of several kinds
EARLIER = "e32f42a"
BYTES = "cd /etc/rigwright/current && sha256sum units/rigwright-* env/*; ls /opt/rigwright/engines"

pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-12"], indirect=True)]


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """The tree of that version."""
    tree = tmp_path / "earlier"
    tree.mkdir()
    archive = subprocess.run(["git", "archive", EARLIER], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"this clone has no {EARLIER}: {archive.stderr.decode().strip()}")
    subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
    return tree


def test_a_host_of_the_version_before_goes_on_serving(
    lab: Lab, boot: Boot, first_run: FirstRun, earlier: Path, tmp_path: Path
) -> None:
    host = boot(first_run.engine_layer)
    inventory = write_inventory(tmp_path, lab, host)
    first = subprocess.run(
        [PYINFRA, str(inventory), str(earlier / "deploy.py"), "--yes"],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(earlier)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert first.returncode == 0, first.stderr
    before, process = host.run(BYTES), main_pid(host)

    assert plan(inventory).planned == ["Serving | Write generation", "Serving | Activate generation"]
    assert deploy(inventory).changed == ["Serving | Write generation", "Serving | Activate generation"]
    assert (host.run(BYTES), main_pid(host)) == (before, process)
    assert deploy(inventory).changed == []
    assert red(inventory) == set()

    back = deploy(inventory, "--yes", "--data", "verb=rollback")
    assert (back.status, main_pid(host)) == (0, process)
    host.reboot()
    until(lambda: served(host), "serving the earlier generation after a boot")
    # what that version's readiness script wrote down is enough
    assert deploy(inventory).changed == ["Serving | Activate generation"]
    assert red(inventory) == set()
