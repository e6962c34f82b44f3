"""How an instance is served: its unit, as text."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from rigwright.declaration.rig import Instance, Rig
from rigwright.engines.llama_cpp.command import command
from rigwright.render import render

DIGEST_VARIABLE = "RW_DIGEST"
UNITS = "/etc/systemd/system"
# A file a unit: SHA-256 of what its process was started from. Gone with a reboot.
STARTED_FROM = "/run/rigwright"
# First line of every unit file we write; what lacks it is not ours to remove.
OWNED = "# Written by rigwright; changes here are undone by the next deploy."


@dataclass(frozen=True)
class Slot:
    """What a unit's process is to be, and to hold."""

    unit: str
    digest: str
    """In the process's environment: tells which unit it was started from."""
    started_from: str
    """SHA-256 of unit file and environment file, as the readiness script writes it down."""
    port: int
    cards: frozenset[int]


@dataclass(frozen=True)
class Unit:
    """An instance's unit file and environment file."""

    instance: str
    name: str
    text: str
    environment: str
    digest: str
    port: int
    cards: frozenset[int]

    @property
    def slot(self) -> Slot:
        """What its process is to be."""
        started_from = hashlib.sha256((self.text + self.environment).encode()).hexdigest()
        return Slot(self.name, self.digest, started_from, self.port, self.cards)


def environment(instance: Instance) -> dict[str, str]:
    """The instance's environment: which cards the process may see. An empty list hides them all."""
    return {
        # the driver's own default order is by speed, which is not the order of slots
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(str(index) for index in instance.cards),
    }


def unit(rig: Rig, instance: Instance, engine_folder: str) -> Unit:
    """The instance's unit, with its digest in its environment."""
    text = render(
        "serving/instance.service.j2",
        owned=OWNED,
        rig=rig,
        instance=instance,
        command=command(rig, instance, engine_folder),
        credential=credential_path(rig, instance),
    )
    variables = environment(instance)
    # the weights' hash is in no path when two versions share a name
    weights = "".join(artefact.sha256 for artefact in instance.weights)
    digest = hashlib.sha256(f"{text}{sorted(variables.items())}{weights}".encode()).hexdigest()[:16]
    lines = [f"{name}={value}\n" for name, value in sorted((variables | {DIGEST_VARIABLE: digest}).items())]
    return Unit(instance.name, instance.unit, text, "".join(lines), digest, instance.port, frozenset(instance.cards))


def credential_path(rig: Rig, instance: Instance) -> str:
    """Where an instance's API key lies on the host, readable by root alone."""
    return f"{rig.roots.config}/credentials/{instance.key_name}"
