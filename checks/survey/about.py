"""What a report says of a host beside its checks."""

from __future__ import annotations

from dataclasses import dataclass

from checks.survey.section import Section


@dataclass(frozen=True)
class About:
    """A host in a few words."""

    clock: str
    """Its own, in UTC."""
    generation: int | None
    """Where `current` leads; None for nowhere, or to none of ours."""
    versions: dict[str, str]
    """What it runs."""


ABOUT: Section[About] = Section(
    "about",
    About,
    lambda scene: {"config": scene.rig.roots.config},
    blind="a clock that is wrong in the same way as this machine's",
    start_order=21,
)
