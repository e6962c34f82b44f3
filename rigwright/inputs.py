"""Inputs: what a catalogue asks of the world outside, and whether the lock answers it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from packaging.requirements import Requirement as PythonRequirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion
from packaging.version import Version as PythonVersion
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from rigwright.lock import Artefact, Kind, Lock
from rigwright.problems import Frozen, unknown
from rigwright.types import CatalogName, FileName, Requirement, Source, Version


class Input(Frozen):
    """One file, or one environment of wheels, that `rigwright lock` finds and hashes."""

    kind: Kind = Field(description="What it is; `wheel` stands for a whole environment.")
    version: Version | None = Field(
        default=None, description="Its exact version; of weights, the revision of their repository."
    )
    file: FileName | None = Field(
        default=None, description="Its file name; without it, the last part of the first source's path."
    )
    sources: tuple[Source, ...] = Field(
        default=(), description="Where it is had, in order, as in the lock: `index:PROJECT`, `NAME:PATH` or a URL."
    )
    requirements: tuple[Requirement, ...] = Field(
        default=(), description="Of an environment: the Python packages that it is for; theirs are found."
    )

    @model_validator(mode="after")
    def _whole(self) -> Input:
        if self.kind == "wheel":
            if not self.requirements or self.version or self.file or self.sources:
                raise ValueError("an environment: kind and requirements, nothing else")
            return self
        if self.requirements or not self.version or not self.sources:
            raise ValueError(f"a {self.kind}: version and sources, no requirements")
        if self.projects:
            _refuse_on_index(self.kind, self.version)
        if self.file is None and len(self.projects) < len(self.sources) and self.file_name is None:
            raise ValueError("given a file: the source's path does not end in a file name")
        return self

    @property
    def projects(self) -> list[str]:
        """The projects of its `index:` sources."""
        return [source.removeprefix("index:") for source in self.sources if source.startswith("index:")]

    @property
    def file_name(self) -> str | None:
        """The name of its file; None where only the index knows it."""
        paths = [source.partition("?")[0] for source in self.sources if not source.startswith("index:")]
        last = self.file or (paths[0].rpartition("/")[2].rpartition(":")[2] if paths else None)
        try:
            return TypeAdapter(FileName).validate_python(last)
        except ValidationError:
            return None

    def provisional(self, name: str) -> Artefact:
        """The row that it will have, with a hash and a size that are nobody's."""
        return Artefact(
            kind=self.kind,
            name=name,
            version=self.version or "0",
            file=self.file_name or name,
            sha256="0" * 64,
            size=1,
            sources=self.sources or (f"index:{name}",),
        )


def _refuse_on_index(kind: str, version: str) -> None:
    if kind != "source":
        raise ValueError(f"had elsewhere: the index has sources and wheels, no {kind}")
    try:
        PythonVersion(version)
    except InvalidVersion:
        raise ValueError(f"of an exact version of the index, such as 0.3.36, not {version}") from None


def mismatch(wanted: Input, rows: Sequence[Artefact]) -> str:
    """What the lock has other than an input asks for: "" where they agree.

    Args:
        wanted: The input.
        rows: Its row, or its environment's rows.
    """
    if not rows:
        return "is not locked"
    if wanted.kind == "wheel":
        missing = [text for text in wanted.requirements if not _met(text, rows)]
        return f"is locked without {', '.join(missing)}" if missing else ""
    (row,) = rows
    for key in ("kind", "version", "sources"):
        if getattr(row, key) != getattr(wanted, key):
            return f"is locked with {key} {_shown(getattr(row, key))}, not {_shown(getattr(wanted, key))}"
    if wanted.file_name not in (None, row.file):
        return f"is locked with file {row.file}, not {wanted.file_name}"
    return ""


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _met(text: str, rows: Sequence[Artefact]) -> bool:
    requirement = PythonRequirement(text)
    if requirement.marker:  # it may be for no host that there is
        return True
    name = canonicalize_name(requirement.name)
    return any(row.name == name and requirement.specifier.contains(row.version, prereleases=True) for row in rows)


def complaint(name: str, kind: Kind, inputs: Mapping[CatalogName, Input], lock: Lock, inventory: str) -> str:
    """Why a rig cannot have what it names: "" where it can.

    Args:
        name: The artefact's or environment's name.
        kind: What it has to be; `wheel` stands for an environment.
        inputs: The catalogue's.
        lock: What is locked.
        inventory: The file to lock for, for messages.
    """
    asked = inputs.get(name)
    if asked and asked.kind != kind:
        return f"the catalogue's input {name} is a {asked.kind}, not a {kind}"
    if kind == "wheel":
        names, rows = set(lock.groups), lock.groups.get(name, ())
    else:
        names, rows = set(lock.artefacts), tuple(row for row in lock.artefacts.values() if row.name == name)
    if asked and (wrong := mismatch(asked, rows)):
        return f"{name} {wrong}: run `rigwright lock {inventory}`"
    if name not in names:
        names |= {other for other, one in inputs.items() if one.kind == kind}
        return unknown("locked environment" if kind == "wheel" else f"locked {kind}", name, names)
    if others := {row.kind for row in rows} - {kind}:
        return f"the lock's {name} is a {min(others)}, not a {kind}"
    return ""
