"""Sizes of llama.cpp's KV cells and compute buffers. Python's standard library only."""

from __future__ import annotations

from dataclasses import dataclass

MICRO_BATCH = 512  # llama-server's --ubatch-size
KV_STEP = 256  # llama.cpp pads the KV cells of a sequence to a multiple of this


def llama_windowed_cells(sequence: int, window: int, batch: int = MICRO_BATCH) -> int:
    """KV cells of a sequence in layers that keep a window (llama-kv-cache-iswa.cpp).

    Args:
        sequence: Tokens of one sequence.
        window: Tokens of the window.
        batch: Tokens that are computed at once.
    """
    return min(sequence, -(-(window + batch) // KV_STEP) * KV_STEP)


@dataclass(frozen=True)
class WorkShape:
    """The sizes of a model that its computation depends on."""

    width: int
    """Numbers of a token between layers."""
    feed_forward: int
    """Numbers of a token in a layer's widest step."""
    heads: int
    """Of attention."""
    batch: int = MICRO_BATCH
    """Tokens that are computed at once."""
    flash: bool = True
    """Whether attention is computed without a matrix of all scores."""
    windowed: bool = False
    """Whether there are layers that keep a window, which have a mask of their own."""

    def step_bytes(self, sequence: int, sequences: int) -> int:
        """The part of llama.cpp's compute buffer that any full batch needs.

        Args:
            sequence: KV cells of one sequence.
            sequences: How many there are.
        """
        return min(self.batch, sequence * sequences) * 4 * (3 * self.feed_forward + 4 * self.width)

    def context_bytes(self, sequence: int, sequences: int) -> int:
        """The part that grows with the context: reserved at once, and touched as that fills.

        Args:
            sequence: KV cells of one sequence.
            sequences: How many there are.
        """
        tokens = min(self.batch, sequence * sequences)
        mask = tokens * sequence * (2 if self.flash else 4) * (2 if self.windowed else 1)
        scores = 0 if self.flash else tokens * sequence * self.heads * 4
        return mask + scores
