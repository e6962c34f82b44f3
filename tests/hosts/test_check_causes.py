"""One cause, one line: a host that is stopped, edited, full, upgraded or broken, checked as its operator does."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.gateway_box import run_rigwright
from tests.hosts.support import CHAT, is_serving, main_pid, wait_until, write_inventory

pytestmark = pytest.mark.parametrize("release", ["debian-13"], indirect=True)

NOTES = "/etc/rigwright/notes"
OWN = {"G05", "O05"}
"""Checks that fail for a file that nothing explains: it lies there all the time."""
WEIGHTS = 'w=$(find /srv/models -name "*.gguf")'


def run_check(inventory: Path) -> dict[str, Any]:
    """The report of one host."""
    done = run_rigwright("check", str(inventory), "--json")
    assert done.stdout, done.stderr
    (host,) = json.loads(done.stdout)["hosts"]
    assert isinstance(host, dict)
    return host


def printed_lines(inventory: Path) -> list[str]:
    """The lines that an operator reads, without those with the inventory's long path."""
    words = [sys.executable, "-m", "cli", "check", str(inventory)]
    text = subprocess.run(words, capture_output=True, text=True, cwd="/", env=os.environ | {"COLUMNS": "80"}).stdout
    return [line for line in text.splitlines() if str(inventory) not in line]


def failed(host: dict[str, Any]) -> set[str]:
    return {f"{one['id']} {one['part']}".rstrip() for one in host["checks"] if one["verdict"] == "fail"}


def stop_by_hand(host: LabHost, inventory: Path) -> None:
    assert run_rigwright("stop", str(inventory), "chat").returncode == 0


def start_again(host: LabHost, inventory: Path) -> None:
    assert run_rigwright("start", str(inventory), "chat").returncode == 0


def fill_disk(host: LabHost, inventory: Path) -> None:
    host.run("mount -t tmpfs -o size=1m tmpfs /var/tmp")


def upgrade(host: LabHost, inventory: Path) -> None:
    host.run("DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --reinstall libc6 >/dev/null")


def restart_units(host: LabHost, inventory: Path) -> None:
    host.run("systemctl restart 'rigwright_*.service' rigwright-chat.service")
    wait_until(lambda: is_serving(host), "it serves again")


def break_weights(host: LabHost, inventory: Path) -> None:
    host.run(f"{WEIGHTS}; systemctl stop rigwright-chat; mv $w $w.away; printf broken > $w")
    host.run("systemctl start --no-block rigwright-chat")
    wait_until(lambda: host.run("systemctl is-failed rigwright-chat", check=False).strip() == "failed", "it has failed")


def restore_weights(host: LabHost, inventory: Path) -> None:
    host.run(f"{WEIGHTS}; mv $w.away $w; systemctl reset-failed rigwright-chat; systemctl restart rigwright-chat")
    wait_until(lambda: is_serving(host), "it serves again")


def pause(host: LabHost, inventory: Path) -> None:
    host.run(f"kill -STOP {main_pid(host)}")


Step = Callable[[LabHost, Path], None]
MORNINGS: dict[str, tuple[Step, str, Step]] = {
    "stopped-by-hand:chat": (stop_by_hand, "chat was stopped by hand on ", start_again),
    "paused-instance:chat": (
        pause,
        "a signal has stopped the process of chat",
        lambda host, _: host.run("systemctl kill -s CONT rigwright-chat") and None,
    ),
    "full-disk:/var/tmp": (
        fill_disk,
        "the file system of /var/tmp is full (",
        lambda host, _: host.run("umount /var/tmp") and None,
    ),
    "damaged-weights:": (break_weights, "the weight file /srv/models/", restore_weights),
    "replaced-packages:": (upgrade, "apt-get replaced libc6 on ", restart_units),
}


def test_each_morning_has_its_cause_on_the_first_line(
    lab: ThrowawayLab, converged: LabHost, inventory: Path, tmp_path: Path
) -> None:
    converged.run(f"touch {NOTES}")
    host = run_check(inventory)
    assert (host["causes"], failed(host)) == ([], OWN)
    problems = []
    for name, (begin, headline, end) in MORNINGS.items():
        begin(converged, inventory)
        problems += find_problems(name, run_check(inventory), headline)
        if name == "stopped-by-hand:chat":
            lines = printed_lines(inventory)
            assert lines[0].startswith(f"  CAUSE  box  {headline}")
            assert [line.split()[2] for line in lines if line.startswith("  FAIL")] == sorted(OWN, reverse=True)
        end(converged, inventory)
    edited = write_inventory(
        tmp_path / "edited", lab, converged, instances={"chat": {**CHAT["chat"], "memory_max": "2G"}}
    )
    host = run_check(edited)
    problems += find_problems("undeployed-edit", host, "the box runs generation 1; the inventory declares another")
    assert host["causes"][0]["evidence"] == "chat: MemoryMax 90% -> 2G"
    # a property set by hand is no edit, though the same check fails for both
    converged.run("systemctl set-property --runtime rigwright-chat.service CPUWeight=1")
    (edit,) = run_check(edited)["causes"]
    assert {"G01", "S02 chat"} <= {*edit["results"]} <= {"G01", "G02", "U01", "S02 chat"}
    converged.run("rm -r /run/systemd/system.control/rigwright-chat.service.d && systemctl daemon-reload")
    assert problems == []
    converged.run(f"rm {NOTES}")
    assert printed_lines(inventory)[0].startswith("box: conforms (")


def find_problems(name: str, host: dict[str, Any], headline: str) -> list[str]:
    """How a report falls short of one line that names the cause, with the failures that it explains and no others."""
    causes, red = host["causes"], failed(host)
    explained = {label for cause in causes for label in cause["results"]}
    found = []
    if not causes or not (causes[0]["id"].startswith(name) and causes[0]["headline"].startswith(headline)):
        found.append(f"the first cause is {causes[:1]}")
    elif len(causes[0]["results"]) < 0.8 * len(red - OWN):
        found.append(f"{sorted(red - OWN - set(causes[0]['results']))} are not explained")
    if explained & OWN or not red >= OWN:
        found.append(f"{OWN} are no failures of their own")
    return [f"{name}: {one}" for one in found]
