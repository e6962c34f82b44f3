"""A box keeps an instance out of the gateway's rotation by itself, says why, and takes it back after a gate."""

import json
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.project_root import ROOT
from tests.hosts.conftest import BootHost
from tests.hosts.gateway_box import LAN, LOG, run_rigwright
from tests.hosts.host_layers import ConvergedLayers
from tests.hosts.steady_load import SteadyLoad, run_load
from tests.hosts.support import PORT, deploy, red_check_lines, run_plan, wait_until, write_inventory

# looks ten seconds apart, two returns, and a boot take minutes
pytestmark = [pytest.mark.all_only, pytest.mark.parametrize("release", ["debian-13"], indirect=True)]
KERNEL = "/usr/local/lib/lab/kernel"
DEMO = {"variant": "llamacpp/demo", "port": PORT}
INSTANCES = {"chat": DEMO, "chat2": {**DEMO, "port": PORT + 1}}
SERVICE = "rigwright_rotation.service"
CARD = "10de:2204"
OFF_THE_BUS = "NVRM: Xid (PCI:0000:02:00): 79, pid=1, name=llama-server, GPU has fallen off the bus."
OTHERS = "NVRM: Xid (PCI:0000:02:00): 31, pid=1, name=llama-server, MMU Fault"
RECOVERED = "NVRM: Xid (PCI:0000:02:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
# the engine is one for the CPU and has no cards: its declaration alone says that it has
GIVE_CARDS = """
import json
path = "/etc/rigwright/current/manifest.json"
found = json.load(open(path))
found["cards"] = ["RTX 3090", "RTX 3090"]
found["instances"]["chat"]["cards"], found["instances"]["chat2"]["cards"] = [0], [1]
open(path, "w").write(json.dumps(found))
"""
# a copy of the folder on a small file system of its own
SMALL_DISK = (
    "size=$(du -sm /opt/rigwright | cut -f 1); mkdir -p /mnt/small; "
    "mount -t tmpfs -o size=$((size + 280))m none /mnt/small; cp -a /opt/rigwright/. /mnt/small; "
    "mount --bind /mnt/small /opt/rigwright"
)


def log_kernel_line(host: LabHost, line: str) -> None:
    host.run(f"{KERNEL} log {shlex.quote(line)}")


def read_health(host: LabHost) -> dict[str, Any]:
    found: dict[str, Any] = requests.get(f"http://{host.address}:{LAN}/health", timeout=10).json()["models"]["tiny-rig"]
    return found


def states(host: LabHost) -> dict[str, str]:
    return dict(read_health(host)["instances"])


def answering(host: LabHost, number: int = 8) -> set[str]:
    """The instances that answered the last requests, once as many have ended since now."""
    lines = int(host.run(f"wc -l < {LOG}"))
    wait_until(lambda: int(host.run(f"wc -l < {LOG}")) >= lines + 2 * number, "requests")
    return {json.loads(line)["instance"] for line in host.run(f"tail -n {number} {LOG}").splitlines()}


@pytest.fixture
def host(lab: ThrowawayLab, boot: BootHost, first_run: ConvergedLayers, tmp_path: Path) -> Iterator[LabHost]:
    made = boot(first_run.layer, cards=(CARD, CARD))
    gateway = {
        "listeners": {"lan": {"address": "0.0.0.0", "port": LAN, "keys": False}},
        "rotation_checks": ["W01", "U02"],
    }
    inventory = write_inventory(tmp_path, lab, made, instances=INSTANCES, gateway=gateway)
    deploy(inventory)
    assert run_plan(inventory).planned_operations == []
    assert red_check_lines(inventory) == {}
    source = (ROOT / "tests/stand_ins/nvidia/inside/kernel").read_text()
    made.run(
        f"mkdir -p {KERNEL.rpartition('/')[0]} /run/lab; printf %s {shlex.quote(source)} > {KERNEL}; chmod 755 {KERNEL}"
    )
    made.run(f"python3 -c {shlex.quote(GIVE_CARDS)}")
    yield made


