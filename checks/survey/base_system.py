"""The base system of a host: disks, mounts, journal and packages."""

from __future__ import annotations

from dataclasses import dataclass

from checks.survey.section import Section, SurveyScope
from rigwright.host.deploy_lock_state import LOCKS
from rigwright.model.roots import Roots
from rigwright.plan.host_probe import required_packages

MIB = 1 << 20


@dataclass(frozen=True)
class HeldLock:
    """A lock of Rigwright's that a process holds."""

    lock: str
    pid: int
    name: str
    groups: list[str]
    """Lines of /proc/PID/cgroup."""


@dataclass(frozen=True)
class DiskSpace:
    """The file system of a path."""

    path: str
    free: int
    """Bytes that anybody may take."""
    inodes: int | None
    """Files that may be made; None where there is no such number."""
    read_only: bool


@dataclass(frozen=True)
class Journal:
    """Where what is logged goes."""

    runs: bool
    files: list[str]
    """Open, of those that it keeps."""
    settings: dict[str, str]
    """The effective settings of its files."""
    masked: list[str]
    """Units of it that no boot starts."""


@dataclass(frozen=True)
class BaseSystem:
    """All of it."""

    held: list[HeldLock]
    disks: list[DiskSpace]
    journal: Journal
    audit: str
    """The damage that dpkg reports."""
    missing: list[str]
    """Packages that are not installed."""


def required_space(roots: Roots) -> dict[str, int]:
    """Path -> bytes that have to be free there: records and units are small, and a full disk must not be filled
    further.

    The size of weights is known before they are fetched (P01).
    """
    ours = dict.fromkeys((roots.state, roots.config, roots.software), 256 * MIB)
    return ours | {roots.models: 0} | dict.fromkeys(("/run", "/tmp", "/var/tmp", "/var/log"), 16 * MIB)  # noqa: S108


def _asks(scene: SurveyScope) -> object:
    rig = scene.rig
    return {
        "locks": LOCKS,
        "room": list(required_space(rig.roots)),
        "packages": list(required_packages(rig, scene.desired.facts.system)),
    }


GROUND: Section[BaseSystem] = Section(
    "base_system",
    BaseSystem,
    _asks,
    blind="journal entries that have been truncated since; disks that hide their errors",
    phase="probed",
    start_order=8,
)


@dataclass(frozen=True)
class HostPython:
    """The distribution's interpreters."""

    foreign: list[str]
    """Absolute paths of what they run or import first, and no package has."""
    other: list[str]
    """The same of what was compiled of their modules, and is other code than those have."""


PYTHON: Section[HostPython] = Section(
    "python_shadowing",
    HostPython,
    lambda scene: {},
    blind="a packaged module that was changed: M01 finds those",
    start_order=12,
)


@dataclass(frozen=True)
class About:
    """A host in a few words."""

    clock: str
    """Its own, in UTC."""
    generation: int | None
    """Where `current` leads; None for nowhere, or to none of ours."""
    versions: dict[str, str]
    """Its versions."""
    machine: str = ""
    """SHA-256 of its machine id, which itself stays on the host; empty without one."""


ABOUT: Section[About] = Section(
    "host_summary",
    About,
    lambda scene: {"config": scene.rig.roots.config},
    blind="a clock that is wrong in the same way as this machine's",
    start_order=21,
)
