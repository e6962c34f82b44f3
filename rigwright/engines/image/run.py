"""The container of an instance, and the command that starts it in the unit's own control group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import cast

from rigwright.engines.container import Container, Mount
from rigwright.engines.image import crun, podman
from rigwright.engines.image.install import STORE, Unpacked
from rigwright.engines.image.keys import Variant
from rigwright.engines.image.start import CALLS, OWNER, named
from rigwright.engines.kind import Service
from rigwright.engines.vllm import command
from rigwright.model.containers.tables import REFRESH_UNIT, SPEC
from rigwright.model.installation import Installation
from rigwright.model.rig import COMPILED, CONTAINERS, Instance, Rig
from rigwright.render import render
from rigwright.supply import images
from rigwright.system_calls import FORBIDDEN

# Where a container finds what is its own: its /run is empty.
INSIDE = "/run/rigwright"
KEY = "api-key"
# podman's filter of system calls, of which a container gets less (calls.py).
PROFILE = "/usr/share/containers/seccomp.json"
NARROW = Path(__file__).with_name("calls.py").read_text()
# vLLM's images have their Python in PATH.
PYTHON = "python3"


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
            *(Mount(*one) for one in cast("Unpacked", made).changed(rig.installed(made.folder)).items()),
        ),
        devices=tuple(f"nvidia.com/gpu={index}" for index in instance.cards),
        shared_memory=cast("Variant", instance.variant).shm_size,
        spec=SPEC if instance.cards else "",
        folder=folder,
        program=rig.program(named("container", ".sh", _program())),
        by=cast("Unpacked", made).by,
    )


def _place(source: str, mirrors: Mapping[str, tuple[str, ...]]) -> str:
    """A repository as docker and podman write it: by its own address, and by a mirror's where it has none."""
    (base, repository), *_ = (
        images.places(source, {}) or images.places(source, mirrors) or [("", source.replace(":", "/", 1))]
    )
    host = base.partition("://")[2]
    return f"{'docker.io' if host == 'registry-1.docker.io' else host}/{repository}".lstrip("/")


def _program() -> str:
    values: dict[str, object] = {"calls": CALLS, "profile": PROFILE, "narrow": NARROW, "forbidden": FORBIDDEN}
    return render("image/container.sh.j2", key=KEY, owner=OWNER, **values)


def service(rig: Rig, instance: Instance, made: Installation) -> Service:
    """How an instance is run."""
    one = container(rig, instance, made)
    start = {"podman": podman, "crun": crun}[one.by].start(rig, one)
    served = command.served(rig, instance, made, start.words, start.environment)
    programs = {**served.programs, **start.programs, PurePosixPath(one.program).name: _program()}
    after = (REFRESH_UNIT,) if one.devices else ()
    return replace(served, programs=programs, container=replace(one, before=start.before), after=after)
