"""The machine that the GPU tests use: a throwaway host with this machine's cards, or a real one over SSH."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from lab import tiny_model
from lab.hosts import HostSpec, LabHost
from lab.throwaway_lab import ThrowawayLab
from rigwright.project_root import ROOT
from rigwright.supply.bundle import INDEX
from rigwright.survey.box_survey import BoxSurvey
from roles import first_contact

INVENTORY = ROOT / "inventory" / "metal.py"
RECORD = INVENTORY.with_suffix(".json")
UNIT = "rigwright-metal"
PORT = 8020
KEY = "/etc/rigwright/credentials/metal.api-key"
SOCKET = "/run/rigwright/instances/metal/api.sock"
MODEL = "metal-rig.gguf"
# The tests' gateway in front of several instances.
LAN = 8000
LISTENER = {"address": "0.0.0.0", "port": LAN, "keys": False, "evict": True}
GATEWAY: dict[str, object] = {"listeners": {"lan": LISTENER}}
# The files that tests put on the machine, and take away again.
SCRATCH = "/var/tmp/rigwright-test-gpu"
USED = "timeout 20 nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits --id=0"


@dataclass(frozen=True)
class GpuMachine:
    """One machine with at least one card."""

    connection: dict[str, object]
    survey: BoxSurvey
    throwaway: LabHost | None

    @property
    def system(self) -> str:
        """Its distribution and release."""
        return f"{self.survey.os_id}-{self.survey.os_version}"

    @property
    def cards(self) -> list[dict[str, object]]:
        """Its cards, as an inventory describes them."""
        return [
            {"name": card.name, "pci_ids": [card.pci_id], "capability": card.capability, "vram_mib": card.vram_mib}
            for card in self.survey.cards
        ]

    def run(self, command: str, check: bool = True) -> str:
        """Run a shell command as root there and return what it printed.

        Raises:
            RuntimeError: with check, the command failed.
        """
        if self.throwaway:
            return self.throwaway.run(command, check)
        who = f"{self.connection['ssh_user']}@{self.connection['ssh_hostname']}"
        shell = ["sudo", "-n", "sh", "-s"] if self.connection.get("_sudo") else ["sh", "-s"]
        done = subprocess.run(
            ["ssh", "-o", "BatchMode=yes", who, *shell], input=command, capture_output=True, text=True
        )
        if check and done.returncode:
            raise RuntimeError(f"`{command}` failed: {done.stderr.strip()}")
        return done.stdout

    def used_mib(self) -> int:
        """Memory of the first card that is in use, MiB."""
        return int(self.run(USED))

    def is_active(self) -> bool:
        """Whether the instance serves."""
        return self.run(f"systemctl is-active {UNIT}", check=False).strip() == "active"

    def describe(self, **keys: object) -> None:
        """Write what inventory/metal.py reads."""
        RECORD.write_text(json.dumps({**self.connection, "cards": self.cards, **keys}, indent=1) + "\n")


def boot_machine(lab: ThrowawayLab, release: str) -> GpuMachine:
    """Boot a throwaway host with this machine's cards, that reaches nothing beyond it.

    Raises:
        lab.machine_requirements.UnsupportedMachine: this machine has no card, or cannot run a lab.
    """
    (host,) = lab.up([HostSpec("h1", release, gpus=True)])
    host.run("ip route del default")
    return GpuMachine(host.inventory_keys, first_contact.survey_host("metal", host.inventory_keys, sudo=False), host)


def connect_machine(address: str) -> GpuMachine:
    """A real machine.

    Raises:
        roles.first_contact.HostKeyUnavailable: it cannot be looked at.
        ValueError: something is served there that is not ours to touch, or it has no card.
    """
    user, _, name = address.rpartition("@")
    connection: dict[str, object] = {"ssh_hostname": name, "ssh_user": user or "root"}
    if connection["ssh_user"] != "root":
        connection["_sudo"] = True
    machine = GpuMachine(connection, first_contact.survey_host("metal", connection, sudo="_sudo" in connection), None)
    if not machine.survey.cards or not machine.survey.cards[0].capability:
        raise ValueError(f"{address}: no NVIDIA card with a driver that works")
    seen = machine.survey
    others = [f"process {one.pid} ({one.name})" for one in seen.processes if one.is_foreign]
    others += [unit.name for unit in seen.units if not unit.name.startswith(UNIT)]
    others += [f"the rig {seen.record}"] if seen.record not in (None, "metal") else []
    if others:
        raise ValueError(f"{address} is somebody's ({', '.join(others)}): take a machine that nobody uses")
    return machine


def check_here(*words: str, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess[str]:
    """Run checks on this machine itself, with its own cards.

    Args:
        *words: Files of checks, and pytest's options.
        path: PATH of what runs.
    """
    options = ["-p", "tests.gpu.local_plugin", "-c", str(ROOT / "checks/pytest.ini"), "--inventory=here", "-v", *words]
    command = [sys.executable, "-m", "pytest", *options]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | {"PATH": path})


def make_bundle(system: str, folder: Path) -> Path:
    """Everything that a described machine of a system needs from outside, with the model, which has no address."""
    models = folder / "models"
    models.mkdir(parents=True)
    tiny_model.write_model(models / MODEL, size=tiny_model.HEAVY)
    made = folder / "bundle"
    command = [sys.executable, "-m", "cli", "bundle", str(INVENTORY), "--system", system]
    subprocess.run([*command, "--output", str(made), "--from-dir", str(models)], check=True, cwd=ROOT)
    return made


def model_paths(bundle: Path) -> list[Path]:
    """Where a bundle has the model, or should."""
    files = json.loads((bundle / INDEX).read_text())["files"]
    return [bundle / one["path"] for one in files if Path(one["path"]).name == MODEL]


def add_model(bundle: Path) -> None:
    """Write the model into a bundle that has come without it: made anew, it has the same bytes."""
    for path in model_paths(bundle):
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            tiny_model.write_model(path, size=tiny_model.HEAVY)
