"""The keys of an environment in a catalogue."""

from __future__ import annotations

from pydantic import Field

from rigwright.problems import FrozenModel
from rigwright.types import CatalogName, Module


class EnvKeys(FrozenModel):
    """A conda environment with Python packages in it."""

    python: CatalogName = Field(description="An input of kind `conda`: the interpreter and its dependencies.")
    packages: CatalogName = Field(description="An input of kind `wheel` for that Python: the packages to install.")
    distribution: CatalogName = Field(description="The package whose version is the environment's version.")
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
