"""One run at a time changes a host."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.support import (
    deploy,
    deploy_command,
    red_checks,
    run_deploy,
    run_plan,
    wait_until,
    write_inventory,
)

# the tested code runs on this machine and in shell scripts that every release has
pytestmark = pytest.mark.parametrize("release", ["debian-13"], indirect=True)

# a conflict alone says held: the folder of a host that has just booted is not there yet
HELD = "flock -n -E 75 /run/rigwright/locks/lease true; [ $? -eq 75 ] && echo held || echo free"


def keep_waiting(host: LabHost) -> None:
    """Have the next deploy wait, until the unit `other` is stopped, for the holder of dpkg's lock."""
    lock = "f = open('/var/lib/dpkg/lock-frontend', 'w'); fcntl.lockf(f, fcntl.LOCK_EX)"
    hold = f"import fcntl, time; {lock}; time.sleep(600)"
    host.run(f'dpkg --purge ninja-build >/dev/null; systemd-run -q --unit=other python3 -c "{hold}"')


def test_a_second_run_is_refused_with_the_holder_and_the_deploy_lock_ends_with_it(
    lab: ThrowawayLab, converged: LabHost, tmp_path: Path
) -> None:
    inventory = write_inventory(tmp_path, lab, converged)
    keep_waiting(converged)
    with subprocess.Popen(
        deploy_command(inventory, "--yes"), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
    ) as first:
        wait_until(lambda: "held" in converged.run(HELD), "the first run holds the lease")
        second = run_deploy(inventory)
        assert second.status == 1
        assert f"(process {first.pid}) holds the deploy lock since" in second.said
        assert f"deploy of {inventory}" in second.said
        assert "Traceback" not in second.said
        assert run_plan(inventory).status == 1
        said = subprocess.run(
            [sys.executable, "-m", "cli", "status", str(inventory)], capture_output=True, text=True
        ).stdout
        assert f"deploy of {inventory}" in said
        os.killpg(first.pid, signal.SIGKILL)
    wait_until(lambda: "free" in converged.run(HELD), "the deploy lock ends with its holder", 30)
    converged.run("systemctl stop other")
    deploy(inventory)
    assert red_checks(inventory) == set()


@pytest.mark.all_only
def test_a_run_whose_connection_is_cut_takes_the_deploy_lock_again(
    lab: ThrowawayLab, converged: LabHost, tmp_path: Path
) -> None:
    inventory = write_inventory(tmp_path, lab, converged)
    keep_waiting(converged)
    with subprocess.Popen(
        deploy_command(inventory, "--yes"), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as first:
        wait_until(
            lambda: converged.run("systemctl is-active rw-job-packages", check=False).strip() == "active",
            "the job runs",
        )
        converged.run("pkill -KILL -f 'sshd[-:].*root'", check=False)
        wait_until(lambda: "free" in converged.run(HELD), "cut off", 30)
        wait_until(lambda: "held" in converged.run(HELD), "taken again", 30)
        assert run_deploy(inventory).status == 1
        converged.run("systemctl stop other")
        assert first.stderr
        said = first.stderr.read()
    assert first.returncode == 0, said
    assert run_deploy(inventory).changed_operations == []
