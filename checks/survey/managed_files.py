"""Rigwright's own objects on a host in addition to the served ones."""

from __future__ import annotations

from dataclasses import dataclass, field

from checks.survey.section import Section, SurveyScope
from rigwright.fetch_job_spec import authority_path
from rigwright.gateway.gateway_units import ROUTER_KEYS
from rigwright.gateway.secrets_distribution import keys_path
from rigwright.model.roots import Roots
from rigwright.monitoring.monitoring_units import STATEFUL_PROGRAMS, data_folder
from rigwright.weights.verification import records_folder


@dataclass(frozen=True)
class ManagedEntry:
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
class ManagedFolder:
    """One of our folders."""

    entry: ManagedEntry
    stuck: bool
    """Whether its file system lets no user write there (chattr(1), +i and +a)."""


@dataclass(frozen=True)
class LedgerFile:
    """The list of what is ours."""

    entry: ManagedEntry
    lines: list[str]
    """Each once."""
    whole: bool
    """Whether its last line has an end."""


@dataclass(frozen=True)
class ManagedFiles:
    """Rigwright's own objects."""

    loose: list[ManagedEntry]
    """The objects that others than root can change."""
    ahead: list[ManagedEntry]
    """The objects with a time to come."""
    folders: list[ManagedFolder]
    ledger: LedgerFile
    secrets: list[ManagedEntry]
    secrets_listed: list[str]
    """Secrets, and their folder, with an access list."""
    secrets_stuck: list[str]
    """Those that not even root can replace (chattr(1), +i and +a)."""
    needed: list[str]
    """Names that generations have of secrets, among other names."""
    config: list[str]
    """Names in the folder of what the rig is."""
    files: dict[str, str]
    """Path -> SHA-256; empty where there is none."""
    keys_version: str
    """SERIAL and ID of clients' keys; empty where they have none."""
    certificates: dict[str, str]
    """Path of a secret -> SHA-256 of the first certificate in it; empty where there is none."""
    between_boxes: dict[str, list[str]] = field(default_factory=dict)
    """Path of a secret for connections between boxes -> the certificates in it, in Base64."""
    revocations: dict[str, str] = field(default_factory=dict)
    """Likewise -> the list of revoked certificates in it, in Base64; empty where there is none."""


def declared_folders(roots: Roots) -> dict[str, int]:
    """Those that every host has below its roots -> their mode."""
    every = (
        roots.jobs,
        roots.builds,
        records_folder(roots),
        roots.startup_records,
        roots.memory_records,
        roots.installations,
        roots.generations,
    )
    return dict.fromkeys(every, 0o755) | {roots.credentials: 0o700}


def _asks(scene: SurveyScope) -> object:
    rig = scene.rig
    roots, serves_clients = rig.roots, bool(rig.gateway and rig.gateway.serves_clients)
    return {
        "roots": [roots.software, roots.state, roots.config, roots.models],
        "folders": [*declared_folders(rig.roots), roots.software, roots.state, roots.config, roots.models],
        "ledger": rig.roots.ledger,
        "credentials": rig.roots.credentials,
        "generations": rig.roots.generations,
        "config": roots.config,
        "files": [authority_path(rig.roots), *([keys_path(rig.roots), ROUTER_KEYS] if serves_clients else [])],
        "keys": keys_path(rig.roots) if serves_clients else "",
        "late": f"{records_folder(rig.roots)}/deep",
        "apart": [data_folder(rig.roots, name) for name in STATEFUL_PROGRAMS]
        if rig.monitoring and rig.monitoring.server
        else [],
    }


OURS: Section[ManagedFiles] = Section(
    "managed_files", ManagedFiles, _asks, blind="a secret that was copied", start_order=16
)
