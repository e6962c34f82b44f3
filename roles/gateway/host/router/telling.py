"""What the router says to whoever reads its journal."""

from __future__ import annotations

import sys

MOST = 400
"""Characters of a line."""


def say(text: str) -> None:
    """Write one line, plain and bounded."""
    plain = "".join(one if " " <= one <= "~" else "?" for one in text[:MOST])
    print(f"router: {plain}", file=sys.stderr, flush=True)
