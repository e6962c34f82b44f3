"""How an instance is served: its unit, as text."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from rigwright.command import command
from rigwright.render import render
from rigwright.rig import Instance, Rig

DIGEST_VARIABLE = "RW_DIGEST"
UNITS = "/etc/systemd/system"
# A file a unit: inode and change time of the unit file that its process was started from. Gone with a reboot.
STARTED_FROM = "/run/rigwright"
# First line of every unit file we write; what lacks it is not ours to remove.
OWNED = "# Written by rigwright; changes here are undone by the next deploy."


@dataclass(frozen=True)
class Unit:
    """An instance's unit file."""

    name: str
    text: str
    digest: str
    """Also in the text, as an environment variable: the running process tells which unit it was started from."""


def environment(instance: Instance) -> dict[str, str]:
    """The unit's environment: which cards the process may see. An empty list hides them all."""
    return {
        # the driver's own default order is by speed, which is not the order of slots
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(str(index) for index in instance.cards),
    }


def unit(rig: Rig, instance: Instance, engine_folder: str) -> Unit:
    """The instance's unit, with its digest inside."""

    def text(digest: str) -> str:
        return render(
            "serving/instance.service.j2",
            owned=OWNED,
            rig=rig,
            instance=instance,
            command=command(rig, instance, engine_folder),
            environment=environment(instance) | {DIGEST_VARIABLE: digest},
            credential=credential_path(rig, instance.name),
        )

    # the weights' hash is in no path when two versions share a name
    weights = "".join(artefact.sha256 for artefact in instance.weights)
    digest = hashlib.sha256((text("") + weights).encode()).hexdigest()[:16]
    return Unit(instance.unit, text(digest), digest)


def credential_path(rig: Rig, instance_name: str) -> str:
    """Where an instance's API key lies on the host, readable by root alone."""
    return f"{rig.roots.config}/credentials/{instance_name}.api-key"


def ready_script() -> str:
    """What every instance's unit runs after its start."""
    return render("serving/ready.j2", started_from=STARTED_FROM, units=UNITS)


def shared_units() -> dict[str, str]:
    """Units that all instances share: path -> text."""
    return {
        f"{UNITS}/{name}": render(f"serving/{name}.j2", owned=OWNED) for name in ("rigwright.target", "rigwright.slice")
    }
