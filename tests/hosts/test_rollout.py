"""A rollout over three hosts: the second fails its gate; its controller is killed, and another one continues."""

import json
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import pytest

from lab.hosts import HostSpec, LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.model.maintenance_window import DAYS
from tests.hosts.gateway_box import LAN, LOG, run_rigwright
from tests.hosts.steady_load import SteadyLoad, run_load
from tests.hosts.support import PORT, api_key, deploy, is_serving, main_pid, wait_until

NAMES = ("one", "two", "three")
LENDERS = ("two", "three")
MODEL = "tiny-rig"
OUT = "/var/lib/rigwright/rollout/out"
OWN_CHECK = """
from checks import Drift, check


@check("OP01", "the box is not marked as unfit", severity="high", why="the test marks one")
def test_marker(host):
    if host.file("/etc/unfit").exists:
        raise Drift("no /etc/unfit", "the file", "`rm /etc/unfit`")
"""
CHECK_OF_ROTATION = f"""
from checks import Drift, check


@check("OP02", "the box is out of rotation during its gate", severity="high", why="clients would meet an unproven box")
def test_rotation(host):
    if not host.file("{OUT}").exists:
        raise Drift("{OUT}", "no file", "none")
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

    def declare(self, memory: str, **keys: object) -> None:
        """Write the inventory; another memory limit makes another generation. The last box shares its weights."""
        chat = {"chat": {"variant": "llamacpp/demo-wheel", "port": PORT, "memory_max": memory}}
        first = self.hosts["one"].address
        sharing = {"share": {"address": first, "allow": [str(self.lab.subnet)]}}
        entries = {
            name: {
                **self.hosts[name].inventory_keys,
                "instances": chat,
                "mirrors": {"shelf": [self.lab.shelf_url]},
                **keys,
                **(sharing if name == "one" else {"peers": [f"http://{first}:8090"]}),
            }
            for name in ("two", "three", "one")
        }
        self.inventory.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({entries!r})\n")

    def declare_one_address(self, memory: str) -> None:
        """Write the inventory of a front with an instance of its own, and of two lenders with this memory limit."""
        chat = {"variant": "llamacpp/demo-wheel", "port": PORT}
        shelf = {"mirrors": {"shelf": [self.lab.shelf_url]}}
        gateway = {
            "listeners": {"lan": {"address": "0.0.0.0", "port": LAN, "keys": False}},
            "models": {MODEL: {"instances": ["chat", *(f"{name}/chat" for name in LENDERS)]}},
        }
        front = self.hosts["one"].inventory_keys
        entries = {"one": {**front, **shelf, "instances": {"chat": {**chat, "memory_max": "40%"}}, "gateway": gateway}}
        for name in LENDERS:
            keys = self.hosts[name].inventory_keys
            entries[name] = {
                **keys,
                **shelf,
                "instances": {"chat": {**chat, "memory_max": memory}},
                "fleet": {"address": str(keys["ssh_hostname"])},
            }
        self.inventory.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({entries!r})\n")

    def answered_by(self) -> list[str]:
        """The instance of each answered request of the front."""
        lines = [json.loads(line) for line in self.hosts["one"].run(f"cat {LOG}").splitlines()]
        return [one["instance"] for one in lines if one["status"] == 200 and one["instance"]]

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        return run_rigwright("rollout", str(self.inventory), *options)

    def generations(self) -> dict[str, str]:
        found = {name: host.run("readlink /etc/rigwright/current") for name, host in self.hosts.items()}
        return {name: text.strip().rpartition("/")[2] for name, text in found.items()}

    def unit_starts(self, name: str) -> str:
        """The processes of a host's units of ours, with the moments of their starts."""
        shown = "--property=Id,MainPID,ExecMainStartTimestampMonotonic,ActiveEnterTimestampMonotonic"
        return self.hosts[name].run(f"systemctl show {shown} 'rigwright-*' rigwright_share.service")

    @contextmanager
    def ask_instance(self, name: str) -> Iterator[SteadyLoad]:
        """A client of a host's instance, by a tunnel: it asks and streams without a pause."""
        host = self.hosts[name]
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        *command, target = host.ssh_command()
        with subprocess.Popen([*command, "-N", "-L", f"127.0.0.1:{port}:127.0.0.1:{PORT}", target]) as tunnel:
            try:
                wait_until(lambda: is_listening(port), "the tunnel")
                url = f"http://127.0.0.1:{port}/v1/chat/completions"
                with run_load(url, (MODEL,), clients=1, api_key=api_key(host)) as load:
                    yield load
            finally:
                tunnel.terminate()

    def states(self) -> dict[str, str]:
        content = json.loads((self.folder / "fleet.rollout.json").read_text())
        return {name: box["state"] for name, box in content["boxes"].items()}


