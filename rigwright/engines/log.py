"""What is read of an engine's log: what it says of itself at a start, and why one came to nothing."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# Of the room for tokens between two starts that are alike: what CUDA and the driver take of a card differs by some MiB.
DRIFT = 0.05
# Characters of a line that are searched: the effort of a search can grow with the square of them, or worse.
LONGEST = 1000


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
    """A known cause of a failed or hung start, or of slow or wrong answers, and the lines of a log that show it."""

    id: str
    """Name of the symptom in reports, the same on every box."""
    pattern: str
    """Regular expression that a line contains; it matches within one line and has no nested repetition."""
    means: str
    """The likely meaning, and the remedy."""
    last: bool = False
    """Whether the line counts only if nothing follows it."""
    check: str = ""
    """The checks that look at that on the host, with commas between; empty if there is none."""
    harmless: bool = False
    """Whether the line looks like a fault and is not one."""
    general: bool = False
    """Whether the line only reports that something else failed, whose own line is the cause."""

    @property
    def text(self) -> str:
        """The meaning, the remedy, and the check that says more."""
        return f"{self.means} (see `rigwright check --only {self.check}`)" if self.check else self.means

    @property
    def sentence(self) -> str:
        """The text for a reader of the log."""
        return f"harmless: {self.text}" if self.harmless else f"likely cause: {self.text}"


def matching_cause(causes: Iterable[Cause], line: str) -> Cause | None:
    """The first cause whose pattern a line contains; specific causes come before general ones."""
    return next((one for one in causes if re.search(one.pattern, line[:LONGEST])), None)


def matched_lines(causes: Iterable[Cause], lines: Sequence[str]) -> dict[Cause, list[int]]:
    """Cause -> indexes of the lines that show it. A line shows the first cause that matches it, and no other.

    Args:
        causes: In the order of precedence.
        lines: Each without a line break.
    """
    lines = [line[:LONGEST] for line in lines]
    text = "\n".join(lines)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    claimed: set[int] = set()
    found: dict[Cause, list[int]] = {}
    for cause in causes:
        for match in re.finditer(cause.pattern, text, re.MULTILINE):
            number = bisect_right(starts, match.start()) - 1
            if number not in claimed:
                claimed.add(number)
                found.setdefault(cause, []).append(number)
    return found


def faults(causes: Iterable[Cause]) -> tuple[Cause, ...]:
    """Those that are not harmless."""
    return tuple(one for one in causes if not one.harmless)
