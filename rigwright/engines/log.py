"""What is read of an engine's log: what it says of itself at a start, and why one came to nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
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
    """What a line of an engine's log betrays: why a start failed or hung, or why answers are slow or wrong."""

    said: str
    """What the line has in it."""
    means: str
    """What that likely means, and what helps."""
    last: bool = False
    """Whether it betrays something only where nothing came after it."""
    check: str = ""
    """The check that looks at that on the host; empty where none does."""
    harmless: bool = False
    """Whether it looks like a fault, and is none."""

    @property
    def text(self) -> str:
        """What it means, what helps, and which check says more."""
        return f"{self.means} (`rigwright check --only {self.check}` says more)" if self.check else self.means

    @property
    def sentence(self) -> str:
        """For who reads a log."""
        return f"harmless: {self.text}" if self.harmless else f"likely cause: {self.text}"


# Those of every engine on cards: parts of messages of CUDA's and of the loader's.
OF_CUDA = (
    Cause("libcuda.so.1: cannot open shared object file", "the driver's libraries are not there", check="N02"),
    Cause(
        "CUDA driver version is insufficient for CUDA runtime version",
        "the driver is older than what the engine was built with: upgrade it",
        check="N02",
    ),
    Cause("forward compatibility was attempted on non supported HW", "the driver is too old for it", check="N02"),
    Cause(
        "no kernel image is available for execution on the device",
        "what computes has no machine code for these cards: lock a build that has",
    ),
)


def faults(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    """Those that are no false alarm."""
    return tuple(one for one in causes if not one.harmless)


def betrayed(causes: Iterable[Cause], line: str) -> Iterator[Cause]:
    """What a line betrays, whatever comes after it."""
    return (one for one in causes if one.said in line and not one.last)


def symptom(cause: Cause) -> str:
    """The name that a cause goes by in reports: what its line has in it, in small letters."""
    return re.sub(r"[^a-z0-9]+", "-", cause.said.lower()).strip("-")[:48]
