"""What is known of a variant beside that its options are taken: who has booted it, where, and on what."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field, model_validator

from rigwright.problems import FrozenModel
from rigwright.types import Day, Text

CPU = "CPU"


class BootedEvidence(FrozenModel):
    """Deployed and asked by who wrote the catalogue."""

    kind: Literal["booted"] = Field(description="Kind.")
    card: Text = Field(description=f"The card, as nvidia-smi prints it, or `{CPU}`.")
    driver: Text | None = Field(default=None, description="NVIDIA's driver there; left out on the CPU.")
    date: Day = Field(description="The day, UTC.")

    @model_validator(mode="after")
    def _require_driver(self) -> BootedEvidence:
        if (self.card == CPU) != (self.driver is None):
            raise ValueError(f"the card's driver; card = {CPU!r} has none")
        return self

    @property
    def description(self) -> str:
        """In words."""
        driver = f", driver {self.driver}" if self.driver else ""
        return f"booted on {self.card}{driver}, {self.date}"


class PublishedEvidence(FrozenModel):
    """Published by others, and not booted by who wrote the catalogue."""

    kind: Literal["published"] = Field(description="Kind.")
    source: Text = Field(description="Where.")
    condition: Text = Field(description="What it ran on there: cards, engine and version, power limit.")
    figures: Text | None = Field(default=None, description="What was reported there.")

    @property
    def description(self) -> str:
        """In words."""
        figures = f": {self.figures}" if self.figures else ""
        return f"published by {self.source} ({self.condition}){figures}; not measured again"


class DerivedEvidence(FrozenModel):
    """Derived from what was booted or published, and booted nowhere as it is."""

    kind: Literal["derived"] = Field(description="Kind.")
    origin: Text = Field(
        description="What it derives from: a variant of the catalogue (`engine/name`), or a publication."
    )
    change: Text = Field(description="What differs.")

    @property
    def description(self) -> str:
        """In words."""
        return f"derived from {self.origin} ({self.change}); never booted"


class ParsedEvidence(FrozenModel):
    """Nothing but the judgement of its options: a plan and a deploy warn."""

    kind: Literal["parsed"] = Field(description="Kind.")

    @property
    def description(self) -> str:
        """In words."""
        return "parsed only: this version accepts its options, but no boot is on record"


VariantEvidence = BootedEvidence | PublishedEvidence | DerivedEvidence | ParsedEvidence
# From the strongest to the weakest.
KINDS = ("booted", "published", "derived", "parsed")


def describe_evidence(evidence: VariantEvidence, cards: Iterable[str]) -> str:
    """It in words, for a rig.

    Args:
        evidence: What is known.
        cards: The names of the cards that the variant gets there.
    """
    if isinstance(evidence, BootedEvidence) and (others := sorted(set(cards) - {evidence.card})):
        return f"{evidence.description}; here it gets {', '.join(others)}"
    return evidence.description
