"""An instance's container as a file for Docker's and podman's compose, to be run without Rigwright.

The engine has no network, as in its unit: a second container of the same image carries the instance's port to its
socket. A third one, run once, patches copies of the image's files, which are mounted over them. The operator adds what
the host's programs make of a unit: the numbers of the user, and the file with the key.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from rigwright.engines.container_spec import ContainerSpec
from rigwright.engines.engine_interface import ServiceSpec
from rigwright.engines.image.container_command import INSIDE, KEY, PYTHON
from rigwright.engines.image.install import CHANGED, ORIGINALS, UnpackedImage, render_patch_plan
from rigwright.engines.image.originals import ROOT
from rigwright.engines.image.runtime_selection import TEMPORARY
from rigwright.model.instance import Instance
from rigwright.patches.patch import APPLY_PROGRAM_TEXT

# The environment of compose.
USER = "${RW_USER:?the numeric user and group to run as, such as 990:990}"
MEMORY = "${RW_MEMORY:?the memory limit, such as 56g}"
# The address at which the port is published: that of units unless the environment has another.
ADDRESS = "${RW_ADDRESS:-127.0.0.1}"
# The file, and what lies beside it: folders of the socket and the cache, and programs.
COMPOSE, SOCKETS, CACHE = "compose.yaml", "run", "cache"
PORT_PROGRAM, ORIGINALS_PROGRAM, APPLY_PROGRAM, PATCH_PLAN = "port.py", "originals.py", "apply.py", "patches.json"
PORT_TEXT = Path(__file__).with_name("compose_port.py").read_text()
# Memory and processes of a program that copies bytes, or a few files.
SMALL = {"mem_limit": "256m", "pids_limit": 64}
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def render_compose(
    instance: Instance, service: ServiceSpec, container: ContainerSpec, made: UnpackedImage
) -> dict[str, str]:
    """The file, in YAML, and the programs that lie beside it: name -> text.

    Compose would write what the file itself has of them into the container, whose root is read-only.

    Args:
        instance: The instance.
        service: How it is run.
        container: Its container.
        made: Its image, and the patches that are mounted over files of it.
    """
    targets = {PurePosixPath(one.target).name for one in container.mounts}
    programs = {name: text for name, text in service.programs.items() if name in targets}
    memory = MEMORY if instance.memory_max.endswith("%") else instance.memory_max.lower()
    contained = {
        "image": container.reference,
        "entrypoint": [PYTHON],
        "user": USER,
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "healthcheck": {"disable": True},
    }
    engine: dict[str, object] = {
        **contained,
        "container_name": container.name,
        "command": [_escape_variables(word) for word in container.command[1:]],
        "environment": {name: _escape_variables(value) for name, value in sorted(container.environment.items())},
        "network_mode": "none",
        "ipc": "private",
        "shm_size": container.shared_memory.lower(),
        "mem_limit": memory,
        "pids_limit": instance.tasks_max,
        "ulimits": {"memlock": -1, "nofile": 65536},
        # podman's may be executed from by themselves
        "tmpfs": ["/run:exec,mode=755", *(f"{path}:exec" for path in TEMPORARY)],
        "volumes": [*_volumes(container, {*programs, KEY}, made)],
        "devices": [*container.devices],
        "stop_grace_period": "30s",
        "restart": "always",
    }
    port = contained | SMALL | _port_service(instance)
    services: dict[str, dict[str, object]] = {instance.name: engine, f"{instance.name}-port": port}
    programs[PORT_PROGRAM] = PORT_TEXT
    folders = (SOCKETS, CACHE, *((CHANGED,) if made.patches else ()))
    head = [
        f"# {instance.name}: {instance.variant_name}, at port {instance.port} of RW_ADDRESS, by default 127.0.0.1.",
        f"# Beside this file: {KEY}, with its key, and the folders {', '.join(folders)}, all owned by its user.",
    ]
    if made.patches:
        patch = f"{instance.name}-patch"
        head.append(f"# Once, before it starts, to fill {CHANGED}: docker compose run --rm {patch}")
        services[patch] = contained | SMALL | _patch_service(made)
        programs |= {
            ORIGINALS_PROGRAM: ORIGINALS,
            APPLY_PROGRAM: APPLY_PROGRAM_TEXT,
            PATCH_PLAN: render_patch_plan(made),
        }
    document = {
        "name": container.name,
        "services": {
            name: {key: value for key, value in one.items() if value not in ([], {})} for name, one in services.items()
        },
    }
    return {COMPOSE: "\n".join([*head, *_render_lines(document), ""]), **programs}


def _port_service(instance: Instance) -> dict[str, object]:
    """The service that carries the instance's port to its socket."""
    program = f"{INSIDE}/{PORT_PROGRAM}"
    sockets = str(PurePosixPath(instance.socket).parent)
    published = {"target": instance.port, "published": str(instance.port), "host_ip": ADDRESS, "protocol": "tcp"}
    return {
        "command": ["-I", program, str(instance.port), instance.socket],
        "ports": [published],
        "volumes": [_bind(f"./{SOCKETS}", sockets), _bind(f"./{PORT_PROGRAM}", program)],
        "restart": "always",
    }


