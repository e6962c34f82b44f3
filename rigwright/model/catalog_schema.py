"""The catalogue as declared: models, environments and the tables that hold them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from rigwright.model.engine_schema import BlockedVariant, EngineKeys, VariantKeys
from rigwright.model.lock_coverage import describe_uncovered
from rigwright.patches.patch import Patch
from rigwright.plugins.plugin import PluginKeys
from rigwright.problems import FrozenModel, describe_unknown
from rigwright.supply.artefact import CONFIG
from rigwright.supply.lock import Artefact, Lock
from rigwright.supply.lock_inputs import Input
from rigwright.validated_types import RISING, Capability, CatalogName, ModelFile, Module, PciId, Text


class EnvKeys(FrozenModel):
    """A conda environment with Python packages in it."""

    python: CatalogName = Field(description="An input of kind `conda`: the interpreter and its dependencies.")
    packages: CatalogName = Field(description="An input of kind `wheel` for that Python: the packages to install.")
    distribution: CatalogName = Field(description="The package that gives the environment its version.")
    imports: tuple[Module, ...] = Field(
        min_length=1, description="Modules that must import, without a card, before it is used."
    )
    patches: tuple[CatalogName, ...] = Field(
        default=(), description="Patches of its packages: folders in `patches/`, shipped or next to the inventory."
    )
    plugins: tuple[CatalogName, ...] = Field(
        default=(),
        description="Entries of the table `plugins`: your own wheels, installed in addition to its packages.",
    )
    cuda: bool = Field(
        default=False,
        strict=True,
        description="Whether its programs compile CUDA code: a rig with cards then gets the CUDA toolkit.",
    )


BoardWatts = Annotated[int, Field(ge=1, le=5000, strict=True)]


class Card(FrozenModel):
    """A GPU model."""

    name: Text = Field(description="As nvidia-smi prints it.")
    pci_ids: tuple[PciId, ...] = Field(
        min_length=1, description="PCI ids, vendor:device, of all boards sold under the name."
    )
    capability: Capability = Field(description="CUDA compute capability.")
    vram_mib: int = Field(ge=1, le=1 << 20, strict=True, description="Memory, MiB.")
    module: Literal["either", "proprietary"] = Field(
        default="either",
        description="Kernel modules that it works with, within what its generation allows; `proprietary`: a board "
        "known to fail with open ones.",
    )
    power_w: Annotated[tuple[BoardWatts, BoardWatts], RISING] | None = Field(
        default=None,
        description="Lowest and highest power limit of its boards, W, if known (the widest range if boards differ); an "
        "inventory cannot exceed them.",
    )


class ModelKeys(FrozenModel):
    """Weights: one file with its parts, or a folder."""

    file: ModelFile | None = Field(
        default=None,
        description="The GGUF to load, for `llama.cpp`. With an input of many files: the one at PATH, with all its "
        "parts; without PATH its only GGUF that is not a projector. A model has this key or `folder`.",
    )
    folder: CatalogName | None = Field(
        default=None,
        description="The checkpoint to load: an input of many files with a config.json and safetensors weights.",
    )
    mmproj: ModelFile | None = Field(
        default=None, description="The vision projector of a `file`; without one it does not accept images."
    )
    draft: ModelFile | None = Field(
        default=None,
        description="A draft model for speculative decoding, configured by the variant. With `folder`: an input that "
        "is a folder too.",
    )
    chat_template: ModelFile | None = Field(
        default=None, description="A Jinja chat template instead of the one in its own file or folder."
    )

    @field_validator("folder")
    @classmethod
    def _refuse_file_and_folder(cls, folder: str | None, info: ValidationInfo) -> str | None:
        if folder is not None and info.data.get("file") is not None:
            raise ValueError("omitted: a model has either file or folder, and this one has file")
        return folder

    @field_validator("mmproj")
    @classmethod
    def _refuse_mmproj_of_folder(cls, mmproj: str | None, info: ValidationInfo) -> str | None:
        if mmproj is not None and info.data.get("folder") is not None:
            raise ValueError("omitted: a folder contains its projector")
        return mmproj

    @field_validator("draft")
    @classmethod
    def _require_draft_folder(cls, draft: str | None, info: ValidationInfo) -> str | None:
        if draft is not None and ":" in draft and info.data.get("folder") is not None:
            raise ValueError("an input without a path: the model is a folder, so its draft model must be one")
        return draft

    @model_validator(mode="after")
    def _require_weights(self) -> ModelKeys:
        if self.file is None and self.folder is None:
            raise ValueError("given file or folder")
        return self


class Catalog(FrozenModel):
    """All files of several folders, a later folder's entries over an earlier one's."""

    cards: dict[str, Card] = Field(default_factory=dict)
    models: dict[str, ModelKeys] = Field(default_factory=dict)
    engines: dict[str, EngineKeys] = Field(default_factory=dict)
    variants: dict[str, VariantKeys] = Field(default_factory=dict)
    blocked: dict[str, BlockedVariant] = Field(default_factory=dict)
    envs: dict[str, EnvKeys] = Field(default_factory=dict)
    plugins: dict[str, PluginKeys] = Field(default_factory=dict)
    inputs: dict[str, Input] = Field(default_factory=dict)
    patches: dict[str, Patch] = Field(default_factory=dict, description="Those in patches/, by name.")
    toolkit_patches: tuple[CatalogName, ...] = Field(
        default=(), description="Patches of input `cuda`, kept when `inputs` is emptied."
    )
    snapshots: dict[str, Path] = Field(default_factory=dict, description="The files in flags/, by name.")


class MissingModelFile(Exception):
    """A model's key stands for nothing; the text says why, a line each."""


