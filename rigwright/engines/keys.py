"""The keys that engines and variants of every kind have; each kind adds its own."""

from __future__ import annotations

from pydantic import Field

from rigwright.problems import Frozen
from rigwright.types import CatalogName, Positive


class EngineKeys(Frozen):
    """What serves."""

    kind: str = Field(description="Which kind of engine it is: a folder of rigwright/engines.")


class PatchedKeys(EngineKeys):
    """What serves, and may be patched by itself."""

    patches: tuple[CatalogName, ...] = Field(
        default=(), description="Patches of it: folders of `patches/`, ours or beside the inventory."
    )


class VariantKeys(Frozen):
    """A serving recipe: model, engine, cards, and what its engine's kind has keys for."""

    engine: CatalogName = Field(description="An entry of the table `engines`.")
    model: CatalogName = Field(description="An entry of the table `models`.")
    cards: int = Field(
        default=0, ge=0, le=16, strict=True, description="Cards one instance takes; 0 serves on the CPU."
    )
    ready_timeout: Positive = Field(default=600, description="Seconds from start to the first answer.")

    @property
    def capacity(self) -> tuple[int, int] | None:
        """Requests that are served at once, and tokens that each of them can have; None where its kind has no such
        bounds.
        """
        return None

    @property
    def sized(self) -> str:
        """Its capacity for people, such as `4 x 4096`; empty where it has none."""
        return " x ".join(map(str, self.capacity or ()))
