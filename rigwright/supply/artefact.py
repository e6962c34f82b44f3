"""Artefacts: rows of a lock, with the metadata of a GGUF file's header."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from rigwright.address_types import Source
from rigwright.problems import FrozenModel
from rigwright.validated_types import (
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
    matching,
)

MOST = 1 << 48  # of anything that is counted here; more is no model
Amount = Annotated[int, Field(ge=0, le=MOST, strict=True)]
Architecture = Annotated[str, matching(r"[a-z0-9][a-z0-9_.-]{0,63}", "a name, such as qwen35")]


class KvCacheSize(FrozenModel):
    """The memory of attention for tokens, in numbers: the type of a KV cache tells the size of each.

    State of layers that keep no tokens (linear attention) is not in it: it does not grow with the context.
    """

    keys: Amount = Field(description="Numbers in the keys of a token, over all full-attention layers.")
    values: Amount = Field(description="Numbers in the values of a token, over the same layers.")
    window: Amount = Field(default=0, description="Sliding window of the other layers, tokens; 0 if there are none.")
    window_keys: Amount = Field(default=0, description="Numbers in the keys of a token in those.")
    window_values: Amount = Field(default=0, description="Numbers in its values in those.")


class WorkSize(FrozenModel):
    """The sizes of a model that the memory of its computation depends on."""

    width: Amount = Field(description="Numbers of a token between layers.")
    feed_forward: Amount = Field(description="Numbers of a token in the widest step of a layer.")
    heads: Amount = Field(description="Attention heads of a layer.")
    repacked: Amount = Field(
        default=0, description="Bytes of matrices that llama.cpp copies into another order on a CPU."
    )


class GgufMetadata(FrozenModel):
    """The contents of a GGUF file's header."""

    architecture: Architecture | None = Field(
        default=None,
        description="Architecture, as named by llama.cpp; later parts of a split model have none.",
    )
    off_card: Amount = Field(
        default=0,
        description="Bytes of tensors that need no card: llama.cpp keeps embeddings in RAM, and loads MTP layers only "
        "on request.",
    )
    cache: KvCacheSize | None = Field(
        default=None, description="KV cache sizes; omitted if the header does not state them."
    )
    work: WorkSize | None = Field(
        default=None, description="Sizes of its computation; omitted if the header does not state them."
    )


ArtefactKind = Literal["source", "wheel", "conda", "deb", "key", "image", "weight", "patch", "plugin"]

# The file of a model's folder that says what the model is.
CONFIG = "config.json"
# Bytes of it that a lock takes. Quantisers write a table with an entry for each layer into it: 100 to 700 KB are
# published (intel/auto-round issue 851, NVIDIA/Model-Optimizer issue 929).
TEXT = 4 << 20
# The row of an image that says which other blobs it is made of; its SHA-256 is the image's digest.
MANIFEST = "manifest"
# Fields of rows of some kinds only.
_OF = {
    "marker": ("wheel",),
    "python": ("wheel",),
    "as_of": ("wheel", "conda"),
    "machine_code": ("wheel", "plugin"),
    "build": ("conda",),
    "repository": ("weight",),
    "folder": ("weight",),
    "selection": ("weight", "conda"),
    "licence": ("weight",),
    "gated": ("weight",),
    "text": ("weight", "image"),
    "header": ("weight",),
}


