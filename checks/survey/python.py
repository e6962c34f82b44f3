"""What the host's own Python runs before it runs what it was told to."""

from __future__ import annotations

from dataclasses import dataclass

from checks.survey.section import Section


@dataclass(frozen=True)
class HostPython:
    """The distribution's interpreters."""

    foreign: list[str]
    """Absolute paths of what they run or import first, and no package has."""
    other: list[str]
    """The same of what was compiled of their modules, and is other code than those have."""


PYTHON: Section[HostPython] = Section(
    "python",
    HostPython,
    lambda scene: {},
    blind="a packaged module that somebody changed: M01 finds those",
    start_order=12,
)
