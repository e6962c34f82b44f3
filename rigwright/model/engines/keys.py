"""The keys that engines and variants of every kind have; each kind adds its own."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, ValidationInfo, field_validator

from rigwright.model.engines.evidence import CPU, BootedEvidence, VariantEvidence
from rigwright.model.engines.purpose import Purpose
from rigwright.problems import FrozenModel
from rigwright.types import CatalogName, Seconds


class EngineKeys(FrozenModel):
    """What serves."""

    kind: str = Field(description="Which kind of engine it is: a folder of rigwright/engines.")
    needs_toolkit: ClassVar[bool] = False
    """Whether it is made with a CUDA toolkit where it is for cards."""

    @property
    def environment(self) -> str | None:
        """The environment of the catalogue that it runs in; None where it is installed by itself."""
        return None


class PatchedKeys(EngineKeys):
    """What serves, and may be patched by itself."""

    patches: tuple[CatalogName, ...] = Field(
        default=(), description="Its patches: folders in `patches/`, shipped or next to the inventory."
    )


class VariantKeys(FrozenModel):
    """A serving recipe: model, engine, cards, and what its engine's kind has keys for."""

    engine: CatalogName = Field(description="An entry of the table `engines`.")
    model: CatalogName = Field(description="An entry of the table `models`.")
    cards: int = Field(default=0, ge=0, le=16, strict=True, description="Cards per instance; 0 serves on the CPU.")
    ready_timeout: Seconds = Field(default=600, description="Start timeout until the first answer, seconds.")
    evidence: VariantEvidence | None = Field(
        default=None, discriminator="kind", description="Evidence: who ran it, where, and under which conditions."
    )
    purpose: Purpose | None = Field(default=None, description="Purpose, as shown by `rigwright variants`.")

    @field_validator("evidence")
    @classmethod
    def _check_evidence_card(cls, evidence: VariantEvidence | None, info: ValidationInfo) -> VariantEvidence | None:
        if (
            isinstance(evidence, BootedEvidence)
            and "cards" in info.data
            and (evidence.card == CPU) == bool(info.data["cards"])
        ):
            raise ValueError(f"card = {CPU!r} for a variant without cards, else a card's name")
        return evidence

    @property
    def capacity(self) -> tuple[int, int] | None:
        """Requests that are served at once, and tokens that each of them can have; None where its kind has no such
        bounds.
        """
        return None

    @property
    def capacity_text(self) -> str:
        """Its capacity for people, such as `4 x 4096`; empty where it has none."""
        return " x ".join(map(str, self.capacity or ()))
