"""Containers on a host: packages, Docker's daemon, CDI specs and running images."""

from __future__ import annotations

from dataclasses import dataclass

from checks.survey.boot_settings import SettingsFile
from checks.survey.packages import StoredDriver
from checks.survey.section import PathFacts, Section, SurveyScope
from rigwright.containers import daemon_json
from rigwright.containers.container_facts import (
    COMMAND,
    DISTRIBUTION_DOCKER,
    PODMAN,
    REFRESH_PATH,
    REFRESH_UNIT,
    SOCKET,
    SOURCES,
    SPECS,
    relevant_packages,
    store_folder,
)
from rigwright.containers.container_files import managed_paths
from rigwright.engines import kind_of
from rigwright.fetch_job_spec import job_network
from rigwright.host.package_states import PackageStates
from rigwright.model.containers.archive_tables import DOCKER_ARCHIVE, TOOLKIT_ARCHIVE
from rigwright.model.instance import CONTAINER_RUNTIME_FOLDER


@dataclass(frozen=True)
class CdiSpec:
    """A file of devices for containers."""

    path: str
    kind: str
    """Of devices: nvidia.com/gpu; empty where it cannot be read."""
    names: list[str]
    paths: list[str]
    """The paths of the host that it names."""
    missing: list[str]
    """Those that are not there."""


@dataclass(frozen=True)
class DockerDaemon:
    """Docker's daemon that runs."""

    arguments: list[str]
    info: dict[str, str]
    """Its own report of its options, by its own words for them, as JSON; empty where there is none."""
    listens: list[str]
    """ADDRESS:PORT of what it listens on by TCP."""
    sockets: dict[str, PathFacts]
    """The other sockets that it listens on: path -> the object there."""
    swarm: bool
    """Whether it is one of a swarm, whose others it talks to."""
    carded: list[list[str]] | None
    """(name, how) of containers that run and have asked for cards: "cdi", or the name of the runtime or driver;
    None where it does not say what runs on it."""


@dataclass(frozen=True)
class ContainerSurvey:
    """All of it."""

    os_id: str
    os_version: str
    packages: PackageStates
    candidates: list[list[str]]
    """(name, the version that apt would install)."""
    recorded: list[list[str]]
    kept: dict[str, list[StoredDriver]]
    """Group of packages -> the sets of it whose files are kept."""
    sources: list[list[str]]
    """(path, text) of apt's."""
    options: str | None
    record: str
    daemon: DockerDaemon | None
    files: list[SettingsFile]
    specs: list[CdiSpec]
    loaded: str
    """The driver that is loaded, in the kernel's own words."""
    units: dict[str, dict[str, str]]


@dataclass(frozen=True)
class AptUpdateResult:
    """The end and the output of apt's update of one file of sources."""

    source: str
    status: int
    said: str


@dataclass(frozen=True)
class ContainerArchives:
    """The same of each."""

    read: list[AptUpdateResult]


def container_questions(scene: SurveyScope) -> dict[str, object] | None:
    """The questions that concern a rig."""
    rig = scene.rig
    if not rig.containers:
        return None
    return {
        "packages": list(relevant_packages(rig.container_supply)),
        "candidates": [DISTRIBUTION_DOCKER, COMMAND, PODMAN],
        "store": store_folder(rig.roots),
        "groups": sorted(rig.container_supply.groups),
        "deep": scene.deep,
        "options": daemon_json.PATH,
        "socket": SOCKET,
        "files": list(managed_paths(rig.roots)),
        "specs": list(SPECS),
        "units": [REFRESH_UNIT, REFRESH_PATH] if rig.cards else [],
    }


def archive_questions(scene: SurveyScope) -> dict[str, object] | None:
    """Which sources of ours there are to be read."""
    rig = scene.rig
    if not rig.container_supply.groups:
        return None
    net = job_network(rig.roots, rig.network)
    sources = [SOURCES.format(name) for name in (TOOLKIT_ARCHIVE, DOCKER_ARCHIVE)]
    return {"sources": sources, "authority": net.authority, "proxy": net.proxy, "none": net.no_proxy}


CONTAINERS: Section[ContainerSurvey] = Section(
    "containers",
    ContainerSurvey,
    container_questions,
    limit=60.0,
    blind="a container's use of its card",
    start_order=13,
)
CONTAINER_ARCHIVES: Section[ContainerArchives] = Section(
    "container_apt_sources",
    ContainerArchives,
    archive_questions,
    limit=130.0,
    blind="a foreign package that an archive's signer signed",
    start_order=3,
)


@dataclass(frozen=True)
class ObservedMount:
    """A mount of a container at a path."""

    target: str
    kind: str
    """Of the file system."""
    writable: bool
    root: str
    """The mounted part of the file system."""
    hosts: bool
    """Whether the host has that file system mounted, too, elsewhere than for this container."""


@dataclass(frozen=True)
class RunningContainer:
    """One that runs."""

    first: int
    """Its first process; 0 where there is none."""
    group: str
    """That process's control group."""
    mounts: list[ObservedMount]
    elsewhere: list[str]
    """Declared places at which it sees something else than the host."""
    layers: list[str]
    """Folders that its root is made of, the uppermost first."""
    locked: list[str]
    """Those that the store has for the locked image."""
    variables: list[str]
    """`NAME=VALUE`, as that image gives them."""
    brought: list[str]
    """Those that the spec of the cards gives."""
    interfaces: list[str]
    devices: list[str]
    """Device files that it sees."""
    forged: list[str]
    """Those that are another device than the host has there."""


@dataclass(frozen=True)
class Images:
    """All of them."""

    units: dict[str, RunningContainer]
    """By instance's service."""
    beside: list[str]
    """Control groups of containers in our slices, and folders of containers, that no such service has."""


def _image_questions(scene: SurveyScope) -> object:
    rig, made = scene.rig, scene.desired.installations
    found = {}
    for one in rig.instances:
        within = kind_of(one).service(rig, one, made[one.installed_as]).container
        if within:
            found[one.unit] = {
                "image": within.image,
                "store": within.store,
                "folder": within.folder,
                "by": within.by,
                "spec": within.spec,
                "mounts": [[mount.source, mount.target] for mount in within.mounts],
            }
    return {"units": found, "folder": CONTAINER_RUNTIME_FOLDER, "slice": "rigwright.slice"}


IMAGES: Section[Images] = Section(
    "running_containers",
    Images,
    _image_questions,
    blind="the contents of driver files that CDI mounts; processes' memory; containers outside Rigwright's slices",
    phase="probed",
    start_order=6,
)
