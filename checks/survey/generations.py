"""The generations that lie on a host, every file of them, and what stands beside them."""

from __future__ import annotations

from dataclasses import dataclass

from checks.survey.section import Section
from rigwright.serving.generation import ACTIVATING, META, PROVEN


@dataclass(frozen=True)
class StoredGeneration:
    """A generation that lies there."""

    number: int
    sealed: str
    """Its digest when it was written, by itself."""
    files: dict[str, str]
    """Path -> SHA-256 and mode, with a space between; of a link `-> ` and where it leads."""
    lost: list[str]
    """What it refers to and is not there."""
    proven: bool
    """Whether all its instances have answered once."""


@dataclass(frozen=True)
class Generations:
    """All of them."""

    kept: list[StoredGeneration]
    current: str
    """What the link says; empty for none."""
    activating: bool
    """Whether an activation was begun and not finished."""
    beside: list[str]
    """Names in the configuration's folder."""


GENERATIONS: Section[Generations] = Section(
    "generations",
    Generations,
    lambda scene: {
        "config": scene.rig.roots.config,
        "folder": scene.rig.roots.generations,
        "meta": META,
        "proven": PROVEN,
        "activating": ACTIVATING,
    },
    blind="a change that was made and undone between two checks",
    start_order=19,
)
