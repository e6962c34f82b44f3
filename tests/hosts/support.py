"""Deploys, checks and clients as an operator runs them, on throwaway hosts."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab.base_images import RELEASES
from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.project_root import ROOT

PYINFRA = str(Path(sys.executable).with_name("pyinfra"))
PORT = 8020
CHAT = {"chat": {"variant": "llamacpp/demo", "port": PORT}}
on_both = pytest.mark.parametrize("release", sorted(RELEASES), indirect=True)
"""Tests of differences between releases, run on each of them each time."""
KEY_FILE = "/etc/rigwright/credentials/chat.api-key"


def isolate_host(host: LabHost) -> None:
    """Leave a host no way to anything but this machine."""
    host.run("ip route del default; : > /etc/resolv.conf")


@dataclass(frozen=True)
class PyinfraRun:
    """One run of pyinfra."""

    status: int
    report: dict[str, Any]
    said: str

    @property
    def planned_operations(self) -> list[str]:
        """Operations that a plan says will change something."""
        return [row["name"] for row in self.report["plan"] if row["hosts_with_change"]]

    @property
    def changed_operations(self) -> list[str]:
        """Operations that changed something, by the run's own account."""
        rows = self.report["results"]["operations"]
        return [row["name"] for row in rows if set(row["success"]) - set(row["no_change"])]


def deploy_command(inventory: Path, *options: str, file: Path = ROOT / "deploy.py") -> list[str]:
    """The command line of a deploy."""
    return [PYINFRA, str(inventory), str(file), *options]


def run_deploy(inventory: Path, *options: str, file: Path = ROOT / "deploy.py", **environment: str) -> PyinfraRun:
    """Run a deploy to its end."""
    done = subprocess.run(
        deploy_command(inventory, *(options or ("--yes",)), "--json", file=file),
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    return PyinfraRun(done.returncode, json.loads(done.stdout) if done.stdout.startswith("{") else {}, done.stderr)


def deploy(inventory: Path, *options: str, file: Path = ROOT / "deploy.py", **environment: str) -> PyinfraRun:
    """Run a deploy that succeeds."""
    run = run_deploy(inventory, *options, file=file, **environment)
    assert run.status == 0, run.said
    return run


def run_plan(inventory: Path) -> PyinfraRun:
    """The plan of a deploy."""
    return run_deploy(inventory, "--dry")


STATUS = {"as declared": 0, "changed": 1, "not as declared": 1, "not reached": 3}


def check_results(inventory: Path, *options: str) -> list[dict[str, Any]]:
    """Run the checks; the findings of each, as their JSON has them."""
    done = subprocess.run(
        [sys.executable, "-m", "cli", "check", str(inventory), "--json", *options],
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert done.stdout, f"no check ran: {done.stderr}"
    report = json.loads(done.stdout)
    assert done.returncode == STATUS[report["verdict"]], done.stdout
    return [result for host in report["hosts"] for result in host["checks"]]


def check_verdicts(inventory: Path, *options: str) -> dict[str, str]:
    """Run the checks; id -> "ok", "FAIL", "changed" or "skip"."""
    verdicts: dict[str, str] = {}
    for result in check_results(inventory, *options):
        word = {"fail": "FAIL"}.get(result["verdict"], result["verdict"])
        known = verdicts.get(result["id"], "skip")
        # of several instances, one that does not hold is what counts, and then one that does
        verdicts[result["id"]] = min(word, known, key=("FAIL", "changed", "ok", "skip").index)
    return verdicts


def red_checks(inventory: Path, *options: str) -> set[str]:
    """The checks that do not hold."""
    return {identifier for identifier, word in check_verdicts(inventory, *options).items() if word == "FAIL"}


def failed_results(inventory: Path) -> dict[str, list[dict[str, Any]]]:
    """The checks that do not hold, with the results of each."""
    return results_with_verdict(inventory, "fail")


def results_with_verdict(inventory: Path, *verdicts: str) -> dict[str, list[dict[str, Any]]]:
    """The checks with one of some verdicts, with the results of each."""
    found: dict[str, list[dict[str, Any]]] = {}
    for result in check_results(inventory):
        if result["verdict"] in verdicts:
            found.setdefault(result["id"], []).append(result)
    return found


def describe_result(result: dict[str, Any]) -> str:
    """A result in a line."""
    return "{id} {part}: expected {expected}, found {found}; {cure}".format(**result)


def red_check_lines(inventory: Path) -> dict[str, list[str]]:
    """The red checks, each with its message."""
    return {name: [*map(describe_result, results)] for name, results in failed_results(inventory).items()}


def write_inventory(folder: Path, lab: ThrowawayLab, host: LabHost, **rig: Any) -> Path:
    """An inventory of one host, as an operator would write it."""
    declared = {**host.inventory_keys, "instances": CHAT, "mirrors": {"shelf": [lab.shelf_url]}, **rig}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "rig.py"
    path.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({{'box': {declared!r}}})\n")
    return path


def wait_until(condition: Callable[[], Any], what: str, limit: float = 120.0, every: float = 0.1) -> Any:
    """Wait for a condition and return what it returned; it is looked at anew after so many seconds."""
    deadline = time.monotonic() + limit
    while not (value := condition()):
        assert time.monotonic() < deadline, f"after {limit:.0f} s: not {what}"
        time.sleep(every)
    return value


def is_serving(host: LabHost) -> bool:
    """Whether the instance `chat` is active, which it is after its first completion."""
    return host.run("systemctl is-active rigwright-chat", check=False).strip() == "active"


def api_key(host: LabHost, instance: str = "chat") -> str:
    """The key that an instance was given."""
    unit = f"/etc/systemd/system/rigwright-{instance}.service"
    return host.run(f"cat $(sed -n 's/^LoadCredential=api-key://p' {unit})").strip()


def main_pid(host: LabHost, unit: str = "rigwright-chat.service") -> int:
    """The process of a unit; the served one."""
    return int(host.run(f"systemctl show --property=MainPID --value {unit}"))
