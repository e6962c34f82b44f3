"""Two models on demand that do not fit together: wakes, kills, a power cut, stops by hand, and a changed instance."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.on_demand_host import BUDGETS, GATEWAY_PORT, write_operator_folder
from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.conftest import BootHost
from tests.hosts.gateway_box import run_rigwright
from tests.hosts.host_layers import ConvergedLayers
from tests.hosts.support import deploy, red_check_lines, run_plan, wait_until

pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]
INSTANCES: dict[str, dict[str, Any]] = {"one": {}, "two": {"idle": 600}}
BUDGET = {"host_memory": BUDGETS[1], "residence": 2}
SERVICE = "rigwright_residency.service"
CLIENT = """
import socket, sys, time
until, lines = time.monotonic() + 120, []
while time.monotonic() < until and not (lines and lines[-1][:7] != "waiting"):
    link = socket.socket(socket.AF_UNIX)
    link.connect("/run/rigwright/residency.sock")
    link.sendall(f"wake {sys.argv[1]} lan - 1\\n".encode())
    lines = link.makefile("r").read().splitlines()
print(lines[-1])
"""


def wake(host: LabHost, name: str, before: str = "") -> str:
    """The end of a wake; a command may run on the host while it waits."""
    return host.run(f"{before} python3 -c {shlex.quote(CLIENT)} {name}").strip()


def loaded(host: LabHost) -> set[str]:
    return {
        name for name in INSTANCES if host.run(f"systemctl is-active rigwright-{name}", check=False).strip() == "active"
    }


def read_health(host: LabHost) -> tuple[str, dict[str, str]]:
    """The state of the box, and of each instance."""
    program = f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{GATEWAY_PORT}/health').read().decode())"
    found = json.loads(host.run(f'python3 -c "{program}"'))
    return found["status"], {one: model["instances"][one] for one, model in found["models"].items()}


@pytest.fixture
def box(lab: ThrowawayLab, boot: BootHost, first_run: ConvergedLayers, tmp_path: Path) -> Iterator[LabHost]:
    made = boot(first_run.layer)
    inventory = write_operator_folder(tmp_path, lab, made, INSTANCES, BUDGET)
    deploy(inventory)
    yield made


def test_models_that_do_not_fit_take_turns(lab: ThrowawayLab, box: LabHost, tmp_path: Path) -> None:
    inventory = tmp_path / "rig.py"
    assert loaded(box) == set(), "proven, they sleep again"
    assert run_plan(inventory).planned_operations == []
    assert red_check_lines(inventory) == {}
    assert read_health(box) == ("ok", {"one": "asleep", "two": "asleep"})
    status = run_rigwright("status", str(inventory))
    assert status.returncode == 0, status.stdout
    assert status.stdout.count(" asleep ") == 3
    assert "asleep until a request loads them: one (" in status.stdout

    for name in ("one", "two", "one"):
        assert wake(box, name) == "ready"
        assert loaded(box) == {name}
    assert red_check_lines(inventory) == {}

    # the service is killed in the middle of an exchange
    assert wake(box, "two", f"(sleep 1; systemctl kill --signal=KILL {SERVICE}) &") == "ready"
    assert loaded(box) == {"two"}

    # the power is cut in the middle of one
    box.run(f"(python3 -c {shlex.quote(CLIENT)} one > /dev/null 2>&1 &) ; sleep 1")
    box.kill()
    box.start()
    wait_until(lambda: box.run(f"systemctl is-active {SERVICE}", check=False).strip() == "active", "the service")
    assert loaded(box) == set()
    assert wake(box, "one") == "ready"
    assert loaded(box) == {"one"}

    assert run_rigwright("stop", str(inventory), "one").returncode == 0
    assert wake(box, "one") == "refused failed 60 it was stopped by hand"
    assert read_health(box) == ("degraded", {"one": "stopped", "two": "asleep"})
    assert wake(box, "two") == "ready"
    started = run_rigwright("start", str(inventory), "one")
    assert started.returncode == 0, started.stdout + started.stderr
    assert loaded(box) == {"one"}

    # one that cannot start: its clients get the reason, and the other serves
    box.run("mv /etc/rigwright/credentials/two.api-key /root/")
    assert wake(box, "two").startswith("refused failed 5 ")
    assert wake(box, "one") == "ready"
    failed = ("degraded", {"one": "ok", "two": "failed"})
    assert read_health(box) == failed
    # no state outlives the service, and the next process has it from the ledger
    before = box.run("stat -c %i /run/rigwright/residency")
    box.run(f"systemctl kill --signal=KILL {SERVICE}")
    wait_until(lambda: box.run("stat -c %i /run/rigwright/residency", check=False) not in ("", before), "the service")
    wait_until(lambda: read_health(box) == failed, "the state of a failed instance")
    box.run("mv /root/two.api-key /etc/rigwright/credentials/")

    changed = {**INSTANCES, "two": {**INSTANCES["two"], "tasks_max": 2048}}
    write_operator_folder(tmp_path, lab, box, changed, BUDGET)
    run = deploy(inventory)
    assert "rigwright-two.service is woken once" in run.said
    assert loaded(box) <= {"one"}
    assert read_health(box)[1]["two"] == "asleep"
    assert run_plan(inventory).planned_operations == []