def run_status(tmp_path: Path) -> tuple[int, str]:
    done = run_rigwright("status", str(tmp_path / "rig.py"))
    return done.returncode, " ".join(done.stdout.split())


def lose_a_card(host: LabHost, load: SteadyLoad, tmp_path: Path) -> None:
    log_kernel_line(host, OTHERS)
    began = time.monotonic()
    log_kernel_line(host, OFF_THE_BUS)
    wait_until(lambda: states(host) == {"chat": "ok", "chat2": "out of rotation"}, "an instance that is out")
    print(f"out of the rotation {time.monotonic() - began:.1f} s after the kernel's line")
    assert read_health(host)["out_of_rotation"]["chat2"][0]["reason"] == "xid 79"
    assert answering(host) == {"chat"}
    status, text = run_status(tmp_path)
    assert status != 0
    assert "Xid 79 of card 1 at 0000:02:00: it fell off the bus" in text, text
    # a run that is killed loses nothing
    start_and_kill = f"systemctl start --no-block {SERVICE}; systemctl kill -s KILL {SERVICE} 2>/dev/null"
    host.run(f"for one in 1 2 3 4 5 6 7 8; do {start_and_kill}; done; systemctl start {SERVICE}")
    assert states(host)["chat2"] == "out of rotation"
    # engines can neither write reasons nor remove them
    for command in ("touch /run/rigwright/rotation/chat", "rm -f /run/rigwright/rotation/chat2"):
        host.run(f"! setpriv --reuid=rigwright-chat2 --regid=rigwright-chat2 --clear-groups {command} 2>/dev/null")
    began = time.monotonic()
    log_kernel_line(host, RECOVERED)
    wait_until(lambda: states(host) == {"chat": "ok", "chat2": "ok"}, "an instance that has returned")
    print(f"in the rotation {time.monotonic() - began:.1f} s after its recovery")
    wait_until(lambda: answering(host) == {"chat", "chat2"}, "answers of both")


def fill_a_disk(host: LabHost, load: SteadyLoad) -> None:
    host.run("fallocate -l 100M /opt/rigwright/ballast")
    wait_until(lambda: set(states(host).values()) == {"last resort"}, "a full disk")
    # both stay, as there is no other
    wait_until(lambda: answering(host) == {"chat", "chat2"}, "answers of both")
    host.run("rm /opt/rigwright/ballast")
    wait_until(lambda: set(states(host).values()) == {"ok"}, "an end of it")


def fail_a_check(host: LabHost) -> None:
    drop_in = "/etc/systemd/system/rigwright-chat.service.d"
    host.run(f"mkdir {drop_in}; printf '[Service]\\nNice=5\\n' > {drop_in}/x.conf; systemctl daemon-reload")
    wait_until(lambda: set(states(host).values()) == {"last resort"}, "a failing check")
    assert read_health(host)["out_of_rotation"]["chat"][0]["reason"] == "check U02"
    host.run(f"rm -r {drop_in}; systemctl daemon-reload; systemctl start rigwright_self_check.service")
    wait_until(lambda: set(states(host).values()) == {"ok"}, "a check that holds")


def test_requests_go_elsewhere_until_an_instance_is_back(host: LabHost, tmp_path: Path) -> None:
    wait_until(lambda: states(host) == {"chat": "ok", "chat2": "ok"}, "both instances")
    host.run(SMALL_DISK)
    url = f"http://{host.address}:{LAN}/v1/chat/completions"
    with run_load(url, ("tiny-rig",)) as load:
        lose_a_card(host, load, tmp_path)
        fill_a_disk(host, load)
        fail_a_check(host)
        log_kernel_line(host, OFF_THE_BUS)
        wait_until(lambda: states(host)["chat2"] == "out of rotation", "an instance that is out again")
    assert (load.wrong, load.told) == ([], [])
    print(f"{len(load.answered)} answers, none failed")
    # an Xid is one of a boot
    host.reboot()
    wait_until(lambda: states(host) == {"chat": "ok", "chat2": "ok"}, "both after a boot")
