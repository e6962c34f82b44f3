"""Role serving: one hardened unit an instance, its API key as a credential; what is no longer declared goes."""

from __future__ import annotations

from pyinfra.api import deploy

from rigwright import keys
from rigwright.llama_cpp import Build
from rigwright.rig import Rig
from rigwright.serving import UNITS, credential_path, ready_script, shared_units, unit
from roles.operations.files import Text, texts
from roles.operations.instances import Held, credential, removed, room, running


@deploy("Serving")
def serving(rig: Rig, builds: dict[str, Build]) -> None:
    """Bring units, keys and running processes to their state."""
    units = [unit(rig, instance, builds[instance.engine_name].folder) for instance in rig.instances]
    ready = f"{rig.roots.software}/libexec/ready"
    removed(
        name="Remove instances that are not declared",
        declared=[instance.name for instance in rig.instances],
        credentials=f"{rig.roots.config}/credentials",
    )
    for instance in rig.instances:
        credential(
            name=f"API key of {instance.name}",
            path=credential_path(rig, instance.name),
            key=keys.read(instance.api_key_file) if instance.api_key_file else None,
        )
    texts(
        name="Units",
        files=[
            Text(ready, ready_script(), mode="755"),
            *(Text(path, text) for path, text in shared_units().items()),
            *(Text(f"{UNITS}/{one.name}", one.text) for one in units),
        ],
    )
    room(
        name="Make room",
        declared={i.unit: Held(i.port, frozenset(i.cards)) for i in rig.instances},
    )
    for instance, wanted in zip(rig.instances, units, strict=True):
        running(
            name=f"Serve {instance.name}",
            unit=wanted.name,
            digest=wanted.digest,
            credential=credential_path(rig, instance.name),
            timeout=instance.variant.ready_timeout,
        )
