"""Users and groups, as every program on the host is told of them."""

from __future__ import annotations

from checks.survey.host import common


def look(asked: dict[str, list[str]]) -> dict[str, object]:
    """All of them.

    Args:
        asked: Nothing.
    """
    users = [line.split(":") for line in common.run("getent", "passwd").splitlines()]
    groups = [line.split(":") for line in common.run("getent", "group").splitlines()]
    return {
        "users": [
            {"name": one[0], "uid": int(one[2]), "gid": int(one[3]), "home": one[5], "shell": one[6]} for one in users
        ],
        "groups": [
            {"name": one[0], "gid": int(one[2]), "members": sorted(filter(None, one[3].split(",")))} for one in groups
        ],
    }
