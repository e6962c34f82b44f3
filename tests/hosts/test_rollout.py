"""A rollout over three hosts: the second fails its gate; its controller is killed, and another one continues."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.hosts import HostSpec, LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.gateway_box import run_rigwright
from tests.hosts.support import PORT, is_serving, main_pid

NAMES = ("one", "two", "three")
OWN_CHECK = """
from checks import Drift, check


@check("OP01", "the box is not marked as unfit", severity="high", why="the test marks one")
def test_marker(host):
    if host.file("/etc/unfit").exists:
        raise Drift("no /etc/unfit", "the file", "`rm /etc/unfit`")
"""


@dataclass(frozen=True)
class RolloutFleet:
    """Three hosts, and their operator's folder."""

    lab: ThrowawayLab
    hosts: dict[str, LabHost]
    folder: Path

    @property
    def inventory(self) -> Path:
        return self.folder / "fleet.py"

    def declare(self, memory: str) -> None:
        """Write the inventory; another memory limit makes another generation."""
        chat = {"chat": {"variant": "llamacpp/demo-wheel", "port": PORT, "memory_max": memory}}
        entries = {
            name: {**host.inventory_keys, "instances": chat, "mirrors": {"shelf": [self.lab.shelf_url]}}
            for name, host in self.hosts.items()
        }
        self.inventory.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({entries!r})\n")

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        return run_rigwright("rollout", str(self.inventory), *options)

    def generations(self) -> dict[str, str]:
        found = {name: host.run("readlink /etc/rigwright/current") for name, host in self.hosts.items()}
        return {name: text.strip().rpartition("/")[2] for name, text in found.items()}

    def states(self) -> dict[str, str]:
        content = json.loads((self.folder / "fleet.rollout.json").read_text())
        return {name: box["state"] for name, box in content["boxes"].items()}


@pytest.fixture(scope="module")
def fleet(lab: ThrowawayLab, release: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RolloutFleet]:
    hosts = lab.up([HostSpec(f"ro{number}{release[-2:]}", release) for number in (1, 2, 3)])
    made = RolloutFleet(lab, dict(zip(NAMES, hosts, strict=True)), tmp_path_factory.mktemp("rollout"))
    (made.folder / "checks").mkdir()
    (made.folder / "checks/test_marker.py").write_text(OWN_CHECK)
    made.declare("50%")
    yield made
    for host in hosts:
        host.destroy()


def test_a_rollout_stops_at_the_second_box_and_its_successor_finishes_it(fleet: RolloutFleet) -> None:
    first = fleet.run("--batch", "2")
    assert first.returncode == 0, first.stdout + first.stderr
    assert fleet.generations() == dict.fromkeys(NAMES, "1")

    fleet.declare("40%")
    fleet.hosts["two"].run("touch /etc/unfit")
    untouched = main_pid(fleet.hosts["three"])
    stopped = fleet.run()
    assert stopped.returncode == 1, stopped.stdout + stopped.stderr
    assert "two: failed its gate, rolled back, generation 1: 1 check: OP01" in stopped.stdout
    assert "untouched: three" in stopped.stderr
    assert fleet.generations() == {"one": "2", "two": "1", "three": "1"}
    assert main_pid(fleet.hosts["three"]) == untouched
    assert all(is_serving(host) for host in fleet.hosts.values())

    fleet.hosts["two"].run("rm /etc/unfit")
    finished = main_pid(fleet.hosts["one"])
    kill_during_activation(fleet)
    assert fleet.states() == {"one": "done", "two": "deploying", "three": "waiting"}
    refused = fleet.run()
    assert refused.returncode == 2
    assert "was cut off" in refused.stderr
    resumed = fleet.run("--resume")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert fleet.generations() == dict.fromkeys(NAMES, "2")
    assert main_pid(fleet.hosts["one"]) == finished
    assert "one: done" in resumed.stdout
    assert "one: nothing to do" not in resumed.stdout


def kill_during_activation(fleet: RolloutFleet) -> None:
    """Kill the controller of a resumed rollout as soon as it says that the second host activates."""
    command = [sys.executable, "-m", "cli", "rollout", str(fleet.inventory), "--resume"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/", start_new_session=True
    ) as controller:
        assert controller.stdout
        lines = []
        for line in controller.stdout:
            lines.append(line)
            if line.startswith("two: ") and ("Activate" in line or "is active" in line or "start-p" in line):
                break
        else:
            pytest.fail(f"the rollout ended before the activation: {''.join(lines)}")
        controller.send_signal(signal.SIGKILL)
