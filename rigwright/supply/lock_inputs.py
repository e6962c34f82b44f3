"""Inputs: the catalogue's demands on sources outside."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache

from packaging.version import InvalidVersion
from packaging.version import Version as PythonVersion
from pydantic import TypeAdapter, ValidationError, ValidationInfo, field_validator, model_validator

from rigwright.supply import image_manifest, input_schema
from rigwright.supply.input_schema import InputKeys
from rigwright.supply.lock import Artefact, Lock
from rigwright.validated_types import CatalogName, FileName

# A source: the hub that weights are published on. Mirrors of that name are its endpoints.
HUB = "hub"
# The hash of a row that stands for an input that is not locked: a placeholder.
STAND_IN = "0" * 64
# Kinds of input that become a group of rows.
GROUPED = ("wheel", "conda", "deb", "image")
# Fields of inputs of some kinds only.
_OF = {
    "python": ("wheel",),
    "as_of": ("wheel", "conda"),
    "channels": ("conda",),
    "for_other_cards": ("wheel", "plugin"),
    "patches": ("wheel",),
}
# The parts of the names of folders on hosts, in addition to commits.
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,95}")
# The name that the packages of one archive are asked for by, and the version that they then have: a driver's own from a
# folder of NVIDIA's or a part of the distribution's archive, else that of the first of them.
_DRIVER = re.compile(r"[0-9]{3}(?:\.[0-9]+){1,3}")
_UPSTREAM = re.compile(r"[0-9]+(?:\.[0-9]+){1,3}")
_ARCHIVE = re.compile(r"(?:nvidia|container-toolkit|docker):.+|apt:[a-z][a-z-]*")
_OTHERS = ("container-toolkit:", "docker:")


class Input(InputKeys):
    """A file, an environment of wheels or of conda packages, packages of one archive, or an image, that
    `rigwright lock` finds and hashes.

    Of an environment, `python` says for what and `as_of` says when; neither needs the other. Without `python`, wheels
    are for every host's own Python, as the tools of hosts are. Without `as_of`, the newest are locked, and stay.
    """

    @field_validator(*_OF)
    @classmethod
    def _of_its_kind(cls, value: object, info: ValidationInfo) -> object:
        kinds = _OF[str(info.field_name)]
        if info.data.get("kind") not in kinds:
            raise ValueError(f"omitted: only kind {' or '.join(kinds)} has it")
        return value

    @model_validator(mode="after")
    def _check_complete(self) -> Input:
        if self.kind in ("wheel", "conda"):
            input_schema.refuse_environment_input(self)
            return self
        if self.kind == "deb":
            return self._check_packages()
        if self.kind == "image":
            image_manifest.refuse_image_input(self)
            return self
        if self.repository or self.include or self.exclude:
            return self._check_many()
        if self.version and not _PLAIN.fullmatch(self.version):
            raise ValueError("with a version of letters, digits, dots, dashes and +")
        if self.requirements or not self.version or not self.sources:
            raise ValueError(f"a {self.kind}: version and sources, no requirements")
        if self.projects:
            _refuse_on_index(self.kind, self.version)
        if self.kind == "plugin" and self.file_name and not self.file_name.endswith((".whl", ".zip")):
            raise ValueError(f"a wheel, or a zip with one: a .whl or .zip file, not {self.file_name}")
        if self.file is None and len(self.projects) < len(self.sources) and self.file_name is None:
            raise ValueError("given a file: the source's path does not end in a file name")
        return self

    def _check_many(self) -> Input:
        if self.kind != "weight":
            raise ValueError(f"weights: a {self.kind} has no repository, include or exclude")
        if self.requirements or self.file:
            raise ValueError("without requirements and file, for weights of many files")
        indexed = [source for source in self.sources if source.startswith("index:")]
        if indexed:
            raise ValueError(f"from elsewhere: the index has no weights, {indexed[0]} is refused")
        if self.repository is None and not (self.include and self.version and len(self.sources) > 0):
            raise ValueError("given a repository or, for your own weights, version, include and a source")
        if self.repository is None and not _PLAIN.fullmatch(str(self.version)):
            raise ValueError("with a version of letters, digits, dots, dashes and +")
        return self

    def _check_packages(self) -> Input:
        wrong = []
        if self.requirements or self.file or not self.version or not self.sources:
            wrong.append("packages of an archive: only version and sources")
        others = bool(self.sources) and self.sources[0].startswith(_OTHERS)
        if self.version and not (_UPSTREAM if others else _DRIVER).fullmatch(self.version):
            whose = (
                "the archive's own version, such as 1.19.1" if others else "a driver's own version, such as 595.91.07"
            )
            wrong.append(f"with {whose}, not {self.version}")
        if self.sources and not (len(self.sources) == 1 and _ARCHIVE.fullmatch(self.sources[0])):
            wrong.append(
                "from one archive, nvidia:FOLDER, apt:COMPONENT, container-toolkit:FOLDER or docker:FOLDER, not "
                f"{', '.join(self.sources)}"
            )
        if wrong:
            raise ValueError("; ".join(wrong))
        return self

    @property
    def is_grouped(self) -> bool:
        """Whether it has many rows in the lock, as a group of its name."""
        return self.kind in GROUPED or self.is_many_files

    @property
    def is_many_files(self) -> bool:
        """Whether it is weights of many files."""
        return bool(self.repository or self.include)

    @property
    def selection(self) -> str:
        """Digest of its patterns and revision: a lock that was made with others is not the answer to it."""
        if self.kind == "conda":
            return input_schema.selection_digest(self)
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
        """The row that it will have, or one like its rows, with a placeholder as hash and size."""
        if self.kind == "conda":
            file = f"{name}-0-0.conda"
            sources = tuple(f"{channel}:noarch/{file}" for channel in self.channels)
        elif self.kind == "image":
            file, sources = f"{name}.json", self.sources
        elif self.kind == "deb":
            file, sources = f"{name}.deb", tuple(f"{source}/{name}.deb" for source in self.sources)
        elif self.is_many_files:
            file, sources = name, self.sources_of(name) if self.repository else self.sources
        else:
            file, sources = self.file_name or name, self.sources or (f"index:{name}",)
        return Artefact(
            kind=self.kind,
            name=name,
            version="0" * 40 if self.repository else self.version or "0",
            build="0" if self.kind == "conda" else None,
            group=name if self.is_grouped else None,
            python=self.python,
            as_of=self.as_of,
            repository=self.repository,
            selection=self.selection if self.is_many_files or self.kind == "conda" else None,
            file=file,
            sha256=STAND_IN,
            size=1,
            sources=sources,
        )


@cache
def _provisional(name: str, one: Input) -> Artefact:
    """Each rig of an inventory has those of all catalogues."""
    return one.provisional(name)


def provisional_lock(inputs: Mapping[CatalogName, Input]) -> Lock:
    """A stand-in for the lock of these inputs while it is being made."""
    rows = {name: _provisional(name, one) for name, one in inputs.items()}
    groups: dict[str, tuple[Artefact, ...]] = {name: (row,) for name, row in rows.items() if inputs[name].is_grouped}
    return Lock({name: row for name, row in rows.items() if name not in groups}, groups)


def _refuse_on_index(kind: str, version: str) -> None:
    if kind != "source":
        raise ValueError(f"from elsewhere: the index has sources and wheels, no {kind}")
    try:
        PythonVersion(version)
    except InvalidVersion:
        raise ValueError(f"with an exact version of the index, such as 0.3.36, not {version}") from None


def is_stand_in(rows: Iterable[Artefact]) -> bool:
    """Whether rows are those that `Input.provisional` makes: their hash is STAND_IN."""
    return all(row.sha256 == STAND_IN for row in rows)
