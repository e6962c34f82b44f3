"""What lies at a path of a host (checks.survey.host.common looks)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PathFacts:
    """What lies at a path."""

    kind: str
    mode: int
    owner: str
    group: str
    listed: bool
    """Whether an access list lets in others than its mode says."""
