"""Directories above Rigwright's files, and what is mounted at, above or below them, now and after a boot."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from checks.survey.host import mount_table

RIGHTS = ("system.posix_acl_access", "system.posix_acl_default")
DEEPEST = 40  # links that lead to links


def look(asked: dict[str, list[str]]) -> dict[str, object]:
    """All of it.

    Args:
        asked: `roots`, the folders; `below`, those of them in which nothing is mounted either.
    """
    roots, below = asked["roots"], asked["below"]
    real = {root: os.path.realpath(root) for root in roots}
    at_boot, there = mount_table.list_boot_points(), mount_table.list_mounts(1)
    now = {one.point for one in there}
    return {
        "folders": {root: way(root) for root in roots},
        "real": real,
        "mounts": [
            {
                "point": one.point,
                "root": one.root,
                "kind": one.kind,
                "source": one.source,
                "options": list(one.options),
                "boot": one.point in at_boot,
            }
            for one in there
            if concerns(one.point, [*roots, *real.values()], roots)
        ],
        "waiting": sorted(point for point in at_boot - now if point != "/" and concerns(point, roots, below)),
    }


def concerns(point: str, roots: list[str], below: list[str]) -> bool:
    """Whether something mounted there is on the way to what is ours, or covers some of it."""
    inside = point.rstrip("/") + "/"
    return any(f"{root}/".startswith(inside) for root in roots) or any(inside.startswith(f"{one}/") for one in below)


def way(root: str) -> list[dict[str, object]]:
    """The folders from / to a root."""
    found: dict[str, dict[str, object]] = {}
    left, followed = [Path(root)], 0
    while left:
        target = left.pop()
        for path in [*reversed(target.parents), target]:
            if str(path) in found:
                continue
            found[str(path)] = made = folder(path)
            if made["kind"] == "link" and followed < DEEPEST:
                followed += 1
                left.append(Path(os.path.normpath(path.parent / path.readlink())))
    return list(found.values())


def folder(path: Path) -> dict[str, object]:
    """The file system's record of one."""
    try:
        state = path.lstat()
    except OSError:
        return {"path": str(path), "kind": "nothing", "uid": 0, "gid": 0, "mode": 0, "rights": []}
    kinds = (("folder", stat.S_ISDIR), ("link", stat.S_ISLNK))
    kind = next((name for name, test in kinds if test(state.st_mode)), "other")
    given: list[str] = []
    if kind == "folder":
        try:
            given = [name for name in os.listxattr(path) if name in RIGHTS]
        except OSError:
            given = []
    values = {"uid": state.st_uid, "gid": state.st_gid, "mode": stat.S_IMODE(state.st_mode), "rights": given}
    return {"path": str(path), "kind": kind, **values}
