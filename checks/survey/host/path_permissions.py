"""Directories above Rigwright's files, and what is mounted at, above or below them, now and after a boot."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from checks.survey.host import common

RIGHTS = ("system.posix_acl_access", "system.posix_acl_default")
UNITS = ("/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system")
DEEPEST = 40  # links that lead to links


def look(asked: dict[str, list[str]]) -> dict[str, object]:
    """All of it.

    Args:
        asked: `roots`, the folders; `below`, those of them in which nothing is mounted either.
    """
    roots, below = asked["roots"], asked["below"]
    lines = common.lines(common.read("/proc/1/mountinfo") or "")
    kept = booted()
    mounts = [made for made in map(mount, lines) if concerns(str(made["point"]), roots, below)]
    now = {made["point"] for made in mounts}
    waiting = sorted(point for point in kept - now if point != "/" and concerns(point, roots, below))
    return {"folders": {root: way(root) for root in roots}, "mounts": mounts, "waiting": waiting}


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
    """What the file system says of one."""
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


def mount(line: str) -> dict[str, object]:
    """A line of mountinfo."""
    before, _, after = line.partition(" - ")
    fields, (kind, source, *_) = before.split(" "), after.split(" ")
    return {
        "point": unescaped(fields[4]),
        "what": unescaped(fields[3]),
        "kind": kind,
        "source": unescaped(source),
        "options": fields[5].split(","),
    }


def unescaped(text: str) -> str:
    r"""What mountinfo and fstab write as \040 and the like."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def booted() -> set[str]:
    """Where fstab and mount units have something mounted at a boot."""
    found = set()
    for line in common.lines(common.read("/etc/fstab") or ""):
        fields = line.split()
        if len(fields) >= 4 and not fields[0].startswith("#") and "noauto" not in fields[3].split(","):
            found.add(os.path.normpath(unescaped(fields[1])))
    for place in UNITS:
        for unit in [*Path(place).glob("*.mount"), *Path(place).glob("*.automount")]:
            if str(unit.resolve()) != "/dev/null":
                found.add("/" + re.sub(r"\\x([0-9a-f]{2})", _byte, unit.stem.replace("-", "/")))
    return found


def _byte(found: re.Match[str]) -> str:
    return chr(int(found[1], 16))
