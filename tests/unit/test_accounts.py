"""The survey's facts about accounts, on made-up folders, and the checks' verdicts about them."""

import grp
import os
import pwd
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from checks import Drift, test_accounts, test_base
from checks.survey.accounts import ACCOUNTS, Accounts
from checks.survey.answers import SurveyAnswers
from checks.survey.host import accounts
from checks.survey.section import SurveyScope
from rigwright.model.rig import account_names
from tests.unit import samples
from tests.unit.check_runner import red_checks

RIG = samples.sample_rig(samples.sample_instance())
(NAME,) = account_names(RIG)
UID = 990


class AccountsFixture:
    """A host's files and NSS."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.users = [("root", "x", 0, 0, "", "/root", "/bin/bash"), (NAME, "x", UID, UID, "", "/nonexistent", NOLOGIN)]
        self.groups: list[tuple[str, str, int, list[str]]] = [("root", "x", 0, []), (NAME, "x", UID, [])]
        self.beside: list[int] = []
        self.write("etc/shadow", f"root:*:1:0::::\n{NAME}:!:1::::::\n").chmod(0o640)
        self.write("etc/gshadow", f"{NAME}:!::\n").chmod(0o640)
        self.write("etc/passwd", "")
        self.process(10, "llama-server", f"0::/rigwright.slice/{RIG.instances[0].unit}")

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def process(self, pid: int, name: str, cgroup: str, uids: str = f"{UID} {UID} {UID} {UID}") -> None:
        self.write(f"proc/{pid}/status", f"Name:\t{name}\nUid:\t{uids}\n")
        self.write(f"proc/{pid}/cgroup", f"{cgroup}\n")

    def check_messages(self) -> dict[str, object]:
        asked: Any = ACCOUNTS.asks(SurveyScope(RIG, None))  # type: ignore[arg-type]
        return accounts.look(asked | {"home": str(self.folder / "home")})

    def red(self) -> dict[str, str]:
        survey = SurveyAnswers(
            {
                "accounts": {"told": self.check_messages()},
                "managed_files": {"failed": "x"},
                "base_system": {"failed": "x"},
            }
        )
        found = red_checks(test_accounts, survey, rig=RIG)
        return found | {name: said for name, said in red_checks(test_base, survey, rig=RIG).items() if name == "B01"}


NOLOGIN = "/usr/sbin/nologin"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AccountsFixture:
    made = AccountsFixture(tmp_path)
    for name in ("PROC", "ETC"):
        monkeypatch.setattr(accounts, name, tmp_path / name.lower())
    (tmp_path / "proc/self").mkdir(parents=True)
    monkeypatch.setattr(pwd, "getpwall", lambda: [pwd.struct_passwd(one) for one in made.users])
    monkeypatch.setattr(grp, "getgrall", lambda: [grp.struct_group(one) for one in made.groups])
    monkeypatch.setattr(os, "getgrouplist", lambda name, gid: [gid, *made.beside])
    return made


def test_accounts_that_are_in_order_are(world: AccountsFixture) -> None:
    assert world.red() == {}


def user(*changes: object) -> Callable[[AccountsFixture], object]:
    return lambda world: world.users.append(("eve", "x", *changes))  # type: ignore[arg-type]


def change_user(at: int, value: object) -> Callable[[AccountsFixture], object]:
    def change(world: AccountsFixture) -> None:
        row: list[Any] = list(world.users[1])
        row[at] = value
        world.users[1] = tuple(row)

    return change


def file(name: str, text: str) -> Callable[[AccountsFixture], object]:
    return lambda world: world.write(name, text)


DRIFTS: dict[str, tuple[Callable[[AccountsFixture], object], set[str], str]] = {
    "no user": (lambda world: world.users.pop(), {"B01"}, f"found no user {NAME}"),
    "a shell": (change_user(6, "/bin/sh"), {"B01"}, "with shell /bin/sh"),
    "a home": (change_user(5, "/srv"), {"B01"}, "and home /srv"),
    "a twin": (user(UID, 5, "", "", ""), {"A01"}, f"eve with UID {UID} of {NAME}"),
    "a name twice": (lambda world: world.users.append(world.users[1]), {"A01"}, f"{NAME} twice"),
    "another's first group": (user(1000, UID, "", "", ""), {"A01"}, f"eve with GID {UID}"),
    "a group's twin": (lambda world: world.groups.append(("eve", "x", UID, [])), {"A01"}, "eve with GID"),
    "a number of people": (change_user(2, 1500), {"A01"}, "with UID 1500"),
    "another first group": (change_user(3, 0), {"A01"}, "root with GID 0"),
    "a group of the host's": (lambda world: world.beside.append(0), {"A02"}, f"found {NAME} in root"),
    "a member": (lambda world: world.groups[1][3].append("eve"), {"A02"}, f"found eve in {NAME}"),
    "a member by shadow's list": (file("etc/gshadow", f"{NAME}:!::eve\n"), {"A02"}, f"found eve in {NAME}"),
    "who runs the group": (file("etc/gshadow", f"{NAME}:!:eve:\n"), {"A02"}, f"found eve in {NAME}"),
    "a password": (file("etc/shadow", f"{NAME}:$6$x$y:1::::::\n"), {"A03"}, f"found {NAME}: set"),
    "an empty password": (file("etc/shadow", f"{NAME}::1::::::\n"), {"A03"}, f"found {NAME}: empty"),
    "no need of shadow's": (change_user(1, ""), {"A03"}, f"found {NAME}: empty"),
    "a hash for all to read": (change_user(1, "$6$x$y"), {"A03"}, f"found {NAME}: set"),
    "a group's password": (file("etc/gshadow", f"{NAME}:$6$x$y::\n"), {"A03"}, f"group {NAME}: set"),
    "a home that is there": (file("home/.ssh/authorized_keys", "x"), {"A04"}, "an entry at /nonexistent"),
    "a process": (lambda world: world.process(11, "sh", "0::/user.slice"), {"A08"}, "sh (pid 11) in /user.slice"),
    "a process that was it": (
        lambda world: world.process(11, "sh", "0::/x.service", f"0 0 {UID} 0"),
        {"A08"},
        f"as {NAME}",
    ),
    "a process of a unit called as those of checks": (
        lambda world: world.process(11, "sh", "0::/user.slice/rw-check-1-x.service"),
        {"A08"},
        "sh (pid 11)",
    ),
}


@pytest.mark.skipif(os.geteuid() != 0, reason="files are root's")
@pytest.mark.parametrize("drift", DRIFTS)
def test_drift_is_seen(world: AccountsFixture, drift: str) -> None:
    change, expected, text = DRIFTS[drift]
    change(world)
    found = world.red()
    assert set(found) == expected, found
    assert text in " ".join(found.values())


HARMLESS: dict[str, Callable[[AccountsFixture], object]] = {
    "an operator's account": user(1000, 1000, "", "/home/eve", "/bin/bash"),
    "another run of checks": lambda world: world.process(11, "sh", "0::/system.slice/rw-check-1-x.service"),
    "a process of root's": lambda world: world.process(12, "sh", "0::/user.slice", "0 0 0 0"),
    "control groups of before": lambda world: world.process(
        10, "x", f"9:name=systemd:/x/{RIG.instances[0].unit}\n1:cpu:/\n0::/"
    ),
}


@pytest.mark.parametrize("what", HARMLESS)
def test_harmless_states_turn_nothing_red(world: AccountsFixture, what: str) -> None:
    HARMLESS[what](world)
    assert world.red() == {}


def test_the_folders_of_an_instance_are_its_users(world: AccountsFixture) -> None:
    made = SurveyAnswers({"accounts": {"told": world.check_messages()}}).read(ACCOUNTS)
    (instance,) = RIG.instances
    told = SimpleNamespace(path=str(Path(instance.socket).parent), mode=0o750, uid=7, gid=UID)
    changed = Accounts(**{**vars(made), "folders": [told]})
    with pytest.raises(Drift, match="of user 7 and group"):
        test_accounts.test_folders(
            SimpleNamespace(read=lambda section: changed), RIG.accounts, RIG.instances, RIG.gateway
        )  # type: ignore[arg-type]
    told.uid = UID
    test_accounts.test_folders(SimpleNamespace(read=lambda section: changed), RIG.accounts, RIG.instances, RIG.gateway)  # type: ignore[arg-type]
