"""The base system of a host: loader, Python, tools and files beside Rigwright's."""

from __future__ import annotations

import re
from dataclasses import dataclass

from checks.survey.accounts import AccountFileLine
from checks.survey.section import Section, SurveyScope
from rigwright.gateway.gateway_units import ROTATION
from rigwright.host.deploy_lock_state import LOCKS
from rigwright.model.instance import CACHES
from rigwright.model.rig import account_names
from rigwright.model.roots import Roots
from rigwright.plan.host_facts import required_packages

MIB = 1 << 20


@dataclass(frozen=True)
class HeldLock:
    """A lock of ours that somebody holds."""

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
class ModelsMount:
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
    masked: list[str]
    """Units of it that no boot starts."""


@dataclass(frozen=True)
class BaseSystem:
    """All of it."""

    held: list[HeldLock]
    jobs: list[AccountFileLine]
    ends: list[AccountFileLine]
    """By what the host will be switched off, or started as another system."""
    disks: list[DiskSpace]
    mounts: list[ModelsMount]
    journal: Journal
    audit: str
    """What dpkg says is not whole."""
    missing: list[str]
    """Packages that are not installed."""


def required_space(roots: Roots) -> dict[str, int]:
    """Path -> bytes that have to be free there: records and units are small, and a full disk is none's to fill further.

    What weights take is known before they are fetched (P01).
    """
    ours = dict.fromkeys((roots.state, roots.config, roots.software), 256 * MIB)
    return ours | {roots.models: 0} | dict.fromkeys(("/run", "/tmp", "/var/tmp", "/var/log"), 16 * MIB)  # noqa: S108


def managed_words_pattern(roots: Roots, accounts: tuple[str, ...]) -> str:
    """An expression for words of a line that are about what is ours."""
    paths = (roots.software, roots.config, roots.state, roots.models, CACHES, "/run/rigwright")
    places = "|".join(re.escape(path) for path in paths)
    users = "|".join(re.escape(user) for user in accounts) or "(?!)"
    # a pattern that our units' names fit is about them, too
    units = r"\brigwright[-_][a-z0-9*]|\brigwright\.(?:target|slice)|\brig[a-z]*\*"
    return rf"(?:(?:{places})(?![A-Za-z0-9_-])|{units}|\b(?:{users})\b)"


def _asks(scene: SurveyScope) -> object:
    rig = scene.rig
    roots = rig.roots
    return {
        "models": roots.models,
        "guarded": [roots.software, roots.state, roots.config, roots.models, CACHES],
        "locks": LOCKS,
        "about": managed_words_pattern(rig.roots, account_names(rig)),
        "software": roots.software,
        "quiet": [ROTATION],
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
class Loader:
    """All of it."""

    before: list[list[str]]
    """(folder, what names it, library) of those that are found before the system's own, or loaded into its programs."""
    put: list[str]
    """Lines by which whoever logs in has a library put into each program."""


LOADER: Section[Loader] = Section(
    "dynamic_loader",
    Loader,
    lambda scene: {},
    blind="libraries that a program loads by path, or on demand once it runs",
    start_order=14,
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
    """What it runs."""


ABOUT: Section[About] = Section(
    "host_summary",
    About,
    lambda scene: {"config": scene.rig.roots.config},
    blind="a clock that is wrong in the same way as this machine's",
    start_order=21,
)
