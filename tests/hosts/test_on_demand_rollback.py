"""A rollback to programs that know less of each other's words: clients that ask for sleeping models lose no request."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.on_demand_host import BUDGETS, GATEWAY_PORT, OnDemandBox, write_operator_folder
from benchmarks.on_demand_load import RandomLoad
from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.project_root import ROOT
from tests.hosts.conftest import BootHost
from tests.hosts.gateway_box import run_rigwright
from tests.hosts.host_layers import ConvergedLayers
from tests.hosts.support import run_deploy, wait_until

pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]
ON_DEMAND = {"host_memory": BUDGETS[1], "residence": 2}
SECONDS = 60.0
LOAD = RandomLoad(f"127.0.0.1:{GATEWAY_PORT}", ("one", "two"), 8, SECONDS, 8)
PRODUCT = ("catalog", "checks", "cli", "inventory", "lab", "locks", "patches", "rigwright", "roles", "templates")
FILES = ("__main__.py", "deploy.py", "pyproject.toml")
# file -> words of it, and those of a version whose requests do not say how long they have waited
EARLIER = {
    "templates/gateway/waking.lua": (('(age and (" %d\\n"):format(age) or "\\n")', '"\\n"'),),
    "roles/residency/host/service.py": (
        ("(?: ([0-9]{1,7}))?", ""),
        ("min(int(wake[5] or 0) / 1000, OLDEST_S) if wake else 0.0", "0.0"),
    ),
}


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """The tree of that version."""
    tree = tmp_path / "earlier"
    for name in PRODUCT:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, tree / name)
    for name, changes in EARLIER.items():
        text = (tree / name).read_text()
        for now, before in changes:
            assert text.count(now) == 1, now
            text = text.replace(now, before)
        (tree / name).write_text(text)
    return tree


def read_generation(host: LabHost) -> str:
    """The number of the current generation."""
    return host.run("readlink /etc/rigwright/current").strip().removeprefix("generations/")


def test_requests_that_wait_bear_activations_of_both_versions(
    lab: ThrowawayLab, boot: BootHost, first_run: ConvergedLayers, earlier: Path, tmp_path: Path
) -> None:
    host = boot(first_run.layer)
    (tmp_path / "operator").mkdir()
    inventory = write_operator_folder(tmp_path / "operator", lab, host, {"one": {}, "two": {}}, ON_DEMAND)
    before = subprocess.run([sys.executable, str(earlier), "deploy", str(inventory)], capture_output=True, text=True)
    assert before.returncode == 0, before.stdout + before.stderr
    numbers = [read_generation(host)]
    run = run_deploy(inventory)
    assert run.status == 0, run.said
    numbers.append(read_generation(host))
    box = OnDemandBox(host, inventory, ("one", "two"))

    with box.begin_load(LOAD) as clients:
        wait_until(lambda: bool(box.loaded()), "a model")
        for number in numbers * 2:
            changed = run_rigwright("rollback", str(inventory), "--to", number)
            assert changed.returncode == 0, changed.stdout + changed.stderr
            assert f"generation {number} is active" in changed.stdout + changed.stderr
        rows = clients.finish()
    assert [one for one in rows if one.problem] == []
    assert {one.model for one in rows} == {"one", "two"}
