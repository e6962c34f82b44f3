"""The keys of an environment in a catalogue."""

from __future__ import annotations

from pydantic import Field

from rigwright.problems import Frozen
from rigwright.types import CatalogName, Module


class EnvKeys(Frozen):
    """A conda environment with Python packages in it."""

    python: CatalogName = Field(description="An input of kind `conda`: the interpreter and what it needs.")
    packages: CatalogName = Field(description="An input of kind `wheel`, of that Python: what is installed into it.")
    distribution: CatalogName = Field(description="The one of these packages whose version is the environment's own.")
    imports: tuple[Module, ...] = Field(
        min_length=1, description="Modules that must come in, without a card, before it is used."
    )
    patches: tuple[CatalogName, ...] = Field(
        default=(), description="Patches of its packages: folders of `patches/`, ours or beside the inventory."
    )
    plugins: tuple[CatalogName, ...] = Field(
        default=(),
        description="Entries of the table `plugins`: wheels of your own, installed beside its packages.",
    )
    cuda: bool = Field(
        default=False,
        strict=True,
        description="Whether what runs in it compiles for cards: a rig with cards then has the CUDA toolkit for it.",
    )
