"""Other instances on the machine of the GPU tests, behind a gateway: how they are declared, asked and looked at."""

import json
import runpy
from collections.abc import Callable, Mapping
from pathlib import Path

import requests

from tests.gpu.gpu_machine import GATEWAY, INVENTORY, LAN, GpuMachine
from tests.hosts.gateway_box import QUESTION

SLACK = 64  # MiB that a card's use may differ by from one time to the next
MEMORY = "timeout 20 nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits"
HOLDERS = "timeout 20 nvidia-smi --query-compute-apps=pid,gpu_bus_id --format=csv,noheader"
BUSES = "timeout 20 nvidia-smi --query-gpu=gpu_bus_id --format=csv,noheader"
DeclareInstances = Callable[[Mapping[str, object], Mapping[str, list[str]]], Path]


def inventory_writer(machine: GpuMachine, folder: Path, catalog: str, **further: object) -> DeclareInstances:
    """The function that writes the machine's inventory with other instances, and the gateway's models, into a folder.

    Args:
        machine: The machine.
        folder: With a catalogue of its own, which is written now.
        catalog: That.
        **further: More keys of the machine's entry.
    """
    (folder / "catalog").mkdir()
    (folder / "catalog/boxes.toml").write_text(catalog)

    def write(instances: Mapping[str, object], models: Mapping[str, list[str]]) -> Path:
        ((name, data),) = runpy.run_path(str(INVENTORY))["rigs"]
        front = {**GATEWAY, "models": {one: {"instances": by} for one, by in models.items()}}
        keys = {**machine.connection, **data["rig"]["entry"], **further, "instances": instances, "gateway": front}
        path = folder / "rig.py"
        path.write_text(f"from rigwright.inventory import hosts\n\nrigs = hosts({{{name!r}: {keys!r}}})\n")
        return path

    return write


def used_card_memory(machine: GpuMachine) -> list[int]:
    """Memory of each card that is in use, MiB."""
    return [int(line) for line in machine.run(MEMORY).split()]


def compute_processes(machine: GpuMachine) -> dict[int, set[str]]:
    """Processes that compute, each with the bus addresses of its cards."""
    found: dict[int, set[str]] = {}
    for line in machine.run(HOLDERS).splitlines():
        pid, bus = line.split(", ")
        found.setdefault(int(pid), set()).add(bus)
    return found


def instance_pid(machine: GpuMachine, instance: str) -> int:
    """The process that serves it."""
    return int(machine.run(f"systemctl show --property=MainPID --value rigwright-{instance}"))


def completions_url(machine: GpuMachine) -> str:
    """Of the gateway's chat completions."""
    return f"http://{machine.connection['ssh_hostname']}:{LAN}/v1/chat/completions"


def ask_gateway(machine: GpuMachine, model: str) -> requests.Response:
    """The gateway's answer to the question."""
    return requests.post(completions_url(machine), json={"model": model, "messages": QUESTION}, timeout=60)


def model_answer(machine: GpuMachine, model: str) -> str:
    """A model's answer to the question, through the gateway."""
    said = ask_gateway(machine, model)
    assert said.ok, said.text
    return str(said.json()["choices"][0]["message"]["content"]).strip()


def served_variants(machine: GpuMachine) -> dict[str, str]:
    """Instance -> its variant, by the manifest of what the machine serves."""
    manifest = json.loads(machine.run("cat /etc/rigwright/current/manifest.json"))
    return {name: one["variant"] for name, one in manifest["instances"].items()}
