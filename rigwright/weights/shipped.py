"""The programs that look after weights on a host, as they are shipped."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from rigwright.weights.records import PACKAGE

# What runs on hosts; it imports nothing but itself and the standard library.
PROGRAMS = Path(__file__).resolve().parents[2] / "roles/weights/host"


@cache
def texts() -> dict[str, str]:
    """Path below the folder of programs -> text."""
    return {f"{PACKAGE}/{path.name}": path.read_text() for path in sorted(PROGRAMS.glob("*.py"))}
