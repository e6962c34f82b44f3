"""Pull mode of an inventory: where a box fetches its signed generations."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from rigwright.address_types import HttpUrl
from rigwright.problems import InventoryModel


class PullEntry(InventoryModel):
    """Where and how often a box fetches its generation."""

    EXAMPLE: ClassVar[str] = '{"url": "https://boxes.example.org/published"}'
    FOREIGN: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("server", "source", "from", "address", "repository", "base"), "url"),
        **dict.fromkeys(("interval", "every", "minutes", "period", "schedule", "timer"), "interval_minutes"),
    }

    url: HttpUrl = Field(description="The address of the folder that `rigwright sign --publish` has written.")
    interval_minutes: Literal[5, 10, 15, 20, 30, 60] = Field(
        default=15, description="Minutes between two runs; each is delayed by a random time of at most 5 minutes."
    )
