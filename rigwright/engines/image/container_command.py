"""Commands that run an image's engine: with podman, or with crun."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import cast

from rigwright.engines.container_spec import BindMount, ContainerSpec
from rigwright.engines.engine_interface import ServiceSpec
from rigwright.engines.image.catalog_keys import VllmVariant
from rigwright.engines.image.install import STORE, UnpackedImage
from rigwright.engines.image.runtime_selection import CALLS, OWNER, TEMPORARY, ContainerStart, content_named
from rigwright.engines.vllm import command
from rigwright.host.systemd import ExpandedWord
from rigwright.model.catalog_schema import Card
from rigwright.model.containers.archive_tables import CDI_SPEC, REFRESH_UNIT
from rigwright.model.installation import Installation
from rigwright.model.instance import COMPILED, CONTAINER_RUNTIME_FOLDER, Instance
from rigwright.model.inventory_schema import DriverEntry
from rigwright.model.network import DownloadNetwork
from rigwright.model.roots import Roots
from rigwright.render import render
from rigwright.supply import image_manifest
from rigwright.system_calls import FORBIDDEN

CRUN, SYSTEM_PYTHON, NVIDIA_CTK = "/usr/bin/crun", "/usr/bin/python3", "/usr/bin/nvidia-ctk"
# The program that writes for it what podman would have written.
BUNDLE = Path(__file__).with_name("bundle.py").read_text()


def crun_start(roots: Roots, made: ContainerSpec) -> ContainerStart:
    """How a unit starts it.

    Args:
        roots: Directories on the host.
        made: The container.
    """
    text = json.dumps({**dataclasses.asdict(made), "temporary": TEMPORARY}, indent=1, sort_keys=True) + "\n"
    program, declared = content_named("bundle", ".py", BUNDLE), content_named(made.name, ".json", text)
    words = (
        CRUN,
        # its processes stay in the unit's own control group, where its limits hold and nothing outlives it
        "--cgroup-manager=disabled",
        f"--root={made.folder}/runtime",
        "run",
        "--detach",
        f"--bundle={made.folder}",
        f"--pid-file={made.folder}/pid",
        made.name,
    )
    # other programs' specs are YAML, for which the distribution's Python has nothing
    cards = (NVIDIA_CTK, "--quiet", "cdi", "generate", "--format=json", f"--output={made.folder}/cards.json")
    bundle = (SYSTEM_PYTHON, "-I", roots.program_path(program), roots.program_path(declared))
    before = (cards, bundle) if made.devices else (bundle,)
    return ContainerStart(words, programs={program: BUNDLE, declared: text}, before=before)


# Said by the program that makes the folder, for the next command of the unit.
OWN_USER = ExpandedWord("--user=${RW_OWNER}")
PODMAN = "/usr/bin/podman"
# Settings that podman reads of containers in place of the host's own, which could add mounts, devices, variables, and
# programs that root runs for each container; without these, it looks in the host's folders.
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
graphroot = "{CONTAINER_RUNTIME_FOLDER}/graph"
runroot = "{CONTAINER_RUNTIME_FOLDER}/run"
"""


def podman_start(roots: Roots, made: ContainerSpec) -> ContainerStart:
    """How a unit starts it.

    Args:
        roots: Directories on the host.
        made: The container.
    """
    settings, storage = content_named("containers", ".conf", SETTINGS), content_named("storage", ".conf", STORAGE)
    own = {"CONTAINERS_CONF": roots.program_path(settings), "CONTAINERS_STORAGE_CONF": roots.program_path(storage)}
    return ContainerStart(_podman_words(made), own, {settings: SETTINGS, storage: STORAGE})


def _podman_words(made: ContainerSpec) -> tuple[str, ...]:
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
        # its output is the unit's own
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
    """The container of an instance.

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
    start = podman_start(roots, one) if one.by == "podman" else crun_start(roots, one)
    served = command.build_service(cards, instance, made, start.words, start.environment)
    programs = {**served.programs, **start.programs, PurePosixPath(one.program).name: _render_program()}
    after = (REFRESH_UNIT,) if one.devices else ()
    return replace(served, programs=programs, container=replace(one, before=start.before), after=after)
