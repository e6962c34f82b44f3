"""Whether an instance fits on its cards, by what the lock has of its weights.

A first look, and never more than is needed for sure: weights and KV cache. An engine's computation, CUDA and the driver
take some of each card in addition, and layers do not divide evenly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from rigwright.engines.known_issue_rule import COMPUTED_SOURCE, KnownIssue, PlacedInstance
from rigwright.supply.artefact import KvCacheSize

if TYPE_CHECKING:
    from rigwright.engines.llama_buffers import WorkShape

GIB = 1 << 30
MIB = 1 << 20
STEP = 1024  # tokens; messages give a context that fits in such steps


@dataclass(frozen=True)
class MemoryNeed:
    """The memory of an instance on its cards."""

    weights: int
    """Bytes."""
    key: str
    """The key of its variant that says how many tokens it keeps."""
    tokens: int = 0
    """Over all requests that are served at once; 0 if unknown."""
    requests: int = 1
    """Of which each has its own share of them."""
    cache: KvCacheSize | None = None
    """None if unknown."""
    key_bytes: Fraction = Fraction(0)
    """Of one number in keys."""
    value_bytes: Fraction = Fraction(0)
    """The same in values."""
    share: float = 1.0
    """The part of each card that it may take."""
    work: WorkShape | None = None
    """None if unknown."""
    repacked: int = 0
    """Bytes that an engine without cards keeps a second time."""
    takes_share: bool = False
    """Whether it takes all of its share, whatever it needs."""
    parts: tuple[float, ...] | None = ()
    """Proportion of the model on each card; empty where all have the same, None if unknown."""
    has_unknown: bool = False
    """Whether it takes memory of unknown size, such as a KV cache of a draft without a header."""

    @property
    def is_complete(self) -> bool:
        """Whether the sizes of weights and KV caches are known."""
        return self.cache is not None and not self.has_unknown

    @property
    def token_bytes(self) -> int:
        """Bytes of the KV cache for each token, without layers that keep a window; 0 where that is not known."""
        return int(self.cache.keys * self.key_bytes + self.cache.values * self.value_bytes) if self.cache else 0

    @property
    def cache_bytes(self) -> int:
        """Bytes of the KV cache with all of its tokens, over all cards; 0 where that is not known."""
        return self.bytes_for(self.tokens) - self.weights

    def bytes_for(self, tokens: int) -> int:
        """Bytes, with so many tokens."""
        if self.cache is None:
            return self.weights
        kept = self.cache
        each = kept.keys * self.key_bytes + kept.values * self.value_bytes
        short = kept.window_keys * self.key_bytes + kept.window_values * self.value_bytes
        in_windows = min(tokens // self.requests, kept.window) * self.requests
        return self.weights + int(tokens * each + in_windows * short)

    def work_bytes(self, *, on_cards: bool) -> tuple[int, int]:
        """Bytes of computation: from the start on, and in RAM those that are taken as contexts fill."""
        again = 0 if on_cards else self.repacked
        if self.work is None or not self.tokens:
            return again, 0
        sequence = max(1, self.tokens // self.requests)
        growing = self.work.context_bytes(sequence, self.requests)
        steps = self.work.step_bytes(sequence, self.requests) + again
        return (steps + growing, 0) if on_cards else (steps, growing)

    def with_tokens(self, tokens: int, requests: int) -> MemoryNeed:
        """It with another context and number of requests."""
        return replace(self, tokens=tokens, requests=requests)

    def max_tokens(self, room: int) -> int:
        """The most tokens that fit into so many bytes, in whole steps."""
        least, most = 0, self.tokens // STEP
        while least < most:
            middle = (least + most + 1) // 2
            least, most = (middle, most) if self.bytes_for(middle * STEP) <= room else (least, middle - 1)
        return least * STEP


def memory_issues(memory: Callable[[PlacedInstance], MemoryNeed | None]) -> tuple[KnownIssue, KnownIssue]:
    """The known issues of a kind's memory: weights and KV cache.

    Args:
        memory: The memory that one of its instances keeps on cards; None if unknown.
    """

    def weights(one: PlacedInstance) -> str:
        found = memory(one)
        room = sum(card.vram_mib for card in one.cards) * MIB
        if not one.cards or found is None or found.weights <= room:
            return ""
        return (
            f"its weights need {_format_gib(found.weights)} of {_format_gib(room)} GiB: use more "
            f"cards, or a smaller model"
        )

    def context(one: PlacedInstance) -> str:
        found = memory(one)
        all_ = sum(card.vram_mib for card in one.cards) * MIB
        if not one.cards or found is None or found.weights > all_:
            return ""
        room = int(all_ * found.share)
        if (needed := found.bytes_for(found.tokens)) <= room:
            return ""
        fits = found.max_tokens(room)
        cure = f"{found.key} = {fits} would fit" if fits else "no context fits next to its weights"
        return f"needs {_format_gib(needed)} of {_format_gib(room)} GiB: {cure}"

    return KnownIssue(weights, COMPUTED_SOURCE, refused=True), KnownIssue(context, COMPUTED_SOURCE)


def _format_gib(size: int) -> str:
    return f"{size / GIB:.1f}"
