"""What is ours on a host beside what is served."""

from __future__ import annotations

from dataclasses import dataclass

from checks.survey.section import Scene, Section
from rigwright.declaration.rig import Rig
from rigwright.supply.network import authority_path
from rigwright.weights.records import programs, records_folder


@dataclass(frozen=True)
class Entry:
    """A file, folder or link."""

    path: str
    kind: str
    mode: int
    """Its last twelve bits."""
    uid: int
    gid: int
    mtime: float
    """Seconds since the epoch."""

    def __str__(self) -> str:
        return f"{self.path} ({self.kind}, {self.mode:o}, of user {self.uid})"


@dataclass(frozen=True)
class Folder:
    """One of our folders."""

    entry: Entry
    stuck: bool
    """Whether its file system lets nobody write there (chattr(1), +i and +a)."""


@dataclass(frozen=True)
class Ledger:
    """The list of what is ours."""

    entry: Entry
    lines: list[str]
    """Each once."""
    whole: bool
    """Whether its last line has an end."""


@dataclass(frozen=True)
class Own:
    """What is ours."""

    loose: list[Entry]
    """What others than root can change."""
    ahead: list[Entry]
    """What is from a time to come."""
    folders: list[Folder]
    ledger: Ledger
    secrets: list[Entry]
    needed: list[str]
    """Names that generations have of secrets, among other names."""
    config: list[str]
    """Names in the folder of what the rig is."""
    programs: dict[str, str]
    """Path -> SHA-256, or what it is instead of a file."""
    files: dict[str, str]
    """Likewise; empty for none."""


def folders(rig: Rig) -> dict[str, int]:
    """Those that every host has -> their mode."""
    roots = rig.roots
    open_ = (roots.state, rig.jobs, rig.builds, records_folder(rig), rig.starts, roots.software, rig.installations)
    every = dict.fromkeys((*open_, roots.models, roots.config, rig.generations), 0o755)
    return every | {rig.credentials: 0o700}


def _asks(scene: Scene) -> object:
    rig = scene.rig
    roots = rig.roots
    return {
        "roots": [roots.software, roots.state, roots.config, roots.models],
        "folders": list(folders(rig)),
        "ledger": rig.ledger,
        "credentials": rig.credentials,
        "generations": rig.generations,
        "config": roots.config,
        "programs": programs(rig),
        "files": [authority_path(rig)],
        "late": f"{records_folder(rig)}/deep",
    }


OURS: Section[Own] = Section("ours", Own, _asks)