def is_listening(port: int) -> bool:
    """Whether something takes connections at a port of this machine."""
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


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
    deploy(fleet.inventory)
    assert fleet.generations() == dict.fromkeys(NAMES, "1")
    fleet.declare("40%")
    fleet.hosts["two"].run("touch /etc/unfit")
    untouched = fleet.unit_starts("three")
    with fleet.ask_instance("three") as load:
        stopped = fleet.run()
    assert stopped.returncode == 1, stopped.stdout + stopped.stderr
    assert (load.wrong, load.told) == ([], [])
    # the last box of the inventory comes first: the others fetch from it
    batches = [line for line in stopped.stdout.splitlines() if line.startswith("batch ") and " of " in line]
    assert batches == ["batch 1 of 3: one", "batch 2 of 3: two"]
    assert "two: failed its gate, rolled back, generation 1: 1 check: OP01" in stopped.stdout
    assert "untouched: three" in stopped.stderr
    assert fleet.generations() == {"one": "2", "two": "1", "three": "1"}
    assert fleet.unit_starts("three") == untouched
    assert all(is_serving(host) for host in fleet.hosts.values())

    fleet.hosts["two"].run("rm /etc/unfit")
    finished = main_pid(fleet.hosts["one"])
    kill_during_activation(fleet)
    assert fleet.states() == {"one": "done", "two": "deploying", "three": "waiting"}
    refused = fleet.run()
    assert refused.returncode == 2
    assert "was cut off" in refused.stderr
    # a controller on another machine has a copy of the folder: its name differs by the path
    elsewhere = fleet.folder.with_name(f"{fleet.folder.name}-copy") / fleet.inventory.name
    shutil.copytree(fleet.folder, elsewhere.parent)
    foreign = run_rigwright("rollout", str(elsewhere), "--resume")
    assert foreign.returncode == 2, foreign.stdout + foreign.stderr
    (name,) = {line.partition(" by ")[2].partition(" (")[0] for line in foreign.stderr.splitlines() if " by " in line}
    assert name.endswith(f":{fleet.inventory}")
    assert "two: the rollout of " in foreign.stderr
    resumed = run_rigwright("rollout", str(elsewhere), "--resume", "--replace-controller", name)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert fleet.generations() == dict.fromkeys(NAMES, "2")
    # the first controller takes over from the boxes that they are done
    late = fleet.run("--resume")
    assert late.returncode == 0, late.stdout + late.stderr
    assert "batch" not in late.stdout
    assert fleet.states() == dict.fromkeys(NAMES, "done")
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


def test_a_rollout_of_rollbacks_returns_each_box_to_its_previous_generation(fleet: RolloutFleet) -> None:
    if fleet.generations() != dict.fromkeys(NAMES, "2"):  # the test above leaves them so
        for memory in ("50%", "40%"):
            fleet.declare(memory)
            deploy(fleet.inventory)
    planned = fleet.run("--rollback", "--to", "7", "--dry")
    assert planned.returncode == 2
    assert "three: refused: generation 7 does not exist; available: " in planned.stderr
    in_three_days = DAYS[(datetime.now(timezone.utc).weekday() + 3) % 7]
    fleet.declare("40%", maintenance_windows=[f"{in_three_days} 02:00-03:00"])
    done = fleet.run("--rollback", "--batch", "2", "--window", "00:00-24:00")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "--window replaces the maintenance windows of one, three, two" in done.stdout
    assert fleet.generations() == dict.fromkeys(NAMES, "1")
    assert all(is_serving(host) for host in fleet.hosts.values())


def test_a_rollout_of_lenders_costs_no_request(fleet: RolloutFleet) -> None:
    """Both lenders leave rotation at the same time, and stay out until each has passed its gate; its controller is
    killed in the gate of the first.
    """
    fleet.declare_one_address("40%")
    deploy(fleet.inventory)
    url = f"http://{fleet.hosts['one'].inventory_keys['ssh_hostname']}:{LAN}/v1/chat/completions"
    (fleet.folder / "checks/test_rotation.py").write_text(CHECK_OF_ROTATION)
    everyone = {"chat", *(f"{name}/chat" for name in LENDERS)}
    with run_load(url, (MODEL,)) as load:
        wait_until(lambda: everyone <= {*fleet.answered_by()}, "all boxes answer")
        fleet.declare_one_address("35%")
        kill_in_state(fleet, "two", "checking", "--canary", "0", "--batch", "2", "--limit", ",".join(LENDERS))
        assert all(fleet.hosts[name].run(f"ls {OUT}") for name in LENDERS)
        before = len(fleet.answered_by())
        wait_until(lambda: len(fleet.answered_by()) > before + 8, "the front goes on with its own instance")
        assert {*fleet.answered_by()[before:]} == {"chat"}
        run = fleet.run("--resume")
        assert run.returncode == 0, run.stdout + run.stderr
        assert "two: passed its gate" in run.stdout
        before = len(fleet.answered_by())
        wait_until(lambda: everyone <= {*fleet.answered_by()[before:]}, "both lenders answer again")
    assert load.wrong == []
    assert load.told == []
    assert fleet.states() == dict.fromkeys(LENDERS, "done")
    assert all(host.run(f"ls {OUT}", check=False) == "" for host in fleet.hosts.values())


def kill_in_state(fleet: RolloutFleet, name: str, state: str, *options: str) -> None:
    """Kill the controller of a rollout as soon as the marker of a host has a state."""
    command = [sys.executable, "-m", "cli", "rollout", str(fleet.inventory), *options]
    look = f"""grep -so '"state":"{state}"' /var/lib/rigwright/rollout/marker.json"""
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, cwd="/", start_new_session=True
    ) as controller:
        wait_until(lambda: fleet.hosts[name].run(look, check=False) or controller.poll() is not None, state, 300)
        assert controller.poll() is None, "the rollout ended before that"
        controller.send_signal(signal.SIGKILL)
