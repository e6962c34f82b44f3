"""Offline benches: engines' own programs that measure them without a server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OfflineMeasure = Literal["throughput", "latency"]


@dataclass(frozen=True)
class OfflineBenchSpec:
    """The measurement."""

    what: OfflineMeasure
    requests: int
    """All of them, which the engine takes as it likes; of a latency, those of one batch."""
    input_tokens: int
    """Of each prompt, picked at random."""
    output_tokens: int
    """Of each answer, which ends no earlier."""
    repeats: int = 1
    """Batches that are measured; of a throughput, one run is all."""

    @property
    def description(self) -> str:
        """In words."""
        batches = f"{self.repeats} batches of " if self.what == "latency" else ""
        return f"{batches}{self.requests} requests, {self.input_tokens} tokens in and {self.output_tokens} out"


@dataclass(frozen=True)
class OfflineBench:
    """How it is run."""

    command: tuple[str, ...]
    """A Python that reads its program from standard input, and its arguments."""
    program: str
    marker: str
    """The prefix of the line whose rest is the result as JSON."""
