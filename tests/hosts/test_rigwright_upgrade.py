"""A host that an earlier version of ours has deployed is taken over: one restart an instance, nothing made again."""

import re
import subprocess
from pathlib import Path

import pytest

from lab.throwaway_lab import ThrowawayLab
from rigwright.project_root import ROOT
from tests.hosts.conftest import BootHost, ConvergedLayers
from tests.hosts.support import (
    PYINFRA,
    deploy,
    is_serving,
    main_pid,
    red_checks,
    run_deploy,
    run_plan,
    wait_until,
    write_inventory,
)

# the last one before engines were of several kinds: its instances listen on their ports themselves, as one user
EARLIER = "e32f42a"
ENGINES = "stat -c '%n %Y' /opt/rigwright/engines/*/* /srv/models/*/*/*"
# the objects that that version had not: folders for records of trees, programs and timer for weights, and those records
WAY = ["Base | Folders", "Base | Users", "Tools | Programs that manage weights"]
WAY += ["Weights | Weights are hashed again as time passes"]
WAY += ["Serving | Write generation", "Serving | Activate generation", "Serving | Record what is installed"]

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
    lab: ThrowawayLab, boot: BootHost, first_run: ConvergedLayers, earlier: Path, tmp_path: Path
) -> None:
    host = boot(first_run.engine_layer)
    inventory = write_inventory(tmp_path, lab, host)
    # that version trusted a host the first time
    before = inventory.with_name("before.py")
    trusting = "'ssh_known_hosts_file': '/dev/null', 'ssh_strict_host_key_checking': 'no'"
    before.write_text(re.sub(r"'ssh_host_key': '[^']*'", trusting, inventory.read_text()))
    first = subprocess.run(
        [PYINFRA, str(before), str(earlier / "deploy.py"), "--yes"],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(earlier)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert first.returncode == 0, first.stderr
    made = host.run(ENGINES)

    assert run_plan(inventory).planned_operations == WAY
    assert run_deploy(inventory).changed_operations == WAY
    assert host.run(ENGINES) == made
    assert (
        host.run("ps -o user:32= -p $(systemctl show --property=MainPID --value rigwright-chat)") == "rigwright-chat\n"
    )
    process = main_pid(host)
    assert (run_deploy(inventory).changed_operations, main_pid(host)) == ([], process)
    assert red_checks(inventory) == set()

    # its user owns nothing, and stays as long as there is a way back to it
    deploy(inventory, "--yes", "--data", "verb=rollback")
    assert host.run("ps -o user:32= -p $(systemctl show --property=MainPID --value rigwright-chat)") == "rigwright\n"
    host.reboot()
    wait_until(lambda: is_serving(host), "serving the earlier generation after a boot")
    assert run_deploy(inventory).changed_operations == ["Serving | Activate generation"]
    assert red_checks(inventory) == set()
    alone = write_inventory(tmp_path / "alone", lab, host, keep_generations=1)
    assert run_deploy(alone).changed_operations == ["Serving | Prune generations", "Serving | Record what is installed"]
    assert host.run("getent passwd rigwright || true") == ""
    assert host.run("find / -xdev -nouser -o -xdev -nogroup") == ""
