"""The keys of engines that come as container images; their variants have those of what is in the image."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from rigwright.engines.keys import PatchedKeys
from rigwright.engines.vllm.keys import Variant as Variant
from rigwright.types import AbsolutePath, CatalogName, Version


class Engine(PatchedKeys):
    """What serves, in a container image."""

    kind: Literal["image"] = Field(description="What it is.")
    image: CatalogName = Field(description="An input of kind `image`.")
    serves: Literal["vllm"] = Field(description="What is in it: variants have the keys of that kind of engine.")
    version: Version = Field(description="The version of that: what it takes is judged by it, such as 0.21.0.")
    site: AbsolutePath | None = Field(
        default=None,
        description="Where its Python packages are in it, such as /usr/local/lib/python3.12/dist-packages: what the "
        "paths of patches are from.",
    )

    @model_validator(mode="after")
    def _somewhere(self) -> Engine:
        if self.patches and self.site is None:
            raise ValueError("given site: where the packages are that its patches change")
        return self
