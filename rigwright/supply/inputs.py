"""Inputs: what a catalogue asks of the world outside, and whether the lock answers it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from packaging.requirements import Requirement as PythonRequirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion
from packaging.version import Version as PythonVersion
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from rigwright.nvidia.packages.versions import locked_driver
from rigwright.problems import Frozen, unknown
from rigwright.supply.lock import Artefact, Kind, Lock
from rigwright.types import CatalogName, FileName, Pattern, Repository, Requirement, Revision, Source

# A source: the hub that weights are published on. Mirrors of that name are its endpoints.
HUB = "hub"
# Kinds of input that become a group of rows.
GROUPED = ("wheel", "conda", "deb")
# What the names of folders on hosts are made of, beside commits.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,95}")
# A driver's own version, and where it is had: a folder of NVIDIA's, or a part of the distribution's archive.
_DRIVER = re.compile(r"[0-9]{3}(?:\.[0-9]+){1,3}")
_ARCHIVE = re.compile(r"nvidia:.+|apt:[a-z][a-z-]*")


class Input(Frozen):
    """One file, one environment of wheels, or one driver, that `rigwright lock` finds and hashes."""

    kind: Kind = Field(
        description="What it is; `wheel` stands for a whole environment, `deb` for an NVIDIA driver with its packages."
    )
    version: Revision | None = Field(
        default=None,
        description="Its exact version; of a repository, the branch, tag or commit to follow, without it the main "
        "branch; of a driver, its own.",
    )
    repository: Repository | None = Field(
        default=None, description="Of weights: the hub's repository that they are from, such as owner/name."
    )
    include: tuple[Pattern, ...] = Field(
        default=(), description="Of weights of many files: patterns of the paths that are wanted; without any, all."
    )
    exclude: tuple[Pattern, ...] = Field(
        default=(), description="Patterns of the paths that are not wanted, though included."
    )
    file: FileName | None = Field(
        default=None, description="Its file name; without it, the last part of the first source's path."
    )
    sources: tuple[Source, ...] = Field(
        default=(),
        description="Where it is had, in order, as in the lock: `index:PROJECT`, `NAME:PATH` or a URL; of a driver one "
        "archive, `nvidia:FOLDER` or `apt:COMPONENT`.",
    )
    requirements: tuple[Requirement, ...] = Field(
        default=(), description="Of an environment: the Python packages that it is for; theirs are found."
    )

    @model_validator(mode="after")
    def _whole(self) -> Input:
        if self.kind == "wheel":
            if not self.requirements or self.model_fields_set - {"kind", "requirements"}:
                raise ValueError("an environment: kind and requirements, nothing else")
            return self
        if self.kind == "deb":
            return self._driver()
        if self.repository or self.include or self.exclude:
            return self._many()
        if self.version and not _PLAIN.fullmatch(self.version):
            raise ValueError("of a version of letters, digits, dots, dashes and +")
        if self.requirements or not self.version or not self.sources:
            raise ValueError(f"a {self.kind}: version and sources, no requirements")
        if self.projects:
            _refuse_on_index(self.kind, self.version)
        if self.file is None and len(self.projects) < len(self.sources) and self.file_name is None:
            raise ValueError("given a file: the source's path does not end in a file name")
        return self

    def _many(self) -> Input:
        if self.kind != "weight":
            raise ValueError(f"weights: a {self.kind} has no repository, include or exclude")
        if self.requirements or self.file:
            raise ValueError("weights of many files: without requirements and file")
        indexed = [source for source in self.sources if source.startswith("index:")]
        if indexed:
            raise ValueError(f"had elsewhere: the index has no weights, {indexed[0]} is refused")
        if self.repository is None and not (self.include and self.version and len(self.sources) > 0):
            raise ValueError("given a repository; or, for weights of your own, version, include and a source")
        if self.repository is None and not _PLAIN.fullmatch(str(self.version)):
            raise ValueError("of a version of letters, digits, dots, dashes and +")
        return self

    def _driver(self) -> Input:
        wrong = []
        if self.requirements or self.file or not self.version or not self.sources:
            wrong.append("a driver: version and sources, nothing else")
        if self.version and not _DRIVER.fullmatch(self.version):
            wrong.append(f"of a driver's own version, such as 595.91.07, not {self.version}")
        if self.sources and not (len(self.sources) == 1 and _ARCHIVE.fullmatch(self.sources[0])):
            wrong.append(f"from one archive, nvidia:FOLDER or apt:COMPONENT, not {', '.join(self.sources)}")
        if wrong:
            raise ValueError("; ".join(wrong))
        return self

    @property
    def grouped(self) -> bool:
        """Whether it has many rows in the lock, as a group of its name."""
        return self.kind in GROUPED or self.many

    @property
    def many(self) -> bool:
        """Whether it is weights of many files."""
        return bool(self.repository or self.include)

    @property
    def selection(self) -> str:
        """Digest of its patterns and revision: a lock that was made with others is not the answer to it."""
        asked = [self.version if self.repository else None, self.include, self.exclude]
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:12]

    def selects(self, path: str) -> bool:
        """Whether its patterns want a path of the repository.

        By the rules of huggingface_hub.utils.filter_repo_objects: one that ends in a slash means the whole folder.
        """

        def fits(patterns: Sequence[str]) -> bool:
            return any(fnmatchcase(path, f"{one}*" if one.endswith("/") else one) for one in patterns)

        return (not self.include or fits(self.include)) and not fits(self.exclude)

    def sources_of(self, path: str) -> tuple[str, ...]:
        """Of weights of many files: where one of them is had, in order.

        Args:
            path: From the top of the repository.
        """
        own = tuple(f"{source.rstrip('/')}/{path}" for source in self.sources)
        return (f"{HUB}:{self.repository}", *own) if self.repository else own

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
        """The row that it will have, or one like its rows, with a hash and a size that are nobody's."""
        if self.kind == "deb":
            file, sources = f"{name}.deb", tuple(f"{source}/{name}.deb" for source in self.sources)
        elif self.many:
            file, sources = name, self.sources_of(name) if self.repository else self.sources
        else:
            file, sources = self.file_name or name, self.sources or (f"index:{name}",)
        return Artefact(
            kind=self.kind,
            name=name,
            version=self.version if self.version and not self.repository else "0",
            group=name if self.grouped else None,
            repository=self.repository,
            selection=self.selection if self.many else None,
            file=file,
            sha256="0" * 64,
            size=1,
            sources=sources,
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
        rows: Its row, or the rows of its group.
    """
    if not rows:
        return "is not locked"
    if wanted.kind == "wheel":
        missing = [text for text in wanted.requirements if not _met(text, rows)]
        return f"is locked without {', '.join(missing)}" if missing else ""
    if wanted.kind == "deb":
        return _driver_mismatch(wanted, rows)
    if wanted.many:
        return _many_mismatch(wanted, rows)
    if len(rows) > 1 or rows[0].group:
        return f"is locked as {len(rows)} files, not as one"
    (row,) = rows
    for key in ("kind", "version", "sources"):
        if getattr(row, key) != getattr(wanted, key):
            return f"is locked with {key} {_shown(getattr(row, key))}, not {_shown(getattr(wanted, key))}"
    if wanted.file_name not in (None, row.file):
        return f"is locked with file {row.file}, not {wanted.file_name}"
    return ""


def _many_mismatch(wanted: Input, rows: Sequence[Artefact]) -> str:
    for row in rows:
        if row.kind != wanted.kind:
            return f"is locked with kind {row.kind}, not {wanted.kind}"
        if row.repository != wanted.repository:
            return f"is locked from {row.repository or 'no repository'}, not {wanted.repository or 'your own files'}"
        if row.sources != wanted.sources_of(row.path):
            return f"is locked with sources {_shown(row.sources)}, not {_shown(wanted.sources_of(row.path))}"
        if row.selection != wanted.selection:
            return "is locked with another version, or other patterns in include and exclude"
    exact = wanted.version if not wanted.repository or re.fullmatch("[0-9a-f]{40}", wanted.version or "") else None
    if exact and (others := {row.version for row in rows} - {exact}):
        return f"is locked with version {min(others)}, not {exact}"
    return ""


def _driver_mismatch(wanted: Input, rows: Sequence[Artefact]) -> str:
    if (driver := locked_driver(rows)) != wanted.version:
        return f"is locked with {f'version {driver}' if driver else 'no version'}, not {wanted.version}"
    (source,) = wanted.sources
    # the archive says which part of it a package of the distribution's lies in
    place = "apt:" if source.startswith("apt:") else f"{source}/"
    for row in rows:
        if not row.sources[0].startswith(place):
            return f"is locked with sources {row.sources[0]}, not {source}"
    if place != "apt:" and not any(row.kind == "key" for row in rows):
        return "is locked without the key of its archive"
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
        kind: What it has to be; `wheel` stands for an environment, `deb` for a driver.
        inputs: The catalogue's.
        lock: What is locked.
        inventory: The file to lock for, for messages.
    """
    asked = inputs.get(name)
    if asked and asked.kind != kind:
        return f"the catalogue's input {name} is a {asked.kind}, not a {kind}"
    if kind in GROUPED:
        names = {group for group, found in lock.groups.items() if any(row.kind == kind for row in found)}
        rows = lock.groups.get(name, ())
    else:
        names = {row.name for row in lock.artefacts.values() if row.kind == kind}
        rows = tuple(row for row in lock.artefacts.values() if row.name == name)
        if kind == "weight":
            names |= {group for group, found in lock.groups.items() if found[0].kind == kind}
            rows = rows or lock.groups.get(name, ())
    if asked and (wrong := mismatch(asked, rows)):
        return f"{name} {wrong}: run `rigwright lock {inventory}`"
    if name not in names and not rows:
        names |= {other for other, one in inputs.items() if one.kind == kind}
        return unknown("locked environment" if kind == "wheel" else f"locked {kind}", name, names)
    if others := {row.kind for row in rows} - ({kind, "key"} if kind == "deb" else {kind}):
        return f"the lock's {name} is a {min(others)}, not a {kind}"
    return ""
