"""By what anybody becomes root on a host."""

from __future__ import annotations

from dataclasses import dataclass

from checks.survey.accounts import AccountFileLine
from checks.survey.section import Section


@dataclass(frozen=True)
class Rights:
    """All of it."""

    open: list[AccountFileLine]
    """Rules that ask nobody for anything."""
    loose: list[AccountFileLine]
    """Programs that root starts, and others than root can change or put there, with how."""
    changed: list[AccountFileLine]
    """Scripts of packages that root runs, and that are not as they were brought."""
    ways: list[AccountFileLine]
    """Settings of sshd's that let others in, or shut out who asks."""
    programs: list[AccountFileLine]
    """Programs of no package that run as root, whoever starts them."""


RIGHTS: Section[Rights] = Section(
    "rights",
    Rights,
    lambda scene: {},
    blind="rules that ask and accept any answer; setuid programs in unusual places, or past an owner's 5,000 files",
    start_order=4,
)