@dataclass(frozen=True)
class FileCandidates:
    """The locked files that one key of a model may mean."""

    name: str
    """The input's."""
    path: str
    """The file that the key names; empty where it names none."""
    by_path: Mapping[str, Artefact]

    def find(self, path: str) -> Artefact:
        """The file with a path.

        Raises:
            MissingModelFile: it is not locked.
        """
        if path not in self.by_path:
            raise MissingModelFile(f"{self.name}: {describe_unknown('locked file', path, self.by_path)}")
        return self.by_path[path]


@dataclass(frozen=True)
class ModelSelection:
    """Where a model's files are looked for."""

    inputs: Mapping[str, Input]
    """The catalogue's."""
    lock: Lock
    inventory: str
    """The file to lock for, for messages."""
    lenient: bool = False
    """Whether any file will do, because the lock is only being made."""

    def candidates(self, reference: str) -> FileCandidates:
        """The files that `INPUT` or `INPUT:PATH` may mean.

        Raises:
            MissingModelFile: there is no such input, or it is not locked.
        """
        name, _, path = reference.partition(":")
        rows = self._rows(name)
        if self.lenient:
            return FileCandidates(name, rows[0].path, {rows[0].path: rows[0]})
        return FileCandidates(name, path, {row.path: row for row in rows})

    def folder(self, name: str) -> tuple[Artefact, ...]:
        """All files of an input, config.json first; while the lock is being made, any that stands for them.

        Raises:
            MissingModelFile: there is no such input, it is not locked, or is one file.
        """
        rows = self._rows(name)
        if not rows[0].group:
            raise MissingModelFile(
                f"{name} is a single file, not a folder: make it an input with include, or select it with file"
            )
        return tuple(sorted(rows, key=lambda row: (row.path != CONFIG, row.order)))

    def _rows(self, name: str) -> tuple[Artefact, ...]:
        """The rows of an input in the lock.

        Raises:
            MissingModelFile: it is not, or there is none of that name.
        """
        if wrong := describe_uncovered(name, "weight", self.inputs, self.lock, self.inventory):
            raise MissingModelFile(wrong)
        return self.lock.groups.get(name) or (self.lock.artefacts[name],)
