"""The catalogue: cards, models, engines, variants and inputs that inventories name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from rigwright.model.engines.keys import EngineKeys, VariantKeys
from rigwright.model.engines.purpose import BlockedVariant
from rigwright.model.envs.keys import EnvKeys
from rigwright.patches.patch import Patch
from rigwright.plugins.keys import PluginKeys
from rigwright.problems import FrozenModel
from rigwright.supply.inputs import Input
from rigwright.types import RISING, Capability, CatalogName, ModelFile, PciId, Text

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
