"""A run that changes nothing asks its host in few commands: each takes the network's time, on machines of any speed."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import ssh_command_count
from lab.hosts import LabHost

# the tested commands are this machine's
pytestmark = pytest.mark.parametrize("release", ["debian-13"], indirect=True)


def test_verbs_that_change_nothing_ask_in_few_commands(converged: LabHost, inventory: Path) -> None:
    ssh_command_count.prepare([converged])
    asked = {}
    # its checks pass, and what they depend on is recorded: until that changes, a deploy asks nothing more
    subprocess.run([sys.executable, "-m", "cli", "deploy", str(inventory)], capture_output=True, check=True)
    for verb in ("deploy", "plan", "status", "show models"):
        with ssh_command_count.counted([converged]) as count:
            done = subprocess.run(
                [sys.executable, "-m", "cli", *verb.split(), str(inventory)],
                capture_output=True,
                text=True,
                check=False,
            )
        assert done.returncode == 0, done.stdout + done.stderr
        asked[verb] = count.total
    # of a deploy: its deploy lock, what decisions wait for, what operations ask; of plan and status: two at once
    assert asked == {"deploy": 3, "plan": 2, "status": 2, "show models": 1}
