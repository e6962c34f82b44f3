"""The shipped inventories, and one with the features that they lack, on hosts without any file of Rigwright."""

from __future__ import annotations

import json
import runpy
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from lab import throwaway_lab
from rigwright.containers.container_facts import ContainerFacts
from rigwright.gateway.secrets_distribution import GatewaySecretFacts
from rigwright.host.pci_cards import PciCard
from rigwright.inventory import load_rig
from rigwright.model.rig import Rig
from rigwright.nvidia.cards.card_facts import ForeignProcesses
from rigwright.project_root import ROOT
from rigwright.serving.serving_state import ObservedServing
from rigwright.supply.lock import Artefact, render_lock
from tests.unit import shipped_inventories
from tests.unit.container_samples import FOUR
from tests.unit.driver_samples import driverless_host
from tests.unit.samples import KEY_TEXT, archive_key, sample_artefact, sample_facts

FOLDER = Path(__file__).with_name("data") / "golden"
INVENTORIES = ("rig3090", "rig5090solo", "rig2080ti", "rig5090", "rig5090two", "fleet", "demo", "metal", "everything")
EVERYTHING = FOLDER / "everything.py"
"""An inventory with keys, TLS, monitoring, containers and an image, which no shipped one declares."""
MACHINE = {"ssh_hostname": "192.0.2.9", "cards": ["rtx-3090"], "mirrors": {"shelf": ["http://192.0.2.1:8000"]}}
METAL = sample_artefact(name="metal-rig", version="1", file="metal-rig.gguf", sources=["shelf:metal-rig.gguf"])
LAB = SimpleNamespace(
    exists=True,
    shelf_url="http://10.87.0.1:8000",
    hosts=[SimpleNamespace(name="demo-1", inventory_keys={"ssh_hostname": "10.87.0.2", "ssh_user": "root"})],
)
TOOLKIT = """
[inputs.container-toolkit]
kind = "deb"
version = "1.20.0"
sources = ["container-toolkit:stable/deb/amd64"]
"""
MISSING = ("curl", "python3-venv", "cmake", "g++", "ninja-build", "nginx")


class EmptyHost:
    """Stands in for `checks.connections.ConnectedHost`: a blank host with the cards that its rig declares."""

    def __init__(self, name: str, rig: Rig) -> None:
        self.name, self.rig = name, rig
        self.pci_ids = tuple(card.pci_ids[0] for card in rig.cards)

    def __getattr__(self, look: str) -> Any:
        return lambda: LOOKS[look](self)

    def prefetch(self, *looks: str) -> EmptyHost:
        return self


LOOKS: Mapping[str, Any] = {
    "read_facts": lambda box: sample_facts(
        os_id="ubuntu",
        os_version="24.04",
        kernel="6.8.0-40-generic",
        systemd=255,
        glibc="2.39",
        cuda_version="",
        missing_packages=MISSING,
        addresses=frozenset({"127.0.0.1", "192.0.2.7"}),
        self_check="",
        pci_cards=tuple(PciCard(f"0000:{slot:02x}:00.0", pci_id) for slot, pci_id in enumerate(box.pci_ids, 1)),
    ),
    "read_serving_state": lambda box: ObservedServing(),
    "read_driver_facts": lambda box: driverless_host("ubuntu-24.04", *box.pci_ids),
    "read_card_holders": lambda box: ForeignProcesses(),
    "read_container_facts": lambda box: ContainerFacts("ubuntu", "24.04"),
    "read_gateway_secrets": lambda box: GatewaySecretFacts(),
}


def toolkit() -> list[Artefact]:
    """A locked container toolkit: its archive's key and its packages."""
    own = {"kind": "deb", "version": "1.20.0-1", "group": "container-toolkit"}
    files = {name: f"{name}_1.20.0-1_amd64.deb" for name in FOUR}
    key = archive_key(group="container-toolkit", file="toolkit.asc")
    sources = {name: [f"container-toolkit:stable/deb/amd64/{file}"] for name, file in files.items()}
    return [key, *(sample_artefact(name=name, file=file, sources=sources[name], **own) for name, file in files.items())]


def rigs(name: str, folder: Path) -> dict[str, Rig]:
    """The rigs of an inventory by name, with all that it needs beside it."""
    if name not in ("everything", "demo", "metal"):
        return shipped_inventories.load_rigs(name, folder)
    shutil.copy(EVERYTHING if name == "everything" else ROOT / "inventory" / f"{name}.py", folder)
    (folder / "metal.json").write_text(json.dumps(MACHINE))
    (folder / "catalog").mkdir()
    (folder / "catalog" / "mine.toml").write_text(TOOLKIT)
    (folder / "locks").mkdir()
    (folder / "locks" / "toolkit.asc").write_text(KEY_TEXT)
    (folder / "locks" / "mine.lock.toml").write_text(
        render_lock([*shipped_inventories.locked_rows(), METAL, *toolkit()], "mine.toml")
    )
    with patch.object(throwaway_lab, "ThrowawayLab", lambda _: LAB):
        group: Any = runpy.run_path(str(folder / f"{name}.py"))["rigs"]
    return {host_name: load_rig(data["rig"]) for host_name, data in group}
