"""By what anybody becomes root on a host."""

from __future__ import annotations

from dataclasses import dataclass

from checks.survey.accounts import Line
from checks.survey.section import Section


@dataclass(frozen=True)
class Rights:
    """All of it."""

    open: list[Line]
    """Rules that ask nobody for anything."""
    programs: list[Line]
    """Programs of no package that run as root, whoever starts them."""


RIGHTS: Section[Rights] = Section("rights", Rights, lambda scene: {})
