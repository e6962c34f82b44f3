"""One thing that goes wrong with an instance on its cards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rigwright.model.catalog_schema import Card
from rigwright.model.instance import Instance

COMPUTED_SOURCE = "only weights and KV cache"
"""The source of computed statements about memory."""


@dataclass(frozen=True)
class PlacedInstance:
    """An instance on the cards that it runs on."""

    instance: Instance
    cards: tuple[Card, ...]
    patches: frozenset[str]
    """Names of those that its engine, or its environment, carries."""


@dataclass(frozen=True)
class KnownIssue:
    """One thing that goes wrong."""

    describe: Callable[[PlacedInstance], str]
    """The problem of an instance, and its remedy; empty where there is none."""
    source: str
    """Where that is known from."""
    refused: bool = False
    """Whether it ends, or answers wrongly, for sure; else it is only said."""
