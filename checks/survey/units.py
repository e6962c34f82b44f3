"""Units of ours, as systemd has them in force, and what else of systemd bears upon them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from checks.survey.section import Section, SurveyScope
from checks.unit_settings import SystemCallGroups
from rigwright.host.systemd import UNIT_FOLDER
from rigwright.model.shared_results import share_results
from rigwright.plan.self_check_declaration import render_standalone_units

WORD = "rigwright"
"""The prefix of names of units of ours."""
BOOT = ("default.target", "multi-user.target", "timers.target", "sockets.target", "basic.target", "sysinit.target")
"""Units by which a boot comes to ours."""

QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"|(\S+)')
ESCAPED = re.compile(r"\\(.)")

PARENTS = ("-.slice", "system.slice")
"""Slices that our services are in, and that are not ours."""


@dataclass(frozen=True)
class ExpectedUnit:
    """A unit of ours as it is to be."""

    name: str
    path: str
    """Where systemd is to find it; empty for a slice that systemd makes by itself."""
    link: str
    """The target of the path; empty where it is a file."""
    text: str

    @property
    def sha256(self) -> str:
        """Of its text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def kind(self) -> str:
        """The suffix of its name."""
        return self.name.rpartition(".")[2]


@share_results
def expected_units(scene: SurveyScope) -> Mapping[str, ExpectedUnit]:
    """All units of a rig: name -> what it is to be."""
    rig, wanted = scene.rig, scene.desired.generation
    found = [
        ExpectedUnit(
            name, f"{UNIT_FOLDER}/{name}", f"{rig.roots.config}/current/units/{name}", wanted.files[f"units/{name}"]
        )
        for name in wanted.unit_files
    ]
    found += [ExpectedUnit(one.slice, "", "", "") for one in wanted.units]
    found += [
        ExpectedUnit(path.rpartition("/")[2], path, "", text) for path, text in render_standalone_units(rig).items()
    ]
    return {one.name: one for one in found}


def is_managed_unit(first: str) -> bool:
    """Whether a unit file with this first line is of our making."""
    return first.startswith(f"# Written by {WORD}")


@dataclass(frozen=True)
class UnitFileLine:
    """A line of a file."""

    path: str
    line: str


@dataclass(frozen=True)
class SystemdEntry:
    """An object in a folder of systemd's."""

    path: str
    link: str
    """Its target; empty for no link."""
    first: str
    """The first line of its text."""


@dataclass(frozen=True)
class ObservedUnitFile:
    """The object in the place of a unit file."""

    link: str
    sha256: str
    """Of its text; empty for none."""
    loose: str
    """Its owner, where others than root can change it."""


@dataclass(frozen=True)
class UnitSurvey:
    """systemd's reports, and the contents of its folders."""

    files: dict[str, ObservedUnitFile]
    lying: list[SystemdEntry]
    """Unit files named as ours are, what is added to ours, and links that start ours."""
    default: str
    """The unit that a boot starts."""
    command_line: list[str]
    """The kernel's command line for systemd."""
    configured: list[UnitFileLine]
    """The manager's own settings."""
    bare: dict[str, dict[str, str]]
    """Kind of unit -> the properties of one without settings."""
    shown: dict[str, dict[str, str | None]]
    """Unit -> what it has otherwise; None for what it lacks."""
    manager: dict[str, str]
    calls: dict[str, list[str]]
    """Group of system calls -> those, and groups, that it has."""
    loaded: list[str]
    """Units of such names that systemd knows."""

    def property_value(self, unit: str, prop: str) -> str:
        """A property; empty for what it lacks."""
        shown = self.shown[unit]
        return (shown[prop] if prop in shown else self.bare.get(unit.rpartition(".")[2], {}).get(prop)) or ""

    def property_names(self, unit: str, prop: str) -> list[str]:
        """A property that lists units or paths; systemctl quotes those with a backslash, as of escaped dashes."""
        words = QUOTED.findall(self.property_value(unit, prop))
        return [ESCAPED.sub(r"\1", quoted) if quoted else word for quoted, word in words]

    @cached_property
    def groups(self) -> SystemCallGroups:
        """Group of system calls -> those, and those of its groups among them."""
        return resolve_groups(tuple((name, tuple(found)) for name, found in self.calls.items()))

    @cached_property
    def filtered_calls(self) -> frozenset[str]:
        """The system calls in filters of units."""
        return frozenset(call for unit in self.shown for call in self.property_value(unit, "SystemCallFilter").split())


@lru_cache(16)
def resolve_groups(calls: tuple[tuple[str, tuple[str, ...]], ...]) -> SystemCallGroups:
    """The host's groups of system calls; groups inside groups are resolved."""
    listed = dict(calls)

    def resolve(name: str) -> frozenset[str]:
        found = listed.get(name, ())
        inner = [resolve(one) for one in found if one.startswith("@")]
        return frozenset(one for one in found if not one.startswith("@")).union(*inner)

    return SystemCallGroups({name: resolve(name) for name in listed})


def _asks(scene: SurveyScope) -> object:
    ours = expected_units(scene)
    paths = [one.path for one in ours.values() if one.path]
    others = [*BOOT, *PARENTS]
    return {"units": sorted(ours), "others": others, "files": sorted(paths), "word": [WORD]}


UNITS: Section[UnitSurvey] = Section(
    "units",
    UnitSurvey,
    _asks,
    blind="actions of a unit's running program; programs that act on units and have no unit",
    phase="probed",
    start_order=5,
)
