"""The keys of a plugin in a catalogue."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rigwright.problems import Frozen
from rigwright.types import CatalogName, Module, Version, matching

Distribution = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}", "a Python distribution")]
Command = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}", "a program's name, no folder")]


class PluginKeys(Frozen):
    """A wheel that no index has, and what of it may come to an environment: nothing else is in it."""

    input: CatalogName = Field(description="An input of kind `plugin`: the wheel, or a zip with it in `dist/`.")
    distribution: Distribution = Field(description="What the wheel calls itself; its version is the input's.")
    of: Distribution = Field(description="The distribution that it is a plugin of, such as `vllm`.")
    versions: tuple[Version, ...] = Field(min_length=1, description="The versions of that which it is for, exactly.")
    imports: tuple[Module, ...] = Field(
        min_length=1, description="Its modules that must come in, without a card, before the environment is used."
    )
    commands: tuple[Command, ...] = Field(default=(), description="All programs that it brings.")
