"""The container of an instance, and the command that starts it in the unit's own control group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import cast

from rigwright.engines.container_spec import BindMount, ContainerSpec
from rigwright.engines.image import crun, podman
from rigwright.engines.image.install import STORE, UnpackedImage
from rigwright.engines.image.keys import VllmVariant
from rigwright.engines.image.runtime import CALLS, OWNER, content_named
from rigwright.engines.kind import ServiceSpec
from rigwright.engines.vllm import command
from rigwright.model.catalog import Card
from rigwright.model.containers.archive_tables import CDI_SPEC, REFRESH_UNIT
from rigwright.model.entry import DriverEntry
from rigwright.model.installation import Installation
from rigwright.model.instance import COMPILED, CONTAINER_RUNTIME_FOLDER, Instance
from rigwright.model.network import DownloadNetwork
from rigwright.model.roots import Roots
from rigwright.render import render
from rigwright.supply import image_manifest
from rigwright.system_calls import FORBIDDEN

# Where a container finds what is its own: its /run is empty.
INSIDE = "/run/rigwright"
KEY = "api-key"
# podman's filter of system calls, of which a container gets less (calls.py).
PROFILE = "/usr/share/containers/seccomp.json"
NARROW = Path(__file__).with_name("calls.py").read_text()
# vLLM's images have their Python in PATH.
PYTHON = "python3"


def build_container(
    roots: Roots,
    declared_cards: tuple[Card, ...],
    driver_entry: DriverEntry,
    network: DownloadNetwork,
    instance: Instance,
    made: Installation,
) -> ContainerSpec:
    """What an instance runs in.

    Args:
        roots: Directories on the host.
        declared_cards: The declared cards by GPU index.
        driver_entry: The declared driver.
        network: Where and how the host downloads.
        instance: The instance.
        made: Its image's installation.
    """
    folder = f"{CONTAINER_RUNTIME_FOLDER}/{instance.name}"
    launcher, key = f"{INSIDE}/{command.PROGRAM}", f"{INSIDE}/{KEY}"
    models = dict.fromkeys(f"{roots.models}/{one.weight_folder}" for one in instance.weights)
    sockets = str(PurePosixPath(instance.socket).parent)
    manifest, variables = (
        image_manifest.manifest_row(made.artefacts),
        command.service_variables(declared_cards, driver_entry, instance, {}),
    )
    # CDI gives it its own cards alone, and they are counted anew inside
    cards = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(len(instance.cards))))}
    return ContainerSpec(
        name=f"rigwright-{instance.name}",
        image=image_manifest.configuration_row(made.artefacts).sha256,
        store=f"{roots.installation_path(made.folder)}/{STORE}",
        reference=f"{_repository_address(manifest.sources[0], network.mirrors)}@sha256:{manifest.sha256}",
        command=command.server_command(roots, instance, PYTHON, launcher, key),
        environment={**variables, **cards},
        mounts=(
            BindMount(sockets, sockets, writable=True),
            BindMount(f"{folder}/{KEY}", key),
            BindMount(roots.program_path(command.PROGRAM), launcher),
            BindMount(command.compile_cache_folder(declared_cards, instance, made), COMPILED, writable=True),
            *(BindMount(path, path) for path in models),
            *(
                BindMount(*one)
                for one in cast("UnpackedImage", made).patched_files(roots.installation_path(made.folder)).items()
            ),
        ),
        devices=tuple(f"nvidia.com/gpu={index}" for index in instance.cards),
        shared_memory=cast("VllmVariant", instance.variant).shm_size,
        spec=CDI_SPEC if instance.cards else "",
        folder=folder,
        program=roots.program_path(content_named("container", ".sh", _render_program())),
        by=cast("UnpackedImage", made).by,
    )


def _repository_address(source: str, mirrors: Mapping[str, tuple[str, ...]]) -> str:
    """A repository as docker and podman write it: by its own address, and by a mirror's where it has none."""
    (base, repository), *_ = (
        image_manifest.repository_places(source, {})
        or image_manifest.repository_places(source, mirrors)
        or [("", source.replace(":", "/", 1))]
    )
    host = base.partition("://")[2]
    return f"{'docker.io' if host == 'registry-1.docker.io' else host}/{repository}".lstrip("/")


def _render_program() -> str:
    values: dict[str, object] = {"calls": CALLS, "profile": PROFILE, "narrow": NARROW, "forbidden": FORBIDDEN}
    return render("image/container.sh.j2", key=KEY, owner=OWNER, **values)


def image_service(
    roots: Roots,
    cards: tuple[Card, ...],
    driver_entry: DriverEntry,
    network: DownloadNetwork,
    instance: Instance,
    made: Installation,
) -> ServiceSpec:
    """How an instance is run."""
    one = build_container(roots, cards, driver_entry, network, instance, made)
    start = podman.podman_start(roots, one) if one.by == "podman" else crun.crun_start(roots, one)
    served = command.build_service(cards, instance, made, start.words, start.environment)
    programs = {**served.programs, **start.programs, PurePosixPath(one.program).name: _render_program()}
    after = (REFRESH_UNIT,) if one.devices else ()
    return replace(served, programs=programs, container=replace(one, before=start.before), after=after)
