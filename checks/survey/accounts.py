"""Users and groups of a host."""

from __future__ import annotations

from dataclasses import dataclass

from checks.survey.section import Section


@dataclass(frozen=True)
class User:
    """A line of what NSS calls passwd."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str


@dataclass(frozen=True)
class Group:
    """A line of what NSS calls group."""

    name: str
    gid: int
    members: list[str]


@dataclass(frozen=True)
class Accounts:
    """All users and groups."""

    users: list[User]
    groups: list[Group]

    def user(self, name: str) -> User | None:
        """The first of that name."""
        return next((one for one in self.users if one.name == name), None)


ACCOUNTS: Section[Accounts] = Section("accounts", Accounts, lambda scene: {})