class Artefact(FrozenModel):
    """One file from outside."""

    kind: ArtefactKind = Field(description="Kind.")
    name: ArtefactName = Field(description="Its name in the catalogue.")
    version: DebVersion = Field(description="Its version, or the repository's revision.")
    build: BuildString | None = Field(
        default=None, validate_default=True, description="Conda packages: the build of that version."
    )
    group: CatalogName | None = Field(
        default=None,
        description="Its group: the environment of a wheel or conda package, the driver of a package, the "
        "model of a file, the image of a blob.",
    )
    marker: Marker | None = Field(default=None, description="Wheels: the hosts that it is for, as in PEP 508.")
    python: PythonRelease | None = Field(default=None, description="Wheels: the one Python that it was chosen for.")
    as_of: Day | None = Field(
        default=None,
        description="Wheels and conda packages: only those published before this day were considered.",
    )
    machine_code: tuple[MachineCode, ...] | None = Field(
        default=None,
        description="Wheels and plugins that were inspected: files with GPU machine code, each with its targets.",
    )
    repository: Repository | None = Field(
        default=None, description="Weights: their repository on the hub; `version` is the commit."
    )
    folder: RelativePath | None = Field(default=None, description="Weights: their folder in the repository.")
    selection: Digits | None = Field(
        default=None,
        validate_default=True,
        description="Digest of the input's request: revision and patterns, or match specs.",
    )
    licence: Text | None = Field(default=None, description="Weights: the licence stated by the repository.")
    gated: Literal[True] | None = Field(default=None, description="Whether the hub requires a token with access.")
    file: ArtefactFile = Field(description="File name.")
    sha256: Sha256 = Field(description="SHA-256 of its contents.")
    size: Positive = Field(description="Bytes.")
    sources: tuple[Source, ...] = Field(
        min_length=1,
        description="Where to fetch it, in order: `index:PROJECT` (the host's package index), `NAME:PATH` (below each "
        "of the rig's mirrors of that name) or an http(s) URL.",
    )
    header: GgufMetadata | None = Field(
        default=None, description="GGUF files: the header values that determine its memory use."
    )
    text: str | None = Field(
        default=None,
        validate_default=True,
        description=f"A model's {CONFIG} and an image's manifest: the file itself, at most {TEXT >> 20} MiB.",
    )

    @field_validator(*_OF)
    @classmethod
    def _of_its_kind(cls, value: object, info: ValidationInfo) -> object:
        kinds = _OF[str(info.field_name)]
        if value is not None and info.data.get("kind") not in kinds:
            raise ValueError(f"omitted: only kind {' or '.join(kinds)} has it")
        return value

    @field_validator("repository")
    @classmethod
    def _of_a_commit(cls, value: str | None, info: ValidationInfo) -> str | None:
        version = info.data.get("version")
        if value is not None and version is not None and not re.fullmatch(r"[0-9a-f]{40}", version):
            raise ValueError(f"with a version that is a commit, 40 lowercase hexadecimal digits, not {version!r}")
        return value

    @field_validator("build", "selection")
    @classmethod
    def _of_every_build(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and info.data.get("kind") == "conda":
            raise ValueError("given: conda packages have it")
        return value

    @field_validator("name", "file")
    @classmethod
    def _begins(cls, value: str, info: ValidationInfo) -> str:
        if value.startswith("_") and info.data.get("kind") != "conda":
            raise ValueError("a letter or a digit first: only conda packages begin with _")
        return value

    @field_validator("version", "file")
    @classmethod
    def _plain(cls, value: str, info: ValidationInfo) -> str:
        if set(":~") & set(value) and info.data.get("kind") != "deb":  # these names become paths on hosts
            raise ValueError("letters, digits, dots, dashes and +: only debs may contain : and ~")
        return value

    @field_validator("text")
    @classmethod
    def _itself(cls, value: str | None, info: ValidationInfo) -> str | None:
        is_manifest = info.data.get("kind") == "image" and info.data.get("name") == MANIFEST
        if value is None:
            if is_manifest:
                raise ValueError("given: image manifests have it")
            return None
        if not is_manifest and (
            info.data.get("file") != CONFIG or info.data.get("folder") or not info.data.get("group")
        ):
            raise ValueError(f"omitted: only {CONFIG} at the top of a model's folder has it")
        content = value.encode(errors="replace")
        if len(content) > TEXT:
            raise ValueError(f"at most {TEXT} bytes, not {len(content)}")
        if (hashlib.sha256(content).hexdigest(), len(content)) != (info.data.get("sha256"), info.data.get("size")):
            raise ValueError("the file with the row's sha256 and size: one of them was changed")
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
    def project(self) -> str:
        """Of Python packages: the index's project that has it, which may differ from the catalogue's name."""
        return next((one.removeprefix("index:") for one in self.sources if one.startswith("index:")), self.name)

    @property
    def is_written(self) -> bool:
        """Whether the lock has all its bytes: it needs no download."""
        return self.kind == "image" and self.text is not None

    @property
    def identity(self) -> dict[str, str]:
        """Its identity, independent of its source."""
        return {"name": self.name, "version": self.version, "sha256": self.sha256}

    @property
    def order(self) -> tuple[str, str, str]:
        """Where the row stands in a lock."""
        return (self.group or "", self.name, self.path)

    def __str__(self) -> str:
        return f"{self.name} {self.version}"
