"""Artefacts: files from outside, and what a lock says of one."""

from __future__ import annotations

import hashlib
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from rigwright.addresses import Source
from rigwright.problems import Frozen
from rigwright.supply.header import Header
from rigwright.types import (
    ArtefactFile,
    ArtefactName,
    BuildString,
    CatalogName,
    Day,
    DebVersion,
    Digits,
    MachineCode,
    Marker,
    Positive,
    PythonRelease,
    RelativePath,
    Repository,
    Sha256,
    Text,
)

Kind = Literal["source", "wheel", "conda", "deb", "key", "image", "weight", "patch", "plugin"]

# The file of a model's folder that says what the model is.
CONFIG = "config.json"
TEXT = 64 << 10  # bytes of it that a lock takes
# The row of an image that says which other blobs it is made of; its SHA-256 is the image's digest.
MANIFEST = "manifest"
# What rows of some kinds alone have.
_OF = {
    "marker": ("wheel",),
    "python": ("wheel",),
    "as_of": ("wheel", "conda"),
    "machine_code": ("wheel",),
    "build": ("conda",),
    "repository": ("weight",),
    "folder": ("weight",),
    "selection": ("weight", "conda"),
    "licence": ("weight",),
    "gated": ("weight",),
    "text": ("weight", "image"),
    "header": ("weight",),
}


class Artefact(Frozen):
    """One file from outside."""

    kind: Kind = Field(description="What it is.")
    name: ArtefactName = Field(description="What catalogue entries call it.")
    version: DebVersion = Field(description="Its version, or the revision of the repository that it comes from.")
    build: BuildString | None = Field(
        default=None, validate_default=True, description="Of a conda package: which build of that version it is."
    )
    group: CatalogName | None = Field(
        default=None,
        description="The environment that a wheel or a conda package is a part of, the driver that a package is of, "
        "the model that a file is of, or the image that a blob is of.",
    )
    marker: Marker | None = Field(default=None, description="Which hosts a wheel is for, as in PEP 508.")
    python: PythonRelease | None = Field(default=None, description="Of a wheel: the one Python that it was chosen for.")
    as_of: Day | None = Field(
        default=None,
        description="Of a wheel or a conda package: only what was published before this day was looked at.",
    )
    machine_code: tuple[MachineCode, ...] | None = Field(
        default=None,
        description="Of a wheel that was judged: its files with machine code for cards, each with what that is for.",
    )
    repository: Repository | None = Field(
        default=None, description="Of weights: the hub's, that they are from; `version` is the commit."
    )
    folder: RelativePath | None = Field(default=None, description="Of weights: their folder in the repository.")
    selection: Digits | None = Field(
        default=None,
        validate_default=True,
        description="Digest of what the input asked for: revision and patterns, or match specs.",
    )
    licence: Text | None = Field(default=None, description="Of weights: what the repository says.")
    gated: Literal[True] | None = Field(default=None, description="Whether the hub asks for a token with access.")
    file: ArtefactFile = Field(description="Its file name.")
    sha256: Sha256 = Field(description="Of its bytes.")
    size: Positive = Field(description="Bytes.")
    sources: tuple[Source, ...] = Field(
        min_length=1,
        description="Where it is had, in order: `index:PROJECT` (the host's package index), `NAME:PATH` "
        "(below each of the rig's mirrors of that name) or an http(s) URL.",
    )
    header: Header | None = Field(
        default=None, description="Of a GGUF file: what of its header says how much memory it takes."
    )
    text: str | None = Field(
        default=None,
        validate_default=True,
        description=f"Of a model's {CONFIG}, and of an image's manifest: the file itself, at most {TEXT >> 10} KiB.",
    )

    @field_validator(*_OF)
    @classmethod
    def _of_its_kind(cls, value: object, info: ValidationInfo) -> object:
        kinds = _OF[str(info.field_name)]
        if value is not None and info.data.get("kind") not in kinds:
            raise ValueError(f"left out: only kind {' or '.join(kinds)} has it")
        return value

    @field_validator("build", "selection")
    @classmethod
    def _of_every_build(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("kind") == "conda":
            raise ValueError("given: a conda package has it")
        return value

    @field_validator("name", "file")
    @classmethod
    def _begins(cls, value: str, info: ValidationInfo) -> str:
        if value.startswith("_") and info.data.get("kind") != "conda":
            raise ValueError("a letter or a digit first: only a conda package begins with _")
        return value

    @field_validator("version", "file")
    @classmethod
    def _plain(cls, value: str, info: ValidationInfo) -> str:
        if set(":~") & set(value) and info.data.get("kind") != "deb":  # these names become paths on hosts
            raise ValueError("letters, digits, dots, dashes and +: only a deb has : and ~ in them")
        return value

    @field_validator("text")
    @classmethod
    def _itself(cls, value: str | None, info: ValidationInfo) -> str | None:
        is_manifest = info.data.get("kind") == "image" and info.data.get("name") == MANIFEST
        if value is None:
            if is_manifest:
                raise ValueError("given: an image's manifest has it")
            return None
        if not is_manifest and (
            info.data.get("file") != CONFIG or info.data.get("folder") or not info.data.get("group")
        ):
            raise ValueError(f"left out: only {CONFIG} at the top of a model's folder has it")
        content = value.encode(errors="replace")
        if len(content) > TEXT:
            raise ValueError(f"at most {TEXT} bytes, not {len(content)}")
        if (hashlib.sha256(content).hexdigest(), len(content)) != (info.data.get("sha256"), info.data.get("size")):
            raise ValueError("the file of the row's sha256 and size: one of them was changed")
        return value

    @property
    def path(self) -> str:
        """From the top of its repository."""
        return f"{self.folder}/{self.file}" if self.folder else self.file

    @property
    def weight_path(self) -> str:
        """Of weights: from the folder of all models, on hosts, in bundles and on peers."""
        return f"{self.weight_folder}/{self.path}"

    @property
    def weight_folder(self) -> str:
        """Of weights: the folder of their model and version in the folder of all models."""
        return f"{self.repository or self.name}/{self.version}"

    @property
    def package_path(self) -> str:
        """Of what is installed from files: from the folder of all models, where hosts keep it until it is installed."""
        return f"_packages/{self.sha256[:16]}/{self.file}"

    @property
    def is_written(self) -> bool:
        """Whether the lock has all its bytes: nobody fetches it."""
        return self.kind == "image" and self.text is not None

    @property
    def identity(self) -> dict[str, str]:
        """What it is, wherever it comes from."""
        return {"name": self.name, "version": self.version, "sha256": self.sha256}

    @property
    def order(self) -> tuple[str, str, str]:
        """Where the row stands in a lock."""
        return (self.group or "", self.name, self.path)

    def __str__(self) -> str:
        return f"{self.name} {self.version}"
