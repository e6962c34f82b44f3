"""Purpose of a variant: the need that it meets, the workloads that it suits, and the reason to choose it."""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

from pydantic import Field

from rigwright.problems import FrozenModel
from rigwright.types import CatalogName, Text, VariantName

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
