"""What is read of an engine's log: what it says of itself at a start, and why one came to nothing."""

from __future__ import annotations

from dataclasses import dataclass

# Of the room for tokens between two starts that are alike: what CUDA and the driver take of a card differs by some MiB.
DRIFT = 0.05


@dataclass(frozen=True)
class Begun:
    """What an engine has said of itself at a start; None and empty where it has not."""

    kv_tokens: int | None = None
    """Tokens that its KV cache has room for."""
    backend: str = ""
    """What computes attention."""
    load_seconds: float | None = None
    """What loading the weights and preparing to serve took, without what came before."""

    def like(self, first: Begun) -> bool:
        """Whether it runs as it did at another start: what it has room for depends on what else the card holds."""
        tokens, then = self.kv_tokens or 0, first.kv_tokens or 0
        return self.backend == first.backend and abs(tokens - then) <= then * DRIFT


@dataclass(frozen=True)
class Cause:
    """Why a start failed or hung, as a line of its log betrays it."""

    said: str
    """What the line has in it."""
    text: str
    """What that likely means, and what helps."""
    last: bool = False
    """Whether it betrays something only where nothing came after it."""