def _patch_service(made: UnpackedImage) -> dict[str, object]:
    """The service that patches copies of the image's files, as an installation does on a host."""
    into, plan = f"{INSIDE}/{CHANGED}", f"{INSIDE}/{PATCH_PLAN}"
    python = (PYTHON, "-I", "-B")
    take = (*python, f"{INSIDE}/{ORIGINALS_PROGRAM}", ROOT, "-", made.site, plan, into, "/dev/null")
    apply = (*python, f"{INSIDE}/{APPLY_PROGRAM}", plan, into)
    return {
        "profiles": ["patch"],
        "entrypoint": ["sh", "-c"],
        "command": [_escape_variables(f"{shlex.join(take)} && exec {shlex.join(apply)}")],
        "network_mode": "none",
        "volumes": [
            _bind(f"./{CHANGED}", into, writable=True),
            *(_bind(f"./{name}", f"{INSIDE}/{name}") for name in (ORIGINALS_PROGRAM, APPLY_PROGRAM, PATCH_PLAN)),
        ],
        "restart": "no",
    }


def _volumes(container: ContainerSpec, beside: set[str], made: UnpackedImage) -> Iterator[dict[str, object]]:
    own = iter((SOCKETS, CACHE))
    patched = {target: source for source, target in made.patched_files(".").items()}
    for one in container.mounts:
        name = PurePosixPath(one.target).name
        source = f"./{next(own)}" if one.writable else f"./{name}" if name in beside else one.source
        source = patched.get(one.target, source)
        yield _bind(source, one.target, writable=one.writable)


def _bind(source: str, target: str, *, writable: bool = False) -> dict[str, object]:
    """A file or folder that must be there: compose makes none in its place."""
    made: dict[str, object] = {"type": "bind", "source": source, "target": target}
    return made | {"read_only": not writable, "bind": {"create_host_path": False}}


def _escape_variables(text: str) -> str:
    """A value in which compose is not to put variables."""
    return text.replace("$", "$$")


def _render_lines(value: object, depth: int = 0) -> Iterator[str]:
    """A document's lines."""
    pad = "  " * depth
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _render_entry(f"{pad}{key if _PLAIN.fullmatch(key) else json.dumps(key)}:", one, depth)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for one in value:
            first, *rest = (
                [*_render_lines(one, depth + 1)] if isinstance(one, Mapping) else [f"{pad}  {_render_scalar(one)}"]
            )
            yield f"{pad}- {first.lstrip()}"
            yield from rest


def _render_entry(head: str, value: object, depth: int) -> Iterator[str]:
    if isinstance(value, (Mapping, list)):
        yield head
        yield from _render_lines(value, depth + 1)
    else:
        yield f"{head} {_render_scalar(value)}"


def _render_scalar(value: object) -> str:
    """As JSON has it, but for characters that take two escapes there and one in YAML (YAML 1.2, 5.7)."""
    if not isinstance(value, str):
        return json.dumps(value)
    escaped = (json.dumps(one)[1:-1] if ord(one) < 0x10000 else f"\\U{ord(one):08X}" for one in value)
    return f'"{"".join(escaped)}"'
