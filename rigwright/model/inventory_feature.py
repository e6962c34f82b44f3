"""The parts that each feature registers: of an inventory's entry on its way to a rig, and of a host's probe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rigwright.host.script_output import HostOutput, Schema
from rigwright.model.api_keys import resolve_inventory_path, resolve_secret
from rigwright.model.catalog_schema import Catalog
from rigwright.model.inventory_schema import RigEntry
from rigwright.model.lock_coverage import describe_uncovered
from rigwright.model.monitoring_schema import ScrapeTarget
from rigwright.model.rig import Rig
from rigwright.model.secret_sources import SecretCommand, SecretSource
from rigwright.problems import Problem
from rigwright.supply.lock import Artefact, Lock

Refuse = Callable[[str, str], None]
"""Adds a problem: a key of the rig, and a text."""
LoadPurpose = Literal["", "lock", "bundle", "audit"]
"""The part of a rig that is only being made while it is loaded."""
Fields = Mapping[str, object]
"""Field of `rigwright.model.rig.Rig` -> its value."""
RELEASE = "SYSTEM"
"""Stands for a release, such as debian-13, at the end of the name of a group that each release has."""


@dataclass
class EntryDraft:
    """An entry as far as it can be judged without catalogue and lock."""

    file: str
    name: str
    entry: RigEntry
    """Of one with mistakes, the rest."""
    card_count: int
    """How many cards are declared, those with mistakes among them."""
    problems: list[Problem]
    data: Mapping[str, object] = field(default_factory=dict)
    """The entry as it is declared, with its mistakes: names in refused keys are resolved, too."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Those of the rig that features have resolved."""

    @property
    def folder(self) -> Path:
        """The inventory's."""
        return Path(self.file).parent

    def refuse(self, key: str, text: str) -> None:
        """Add the problem of a key."""
        self.problems.append(Problem(self.file, f"{self.name}.{key}", text))

    def resolve_path(self, path: str) -> str:
        """A path from the inventory's folder."""
        return resolve_inventory_path(self.folder, path)

    def resolve_secret(self, entry: str | SecretCommand) -> SecretSource:
        """The source of a secret, from the inventory's folder."""
        return resolve_secret(self.folder, entry)

    def add_fields(self, feature: str, fields: Fields) -> None:
        """Add the fields that a feature has resolved.

        Raises:
            TypeError: another feature has resolved one of them.
        """
        if twice := sorted(fields.keys() & self.fields):
            raise TypeError(f"feature {feature} resolves {', '.join(twice)}, which another feature has resolved")
        self.fields |= fields


@dataclass
class RigDraft(EntryDraft):
    """An entry, its catalogue and its lock, while each name in it is resolved."""

    catalog: Catalog = field(default_factory=Catalog)
    lock: Lock = field(default_factory=lambda: Lock({}))
    purpose: LoadPurpose = ""
    scrape_targets: tuple[ScrapeTarget, ...] = ()
    """The boxes of its inventory that it asks."""
    artefacts: list[Artefact] = field(default_factory=list)
    """All artefacts that its bundle must contain."""
    addressed: list[Artefact] = field(default_factory=list)
    """Artefacts of which a source or a mirror must have the address, where there is no bundle."""
    release_artefacts: list[Callable[[str], Iterable[Artefact]]] = field(default_factory=list)
    """Functions of a release, such as debian-13: artefacts that its bundle must contain for hosts with it."""
    package_groups: list[str] = field(default_factory=list)
    """Groups of the lock whose packages root installs on its host."""

    @property
    def is_locking(self) -> bool:
        """Whether its lock is only being made: versions and sizes are unknown."""
        return self.purpose == "lock"

    def select_wheels(self, group: str, key: str, context: str = "") -> tuple[Artefact, ...]:
        """The wheels that are locked for a host tool; refused where the lock does not cover them.

        Args:
            group: The input's name, and the group's.
            key: The key of the entry that needs them, for messages.
            context: The beginning of the message.
        """
        if wrong := describe_uncovered(group, "wheel", self.catalog.inputs, self.lock, self.file):
            self.refuse(key, f"{context}{wrong}")
        return self.lock.groups.get(group, ())


def _no_fields(draft: EntryDraft) -> Fields:
    return {}


@dataclass(frozen=True)
class Feature:
    """The part of an entry that belongs to one feature; its package has it, rigwright.declaration.features lists it."""

    name: str
    validate: Callable[[EntryDraft], Fields] = _no_fields
    """Refuses mistakes in keys and in files that they name, without catalogue and lock."""
    resolve: Callable[[RigDraft], Fields] = _no_fields
    """Refuses names that catalogue or lock does not have; it may read fields of features before it in the list."""
    root_groups: Sequence[str] = ()
    """Groups of the lock that a package manager installs as root; `RELEASE` at the end stands for each release."""


@dataclass(frozen=True)
class FactSource:
    """The facts of one feature, and the packages that it needs; rigwright.plan.host_probe lists all sources."""

    name: str
    template: str = ""
    """The script in templates/ that reports its facts; empty without any."""
    values: Callable[[Rig], Mapping[str, object]] = lambda rig: {}
    """The values of that template."""
    schema: Schema = field(default_factory=dict)
    """Key that the script reports -> types of its values."""
    read: Callable[[HostOutput], Mapping[str, object]] = lambda output: {}
    """Field of `rigwright.model.fact_types.HostFacts` -> its value, from what the script has reported."""
    packages: Callable[[Rig, str], Iterable[str]] = lambda rig, system: ()
    """The distribution's packages that a rig needs for it on a release; `""` for those of all releases."""
