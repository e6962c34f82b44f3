"""The keys of engines that come as container images; their variants have those of what is in the image."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from rigwright.engines.vllm.catalog_keys import VllmVariant as VllmVariant
from rigwright.model.engine_schema import PatchedKeys
from rigwright.validated_types import AbsolutePath, CatalogName, Version


class ImageEngine(PatchedKeys):
    """An engine in a container image."""

    kind: Literal["image"] = Field(description="Kind.")
    image: CatalogName = Field(description="An input of kind `image`.")
    serves: Literal["vllm"] = Field(description="The engine in it: variants have the keys of that kind.")
    version: Version = Field(description="The engine's version, such as 0.21.0: its options are checked against it.")
    site: AbsolutePath | None = Field(
        default=None,
        description="Path of its Python packages, such as /usr/local/lib/python3.12/dist-packages: paths in patches "
        "are relative to it.",
    )

    @model_validator(mode="after")
    def _require_site(self) -> ImageEngine:
        if self.patches and self.site is None:
            raise ValueError("given site: the folder of the packages that its patches change")
        return self
