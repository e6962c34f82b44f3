"""What a host does beside us, and what we stand on."""

from __future__ import annotations

import re
from dataclasses import dataclass

from checks.survey.accounts import Line
from checks.survey.section import Scene, Section
from rigwright.declaration.rig import CACHES, Rig
from rigwright.gateway.service import ROTATION
from rigwright.host.facts import packages
from rigwright.host.locks import LOCKS

MIB = 1 << 20


@dataclass(frozen=True)
class Held:
    """A lock of ours that somebody holds."""

    lock: str
    pid: int
    name: str
    groups: list[str]
    """Lines of /proc/PID/cgroup."""


@dataclass(frozen=True)
class Disk:
    """The file system of a path."""

    path: str
    free: int
    """Bytes that anybody may take."""
    inodes: int | None
    """Files that may be made; None where there is no such number."""
    read_only: bool


@dataclass(frozen=True)
class Mount:
    """A file system below the models' root."""

    point: str
    kind: str
    shown: str
    """The folder or file of it that is seen there; / for all of it."""
    boot: bool
    """Whether systemd mounts it when the host is started."""


@dataclass(frozen=True)
class Journal:
    """Where what is logged goes."""

    runs: bool
    files: list[str]
    """Open, of those that it keeps."""
    settings: dict[str, str]
    """What its files come to."""


@dataclass(frozen=True)
class Ground:
    """All of it."""

    held: list[Held]
    jobs: list[Line]
    disks: list[Disk]
    mounts: list[Mount]
    journal: Journal
    audit: str
    """What dpkg says is not whole."""
    missing: list[str]
    """Packages that are not installed."""


def room(rig: Rig) -> dict[str, int]:
    """Path -> bytes that have to be free there: records and units are small, and a full disk is none's to fill further.

    What weights take is known before they are fetched (P01).
    """
    roots = rig.roots
    ours = dict.fromkeys((roots.state, roots.config, roots.software), 256 * MIB)
    return ours | {roots.models: 0} | dict.fromkeys(("/run", "/tmp", "/var/tmp", "/var/log"), 16 * MIB)  # noqa: S108


def touching(rig: Rig) -> str:
    """An expression for lines that change what is ours, or stop it; to read weights is everybody's right."""
    roots = rig.roots
    places = "|".join(re.escape(path) for path in (roots.software, roots.config, roots.state, CACHES, "/run/rigwright"))
    users = "|".join(re.escape(user) for user in rig.users) or "(?!)"
    changes = r"\b(rm|mv|dd|chmod|chown|chattr|truncate|shred|touch|mount|ln|setfacl|find\s.*-delete|tee)\b|>"
    return (
        rf"(?:{places})(?![A-Za-z0-9_-])|\brigwright[-_][a-z0-9]|\brigwright\.(?:target|slice)|\b(?:{users})\b"
        rf"|(?:{changes}).*{re.escape(roots.models)}(?![A-Za-z0-9_-])"
    )


def _asks(scene: Scene) -> object:
    rig = scene.rig
    roots = rig.roots
    ours = [roots.software, roots.state, roots.config, roots.models]
    return {
        "models": roots.models,
        "guarded": [*ours, CACHES],
        "locks": LOCKS,
        "touching": touching(rig),
        "quiet": [ROTATION],
        "room": list(room(rig)),
        "packages": list(packages(rig)),
    }


GROUND: Section[Ground] = Section("ground", Ground, _asks)
