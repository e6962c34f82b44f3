"""The keys of engines that serve by the llama.cpp server in xllamacpp's wheel; variants have those of llama.cpp."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from rigwright.model.engine_schema import EngineKeys
from rigwright.validated_types import CatalogName

BuildNumber = Annotated[int, Field(ge=1, le=10**9, strict=True)]
# Keys of engines that are compiled.
SOURCE_KEYS = frozenset({"source", "subtree", "commit", "options", "patches"})


class WheelEngine(EngineKeys):
    """A prebuilt llama.cpp for the CPU."""

    kind: Literal["llama.cpp-wheel"] = Field(description="Kind.")
    wheel: CatalogName = Field(description="The input with xllamacpp's wheel.")
    build: BuildNumber = Field(
        description="The build of llama.cpp in the wheel, the last number of its version: advisories name it."
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_source_keys(cls, data: object) -> object:
        if isinstance(data, Mapping) and (taken := sorted(SOURCE_KEYS & set(data))):
            raise ValueError(
                f'no {" or ".join(taken)}: the wheel is compiled already; kind = "llama.cpp" compiles (patched) source'
            )
        return data
