"""The container of an instance, and the command that starts it in the unit's own control group."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import cast

from rigwright.containers.tables import REFRESH_UNIT, SPEC
from rigwright.declaration.rig import COMPILED, CONTAINERS, Instance, Rig
from rigwright.engines.container import Container, Mount
from rigwright.engines.image.install import STORE, Unpacked
from rigwright.engines.image.keys import Variant
from rigwright.engines.kind import Expanded, Installation, Service
from rigwright.engines.vllm import command
from rigwright.render import render
from rigwright.supply import images

# Where a container finds what is its own: its /run is empty.
INSIDE = "/run/rigwright"
KEY, OWNER, CALLS = "api-key", "owner", "seccomp.json"
# Said by the program that makes the folder, for the next command of the unit.
OWN_USER = Expanded("--user=${RW_OWNER}")
PODMAN = "/usr/bin/podman"
# podman's filter of system calls, of which a container gets less (calls.py).
PROFILE = "/usr/share/containers/seccomp.json"
NARROW = Path(__file__).with_name("calls.py").read_text()
# What podman reads of containers in place of the host's own settings, which could add mounts, devices, variables, and
# programs that root runs for each container; where it is told nothing of these, it looks in the host's folders.
SETTINGS = """[engine]
cdi_spec_dirs = ["/run/cdi"]
events_logger = "none"
hooks_dir = ["/usr/share/empty"]
lock_type = "file"
runtime = "crun"
"""
# In place of those of the host's storage; where it is, each container's command line says.
STORAGE = f"""[storage]
driver = "overlay"
graphroot = "{CONTAINERS}/graph"
runroot = "{CONTAINERS}/run"
"""
TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 # a container's
# vLLM's images have their Python in PATH.
PYTHON = "python3"


def _named(name: str, text: str, ending: str = "") -> str:
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}{ending}"


def container(rig: Rig, instance: Instance, made: Installation) -> Container:
    """What an instance runs in.

    Args:
        rig: Its rig.
        instance: The instance.
        made: Its image's installation.
    """
    folder = f"{CONTAINERS}/{instance.name}"
    launcher, key = f"{INSIDE}/{command.PROGRAM}", f"{INSIDE}/{KEY}"
    models = dict.fromkeys(f"{rig.roots.models}/{one.weight_folder}" for one in instance.weights)
    sockets = str(PurePosixPath(instance.socket).parent)
    manifest, variables = images.manifest(made.artefacts), command.environment(rig, instance, {})
    # CDI gives it its own cards alone, and they are counted anew inside
    cards = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(len(instance.cards))))}
    return Container(
        name=f"rigwright-{instance.name}",
        image=images.configuration(made.artefacts).sha256,
        store=f"{rig.installed(made.folder)}/{STORE}",
        reference=f"{_place(manifest.sources[0], rig.mirrors)}@sha256:{manifest.sha256}",
        command=command.command(rig, instance, PYTHON, launcher, key),
        environment={**variables, **cards},
        mounts=(
            Mount(sockets, sockets, writable=True),
            Mount(f"{folder}/{KEY}", key),
            Mount(rig.program(command.PROGRAM), launcher),
            Mount(command.cache(rig, instance, made), COMPILED, writable=True),
            *(Mount(path, path) for path in models),
            *(Mount(*one) for one in cast(Unpacked, made).changed(rig.installed(made.folder)).items()),
        ),
        devices=tuple(f"nvidia.com/gpu={index}" for index in instance.cards),
        shared_memory=cast(Variant, instance.variant).shm_size,
        spec=SPEC if instance.cards else "",
        folder=folder,
        program=rig.program(_named("container", _program(), ".sh")),
    )


def _place(source: str, mirrors: Mapping[str, tuple[str, ...]]) -> str:
    """A repository as docker and podman write it: by its own address, and by a mirror's where it has none."""
    (base, repository), *_ = (
        images.places(source, {}) or images.places(source, mirrors) or [("", source.replace(":", "/", 1))]
    )
    host = base.partition("://")[2]
    return f"{'docker.io' if host == 'registry-1.docker.io' else host}/{repository}".lstrip("/")


def _program() -> str:
    return render("image/container.sh.j2", key=KEY, owner=OWNER, calls=CALLS, profile=PROFILE, narrow=NARROW)


def podman(made: Container) -> tuple[str, ...]:
    """The command that starts a container and leaves it to the unit, one word an item."""
    words = [
        PODMAN,
        f"--root={made.folder}/graph",
        f"--runroot={made.folder}/run",
        f"--tmpdir={made.folder}/tmp",  # noqa: S108 # below a folder of root's
        # its settings have no word for this one
        "--default-mounts-file=/dev/null",
        "--storage-driver=overlay",
        f"--storage-opt=overlay.imagestore={made.store}",
        "--storage-opt=overlay.skip_mount_home=true",
        f"--runtime-flag=root={made.folder}/runtime",
        "run",
        "--detach",
        "--pull=never",
        f"--name={made.name}",
        # in the unit's own control group, where its limits hold and nothing outlives it
        "--cgroups=split",
        "--sdnotify=conmon",
        # what it writes is the unit's own output
        "--log-driver=passthrough",
        "--network=none",
        "--ipc=private",
        "--read-only",
        # by itself podman gives them the modes of the image's folders, of which all are root's alone to write to
        *(f"--tmpfs={path}:rw,nosuid,nodev,mode=1777,notmpcopyup" for path in TEMPORARY),
        "--cap-drop=all",
        "--security-opt=no-new-privileges",
        f"--security-opt=seccomp={made.folder}/{CALLS}",
        OWN_USER,
        "--umask=0007",
        # those of the unit
        "--ulimit=host",
        "--pids-limit=0",
        f"--shm-size={made.shared_memory.lower()}",
        # nothing of the image's own, and nothing of the host's
        "--image-volume=ignore",
        "--no-healthcheck",
        "--no-hosts",
        "--http-proxy=false",
        "--systemd=false",
        f"--entrypoint={made.command[0]}",
    ]
    words += [f"--volume={one.source}:{one.target}:{'rw' if one.writable else 'ro'}" for one in made.mounts]
    words += [f"--device={name}" for name in made.devices]
    words += [f"--env={name}={value}" for name, value in sorted(made.environment.items())]
    return (*words, made.image, *made.command[1:])


def service(rig: Rig, instance: Instance, made: Installation) -> Service:
    """How an instance is run."""
    one = container(rig, instance, made)
    settings, storage = _named("containers", SETTINGS, ".conf"), _named("storage", STORAGE, ".conf")
    own = {"CONTAINERS_CONF": rig.program(settings), "CONTAINERS_STORAGE_CONF": rig.program(storage)}
    served = command.served(rig, instance, made, podman(one), own)
    programs = {**served.programs, settings: SETTINGS, storage: STORAGE, PurePosixPath(one.program).name: _program()}
    after = (REFRESH_UNIT,) if one.devices else ()
    return replace(served, programs=programs, container=one, after=after)
