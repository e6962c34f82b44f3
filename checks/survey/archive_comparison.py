"""Comparison of a host's packages with their files in archives."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ArchiveComparison:
    """Packages that were compared with their files in archives: with `deep` alone."""

    packages: int
    bytes: int
    """Size of the package files."""
    seconds: float
    left: list[str]
    """Those that were not: `NAME VERSION: REASON`."""
