"""What leads to what is ours: the folders above it, and what is mounted there."""

from __future__ import annotations

from dataclasses import dataclass

from checks.survey.section import Section, SurveyScope
from rigwright.model.instance import CACHES


@dataclass(frozen=True)
class ParentFolder:
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
class PathMount:
    """A mount at, above or below a root, the one of / among them."""

    point: str
    what: str
    """The folder of its file system that it shows: / for all of it."""
    kind: str
    """Of the file system."""
    source: str
    options: list[str]


@dataclass(frozen=True)
class PathPermissions:
    """All of a host."""

    folders: dict[str, list[ParentFolder]]
    """Root -> the folders from / to it; where links lead elsewhere, those too."""
    mounts: list[PathMount]
    """In the order in which they were made."""
    waiting: list[str]
    """Where, at, above or below a root, something would be mounted at the next boot and is not now."""


def _asks(scene: SurveyScope) -> dict[str, object]:
    roots = scene.rig.roots
    return {
        "roots": [roots.software, roots.config, roots.state, roots.models, CACHES],
        "below": roots_without_mounts(scene),
    }


def roots_without_mounts(scene: SurveyScope) -> list[str]:
    """The roots in which nothing is mounted; disks for single models are their operator's."""
    roots = scene.rig.roots
    return [roots.software, roots.config, roots.state, CACHES]


WAYS: Section[PathPermissions] = Section(
    "path_permissions",
    PathPermissions,
    _asks,
    blind="mounts in namespaces that none of Rigwright's processes is in",
    start_order=20,
)
