"""The owners of what engines have compiled at run time."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from checks.survey.host import common

SHOWN = 20  # of a list
RIGHTS = ("system.posix_acl_access", "system.posix_acl_default")


def look(asked: dict[str, list[str]]) -> dict[str, object]:
    """All of it.

    Args:
        asked: `own`, folders of instances; `above`, those that they are in; `warm`, what root keeps for all.
    """
    loose = [path for path in asked["above"] if unfit(path)]
    loose += [path for warm in asked["warm"] for path in walk(warm) if unfit(path)]
    return {
        "own": {path: describe_cache_folder(path) for path in asked["own"]},
        "loose": [common.plain(path) for path in loose[:SHOWN]],
    }


def describe_cache_folder(path: str) -> dict[str, object]:
    """The instance that one belongs to."""
    try:
        state = Path(path).lstat()
    except FileNotFoundError:
        return {"owner": "", "mode": 0, "others": []}
    others = {one.st_uid for found in walk(path) if (one := lstat(found)) and one.st_uid != state.st_uid}
    names = sorted(map(user, others))[:SHOWN]
    return {"owner": user(state.st_uid), "mode": stat.S_IMODE(state.st_mode), "others": names}


def walk(top: str) -> Iterator[str]:
    """All paths in a folder, itself first."""
    yield top
    for folder, folders, names in os.walk(top):
        yield from (f"{folder}/{name}" for name in [*folders, *names])


def lstat(path: str) -> os.stat_result | None:
    """A path's state; None where it has gone, or is longer than a path can be: an instance may make any."""
    try:
        return Path(path).lstat()
    except OSError:
        return None


def unfit(path: str) -> bool:
    """Whether others than root can change it."""
    state = lstat(path)
    if state is None or stat.S_ISLNK(state.st_mode):
        return state is not None and state.st_uid != 0
    try:
        given = [name for name in os.listxattr(path, follow_symlinks=False) if name in RIGHTS]
    except OSError:
        given = []
    return bool(state.st_uid != 0 or state.st_mode & 0o022 or given)


def user(uid: int) -> str:
    """A user's name; its number where it has none."""
    try:
        return common.plain(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return str(uid)
