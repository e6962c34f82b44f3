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
    loose: list[Line]
    """Programs that root starts, and others than root can change or put there, with how."""
    changed: list[Line]
    """Scripts of packages that root runs, and that are not as they were brought."""
    ways: list[Line]
    """Settings of sshd's that let others in, or shut out who asks."""
    programs: list[Line]
    """Programs of no package that run as root, whoever starts them."""


RIGHTS: Section[Rights] = Section("rights", Rights, lambda scene: {})
