"""Users and groups as programs on the host see them, and processes of ours."""

from __future__ import annotations

import grp
import os
import pwd
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from checks.survey.host import common

PROC = Path("/proc")
ETC = Path("/etc")


def look(asked: dict[str, object]) -> dict[str, object]:
    """All users and groups, and of ours what a login or a process has of them.

    Args:
        asked: `users`: names of ours; `home`: the one that they have; `folders`: paths of theirs.
    """
    names = [str(one) for one in _list(asked["users"])]
    users = pwd.getpwall()
    passwords = {words[0]: words[1] for words in _rows(ETC / "shadow")}
    group_rows = {words[0]: words for words in _rows(ETC / "gshadow")}
    numbers = {one.pw_uid: one.pw_name for one in users if one.pw_name in names}
    return {
        "users": [
            {"name": one.pw_name, "uid": one.pw_uid, "gid": one.pw_gid, "home": one.pw_dir, "shell": one.pw_shell}
            for one in users
        ],
        "groups": [{"name": one.gr_name, "gid": one.gr_gid, "members": sorted(one.gr_mem)} for one in grp.getgrall()],
        "ours": [
            {
                "name": one.pw_name,
                "password": _password(one.pw_passwd, passwords.get(one.pw_name, "!")),
                "groups": sorted(os.getgrouplist(one.pw_name, one.pw_gid)),
                "group_password": _group_password(group_rows.get(one.pw_name, [])),
                "group_admins": _field(group_rows.get(one.pw_name, []), 2),
                "group_members": _field(group_rows.get(one.pw_name, []), 3),
            }
            for one in users
            if one.pw_name in names
        ],
        "home": os.path.lexists(str(asked["home"])),
        "processes": list(_processes(numbers)),
        "folders": [_file(path) for one in _list(asked["folders"]) if os.path.lexists(path := Path(str(one)))],
    }


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(f"no list: {value!r}")
    return value


def _rows(path: Path) -> Iterator[list[str]]:
    for line in common.lines(common.read(path) or ""):
        words = line.split(":")
        if len(words) > 3:
            yield words


def _password(given: str, shadow: str) -> str:
    """The password of a login, of passwd's own field and shadow's: `none`, `empty` or `set`. Never the hash."""
    field = shadow if given == "x" else given
    if not field:
        return "empty"
    return "none" if field[0] in "!*" else "set"


def _group_password(row: list[str]) -> str:
    # without one only members get in (gshadow(5))
    return _password("x", row[1] or "!") if len(row) > 1 else "none"


def _field(row: list[str], at: int) -> list[str]:
    return sorted(filter(None, row[at].split(","))) if len(row) > at else []


def _processes(numbers: dict[int, str]) -> Iterator[dict[str, object]]:
    """Processes that have the number of one of ours, in any of the places that the kernel has one in."""
    for folder in PROC.iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError):
            text = (folder / "status").read_text(errors="replace")
            uids = re.search(r"^Uid:\s+([0-9\s]+)$", text, re.MULTILINE)
            found = {int(one) for one in uids[1].split()} & set(numbers) if uids else set()
            if not found:
                continue
            name = re.search(r"^Name:\s+(.*)$", text, re.MULTILINE)
            yield {
                "user": numbers[min(found)],
                "pid": int(folder.name),
                "name": name[1] if name else "",
                "unit": _unit((folder / "cgroup").read_text(errors="replace")),
            }


def _unit(cgroups: str) -> str:
    """The path below the root of the control group that systemd has put a process in."""
    paths = {}
    for line in common.lines(cgroups):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        paths[controllers or number] = path
    return paths["0"] if paths.get("0", "/") != "/" else paths.get("name=systemd", "/")


def _file(path: Path) -> dict[str, object]:
    found = path.lstat()
    return {"path": str(path), "mode": found.st_mode, "uid": found.st_uid, "gid": found.st_gid}
