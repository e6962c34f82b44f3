"""An instance's container as a file for Docker's and podman's compose, for who goes on without Rigwright.

What the host's own programs would have made is left to who runs it: the numbers of its user, and the file with its key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from rigwright.declaration.rig import Instance
from rigwright.engines.container import Container
from rigwright.engines.image.run import KEY, PYTHON
from rigwright.engines.image.start import TEMPORARY
from rigwright.engines.kind import Service

# What the environment of compose has to say.
USER = "${RW_USER:?the numeric user and group to run as, such as 990:990}"
MEMORY = "${RW_MEMORY:?the memory limit, such as 56g}"
# The file, and what lies beside it: the socket is in one of the folders.
COMPOSE, SOCKETS, CACHE = "compose.yaml", "run", "cache"
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def compose(instance: Instance, service: Service, container: Container) -> dict[str, str]:
    """The file, in YAML, and the programs that lie beside it: name -> text.

    Compose would write what the file itself has of them into the container, whose root is read-only.

    Args:
        instance: The instance.
        service: How it is run.
        container: What it runs in.
    """
    targets = {PurePosixPath(one.target).name for one in container.mounts}
    programs = {name: text for name, text in service.programs.items() if name in targets}
    memory = MEMORY if instance.memory_max.endswith("%") else instance.memory_max.lower()
    own: dict[str, object] = {
        "image": container.reference,
        "container_name": container.name,
        "entrypoint": [PYTHON],
        "command": [_literal(word) for word in container.command[1:]],
        "environment": {name: _literal(value) for name, value in sorted(container.environment.items())},
        "user": USER,
        "network_mode": "none",
        "ipc": "private",
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "shm_size": container.shared_memory.lower(),
        "mem_limit": memory,
        "pids_limit": instance.tasks_max,
        "ulimits": {"memlock": -1, "nofile": 65536},
        # podman's may be executed from by themselves
        "tmpfs": ["/run:exec,mode=755", *(f"{path}:exec" for path in TEMPORARY)],
        "volumes": [*_volumes(container, {*programs, KEY})],
        "devices": [*container.devices],
        "healthcheck": {"disable": True},
        "stop_grace_period": "30s",
        "restart": "always",
    }
    document = {
        "name": container.name,
        "services": {instance.name: {key: value for key, value in own.items() if value not in ([], {})}},
    }
    beside = f"{KEY}, with its key, and the folders {SOCKETS} and {CACHE}, all owned by its user"
    head = (
        f"# {instance.name}: {instance.variant_name}. It listens on {SOCKETS}/api.sock alone, for its own user.\n"
        f"# Beside this file: {', '.join(programs)}; {beside}.\n"
    )
    return {COMPOSE: head + "\n".join(_lines(document)) + "\n", **programs}


def _volumes(container: Container, beside: set[str]) -> Iterator[dict[str, object]]:
    own = iter((SOCKETS, CACHE))
    for one in container.mounts:
        name = PurePosixPath(one.target).name
        source = f"./{next(own)}" if one.writable else f"./{name}" if name in beside else one.source
        made: dict[str, object] = {"type": "bind", "source": source, "target": one.target}
        yield made | {"read_only": not one.writable, "bind": {"create_host_path": False}}


def _literal(text: str) -> str:
    """A value in which compose is not to put variables."""
    return text.replace("$", "$$")


def _lines(value: object, depth: int = 0) -> Iterator[str]:
    """A document's lines."""
    pad = "  " * depth
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _entry(f"{pad}{key if _PLAIN.fullmatch(key) else json.dumps(key)}:", one, depth)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for one in value:
            first, *rest = [*_lines(one, depth + 1)] if isinstance(one, Mapping) else [f"{pad}  {_scalar(one)}"]
            yield f"{pad}- {first.lstrip()}"
            yield from rest


def _entry(head: str, value: object, depth: int) -> Iterator[str]:
    if isinstance(value, (Mapping, list)):
        yield head
        yield from _lines(value, depth + 1)
    else:
        yield f"{head} {_scalar(value)}"


def _scalar(value: object) -> str:
    """As JSON has it, but for characters that take two escapes there and one in YAML (YAML 1.2, 5.7)."""
    if not isinstance(value, str):
        return json.dumps(value)
    escaped = (json.dumps(one)[1:-1] if ord(one) < 0x10000 else f"\\U{ord(one):08X}" for one in value)
    return f'"{"".join(escaped)}"'
