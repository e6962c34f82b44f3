"""A rig that serves a model of a hub: a repository in the lab, and the catalogue, lock and inventory for it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.file_server import MODEL
from lab.hosts import LabHost
from lab.throwaway_lab import ThrowawayLab
from tests.hosts.support import PORT, write_inventory
from tests.stand_ins.hub import StandInHub

REPOSITORY = "lab/tiny-GGUF"
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
CHAT = {"chat": {"variant": "llamacpp/hub", "port": PORT}}
CATALOG = f"""
[inputs.tiny]
kind = "weight"
repository = "{REPOSITORY}"
include = ["*.gguf", "*.jinja"]

[models.tiny]
file = "tiny:tiny.gguf"
draft = "tiny:draft/tiny.gguf"
chat_template = "tiny"

[variants."llamacpp/hub"]
engine = "llama.cpp"
model = "tiny"
context = 4096
parallel = 4

[variants."llamacpp/hub".flags]
threads = "2"
metrics = true
spec-type = "draft-simple"
"""


@dataclass
class HubModels:
    """A hub with one repository, and rigs that serve what is in it."""

    lab: ThrowawayLab
    hub: StandInHub
    folder: Path
    files: dict[str, bytes] = field(default_factory=dict)
    """The files of it that a rig needs, by path."""

    def publish(self, template: str = TEMPLATE, **options: Any) -> str:
        """Make a commit of the repository."""
        model = (self.lab.shelf_folder / MODEL).read_bytes()
        self.files = {"tiny.gguf": model, "draft/tiny.gguf": model, "chat.jinja": template.encode()}
        others = {"README.md": b"# A model\n", "other-q8.safetensors": b"\0" * 100_000}
        return self.hub.add_commit(REPOSITORY, {**self.files, **others}, licence="mit", **options)

    def write_hub_inventory(self, host: LabHost, name: str = "box", **rig: Any) -> Path:
        """The inventory of a host that serves the model, with its catalogue beside it."""
        folder = self.folder / name
        (folder / "catalog").mkdir(parents=True, exist_ok=True)
        (folder / "catalog" / "mine.toml").write_text(CATALOG)
        mirrors = {"shelf": [self.lab.shelf_url], "hub": [self.hub.url]}
        # its second server is in the lab's network, as all of it
        declared = {"instances": CHAT, "mirrors": mirrors, "redirects": [self.hub.cdn_url]}
        return write_inventory(folder, self.lab, host, **{**declared, **rig})

    @property
    def fetched_files(self) -> list[str]:
        """The files that were asked for, in order, as often as they were; bytes may come from another address."""
        marks = {f"/resolve/{commit}/": commit for one in self.hub.repositories.values() for commit in one.commits}
        return [
            asked.path.partition("?")[0].partition(mark)[2]
            for asked in self.hub.asked
            for mark in marks
            if mark in asked.path
        ]


def run_rigwright(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    command = [sys.executable, "-m", "cli", *words]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)


def run_lock(inventory: Path, *options: str, **environment: str) -> str:
    """Lock the inputs of the inventory's rigs; returns the output."""
    done = run_rigwright("lock", str(inventory), *options, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def serve_models(lab: ThrowawayLab, folder: Path, certificate: Path | None = None) -> Iterator[HubModels]:
    """A hub that the lab's hosts reach, until the block ends; with a certificate it speaks TLS."""
    with StandInHub(lab.gateway, certificate=certificate) as hub:
        yield HubModels(lab, hub, folder)
