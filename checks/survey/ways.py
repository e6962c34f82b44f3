"""What leads to what is ours: the folders above it, and what is mounted there."""

from __future__ import annotations

from dataclasses import dataclass

from checks.survey.section import Scene, Section
from rigwright.model.rig import CACHES


@dataclass(frozen=True)
class Folder:
    """One on the way to a root, or the root itself."""

    path: str
    kind: str
    """`folder`, `link`, `other` or `nothing`."""
    uid: int
    gid: int
    mode: int
    rights: list[str]
    """Names of access lists that it has."""


@dataclass(frozen=True)
class Mount:
    """A mount at, above or below a root, the one of / among them."""

    point: str
    what: str
    """The folder of its file system that it shows: / for all of it."""
    kind: str
    """Of the file system."""
    source: str
    options: list[str]


@dataclass(frozen=True)
class Ways:
    """All of a host."""

    folders: dict[str, list[Folder]]
    """Root -> the folders from / to it; where links lead elsewhere, those too."""
    mounts: list[Mount]
    """In the order in which they were made."""
    waiting: list[str]
    """Where, at, above or below a root, something would be mounted at the next boot and is not now."""


def _asks(scene: Scene) -> dict[str, object]:
    roots = scene.rig.roots
    return {"roots": [roots.software, roots.config, roots.state, roots.models, CACHES], "below": not_models(scene)}


def not_models(scene: Scene) -> list[str]:
    """The roots in which nothing is mounted; disks for single models are their operator's."""
    roots = scene.rig.roots
    return [roots.software, roots.config, roots.state, CACHES]


WAYS: Section[Ways] = Section("ways", Ways, _asks)
