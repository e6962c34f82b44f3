"""Users and groups of a host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from checks.survey.section import Section, SurveyScope
from rigwright.model.instance import Instance
from rigwright.model.rig import account_names
from rigwright.plan.preflight import HOME

# Shell of accounts without a login
NO_LOGIN = "/usr/sbin/nologin"


@dataclass(frozen=True)
class SurveyUser:
    """A line of what NSS calls passwd."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str


@dataclass(frozen=True)
class SurveyGroup:
    """A line of what NSS calls group."""

    name: str
    gid: int
    members: list[str]


@dataclass(frozen=True)
class ServiceAccount:
    """A user of a service's."""

    name: str
    password: str
    """`none`, `empty` or `set`."""
    groups: list[int]
    """Numbers of all groups that its processes are given."""
    group_password: str
    """As `password`, of the group of that name."""
    group_admins: list[str]
    group_members: list[str]
    """Members by shadow's file of groups."""


@dataclass(frozen=True)
class AccountProcess:
    """A process of a service's user."""

    user: str
    pid: int
    name: str
    unit: str
    """The path of its control group."""


@dataclass(frozen=True)
class OwnedFile:
    """A file or folder, and its owner."""

    path: str
    mode: int
    uid: int
    gid: int


@dataclass(frozen=True)
class Accounts:
    """All users and groups, and what there is of ours."""

    users: list[SurveyUser]
    groups: list[SurveyGroup]
    ours: list[ServiceAccount]
    home: bool
    """Whether something lies at a home that must not exist."""
    processes: list[AccountProcess]
    folders: list[OwnedFile]
    """Those of ours that systemd has made for them, as far as they are there."""

    def user(self, name: str) -> SurveyUser | None:
        """The first of that name."""
        return next((one for one in self.users if one.name == name), None)

    def group_names(self, gid: int) -> str:
        """The names of the groups of a number."""
        return "/".join(one.name for one in self.groups if one.gid == gid) or str(gid)


def socket_folder(instance: Instance) -> str:
    """The folder of an instance's socket: its user's, and its clients' group's."""
    return str(PurePosixPath(instance.socket).parent)


def _asks(scene: SurveyScope) -> object:
    rig = scene.rig
    folders = [socket_folder(one) for one in rig.instances]
    return {"users": list(account_names(rig)), "home": HOME, "folders": folders}


ACCOUNTS: Section[Accounts] = Section(
    "accounts",
    Accounts,
    _asks,
    blind="accounts in a directory service that does not list them (LDAP, or SSSD without enumeration)",
    start_order=15,
)
