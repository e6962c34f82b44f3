"""Engines and variants in a catalogue: keys, purposes and published evidence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal, get_args

from pydantic import Field, ValidationInfo, field_validator, model_validator

from rigwright.problems import FrozenModel
from rigwright.validated_types import CatalogName, Day, Seconds, Text, VariantName

Need = Literal["throughput", "context", "streams", "one-card"]
# need -> its meaning, for people
NEEDS: dict[Need, str] = {
    "throughput": "highest tokens per second",
    "context": "the longest context without a crash",
    "streams": "four streams or more at once",
    "one-card": "the most that one card can do",
}
Workload = Literal["chat", "code", "agents", "vision", "documents", "api", "translation"]
WORKLOADS: tuple[Workload, ...] = get_args(Workload)


class Purpose(FrozenModel):
    """Purpose of a variant."""

    cards: tuple[CatalogName, ...] = Field(
        default=(), description="Entries of the table `cards` that it is made for; default: any that it fits."
    )
    needs: tuple[Need, ...] = Field(default=(), description="Purposes, most important first.")
    workloads: tuple[Workload, ...] = Field(default=(), description="Workloads that it suits.")
    why: Text = Field(description="Why to choose it over others.")


class BlockedVariant(FrozenModel):
    """A variant that others have and that cannot be had here: its name leads to the reason."""

    RENAMED: ClassVar[dict[str, str]] = {"instead": "alternative"}

    why: Text = Field(description="The reason.")
    alternative: tuple[VariantName, ...] = Field(default=(), description="Variants to use instead.")

    @property
    def refusal(self) -> str:
        """In words, after its name."""
        return f"is blocked: {self.why}" + (f"; instead: {', '.join(self.alternative)}" if self.alternative else "")


CPU = "CPU"


class BootedEvidence(FrozenModel):
    """The catalogue's author deployed it and got an answer."""

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
    """Another party published it; the catalogue's author did not boot it."""

    kind: Literal["published"] = Field(description="Kind.")
    source: Text = Field(description="Where.")
    condition: Text = Field(description="The conditions there: cards, engine and version, power limit.")
    figures: Text | None = Field(default=None, description="The figures reported there.")

    @property
    def description(self) -> str:
        """In words."""
        figures = f": {self.figures}" if self.figures else ""
        return f"published by {self.source} ({self.condition}){figures}; not measured again"


class DerivedEvidence(FrozenModel):
    """Derived from a booted or published variant, and not booted itself."""

    kind: Literal["derived"] = Field(description="Kind.")
    origin: Text = Field(description="Its origin: a variant of the catalogue (`engine/name`), or a publication.")
    change: Text = Field(description="What differs.")

    @property
    def description(self) -> str:
        """In words."""
        return f"derived from {self.origin} ({self.change}); never booted"


class ParsedEvidence(FrozenModel):
    """Only its options were validated: `plan` and `deploy` warn."""

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
        evidence: The evidence.
        cards: The names of the cards that the variant gets there.
    """
    if isinstance(evidence, BootedEvidence) and (others := sorted(set(cards) - {evidence.card})):
        return f"{evidence.description}; here it gets {', '.join(others)}"
    return evidence.description


class EngineKeys(FrozenModel):
    """Common keys of engines."""

    kind: str = Field(description="Which kind of engine it is: a folder of rigwright/engines.")
    needs_toolkit: ClassVar[bool] = False
    """Whether it is made with a CUDA toolkit where it is for cards."""

    @property
    def environment(self) -> str | None:
        """The environment of the catalogue that it runs in; None where it is installed by itself."""
        return None


class PatchedKeys(EngineKeys):
    """Common keys of engines that may be patched by themselves."""

    patches: tuple[CatalogName, ...] = Field(
        default=(), description="Its patches: folders in `patches/`, shipped or next to the inventory."
    )


class VariantKeys(FrozenModel):
    """A serving recipe: model, engine, cards, and what its engine's kind has keys for."""

    FOREIGN: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("ctxsize", "nctx", "contextsize", "contextlength", "maxmodellen", "maxlength"), "context"),
        **dict.fromkeys(("gpu", "gpus", "ngpus", "tensorparallel", "tensorparallelsize", "tp"), "cards"),
        **dict.fromkeys(("env", "variables"), "environment"),
        **dict.fromkeys(("np", "slots", "nparallel", "maxnumseqs"), "parallel"),
    }

    engine: CatalogName = Field(description="An entry of the table `engines`.")
    model: CatalogName = Field(description="An entry of the table `models`.")
    cards: int = Field(default=0, ge=0, le=16, strict=True, description="Cards per instance; 0 serves on the CPU.")
    ready_timeout: Seconds = Field(default=600, description="Start timeout until the first answer, seconds.")
    evidence: VariantEvidence | None = Field(
        default=None, discriminator="kind", description="Evidence: where it ran, and under which conditions."
    )
    purpose: Purpose | None = Field(default=None, description="Purpose, as shown by `rigwright show variants`.")

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
