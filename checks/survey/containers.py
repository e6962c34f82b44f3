"""What runs containers: its packages, Docker's options and daemon, and the specs by which containers find cards."""

from __future__ import annotations

from dataclasses import dataclass

from checks.survey.packages import StoredDriver
from checks.survey.path_facts import PathFacts
from checks.survey.section import Section, SurveyScope
from checks.survey.settings import SettingsFile
from rigwright.containers import daemon
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
from rigwright.delivery.network import job_network
from rigwright.model.containers.archive_tables import DOCKER_ARCHIVE, TOOLKIT_ARCHIVE


@dataclass(frozen=True)
class CdiSpec:
    """A file of devices for containers."""

    path: str
    kind: str
    """Of devices: nvidia.com/gpu; empty where it cannot be read."""
    names: list[str]
    paths: list[str]
    """What of the host it names."""
    missing: list[str]
    """Those that are not there."""


@dataclass(frozen=True)
class DockerDaemon:
    """Docker's daemon that runs."""

    arguments: list[str]
    info: dict[str, str]
    """What it says of its options, by its own words for them, as JSON; empty where it says nothing."""
    listens: list[str]
    """ADDRESS:PORT of what it listens on by TCP."""
    sockets: dict[str, PathFacts]
    """What else it listens on: path -> what lies there."""
    swarm: bool
    """Whether it is one of a swarm, whose others it talks to."""
    carded: list[list[str]] | None
    """(name, how) of containers that run and have asked for cards: "cdi", or the name of the runtime or driver;
    None where it does not say what runs on it."""
    published: list[list[str]] | None
    """(name, address or nothing for every one, port and protocol) of what they have published; None likewise."""


@dataclass(frozen=True)
class ContainerSurvey:
    """All of it."""

    os_id: str
    os_version: str
    packages: list[list[str]]
    """(name, version)."""
    candidates: list[list[str]]
    """(name, the version that apt would install)."""
    half: list[str]
    holds: list[str]
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
    """What apt's update of one file of sources ended with and printed."""

    source: str
    status: int
    said: str


@dataclass(frozen=True)
class ContainerArchives:
    """The same of each."""

    read: list[AptUpdateResult]


def container_questions(scene: SurveyScope) -> dict[str, object] | None:
    """What of it concerns a rig."""
    rig = scene.rig
    if not rig.containers:
        return None
    return {
        "packages": list(relevant_packages(rig.container_supply)),
        "candidates": [DISTRIBUTION_DOCKER, COMMAND, PODMAN],
        "store": store_folder(rig.roots),
        "groups": sorted(rig.container_supply.groups),
        "deep": scene.deep,
        "options": daemon.PATH,
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
    blind="what a container does with a card that it was given",
    start_order=13,
)
CONTAINER_ARCHIVES: Section[ContainerArchives] = Section(
    "container_archives",
    ContainerArchives,
    archive_questions,
    limit=130.0,
    blind="an archive's signer who signs packages that he should not",
    start_order=3,
)
