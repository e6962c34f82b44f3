"""Containers of instances that are served from images, as the kernel has them."""

from __future__ import annotations

from dataclasses import dataclass

from checks.survey.section import Section, SurveyScope
from rigwright.engines import kind_of
from rigwright.model.instance import CONTAINER_RUNTIME_FOLDER


@dataclass(frozen=True)
class ObservedMount:
    """What a container has mounted at a path."""

    target: str
    kind: str
    """Of the file system."""
    writable: bool
    root: str
    """What of the file system."""
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


def _asks(scene: SurveyScope) -> object:
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
    "images",
    Images,
    _asks,
    blind="the contents of driver files that CDI mounts; processes' memory; containers outside Rigwright's slices",
    phase="probed",
    start_order=6,
)
