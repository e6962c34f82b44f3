"""Files and units that set up the cards, and the units by which a box is reached after a boot."""

from __future__ import annotations

import hashlib
import os
import re
import stat

from checks.survey.host import common, systemd_properties

ROOT = ""  # a test has a folder for a host
PROPERTIES = (
    "Id", "LoadState", "ActiveState", "SubState", "Result", "UnitFileState", "FragmentPath", "DropInPaths",
    "NeedDaemonReload", "ExecStart", "MainPID", "User",
)  # fmt: skip


def sshd() -> list[str]:
    """Why sshd would not start again: the settings that it cannot read."""
    status, _, said = common.ended("sshd", "-t", limit=10)
    lines = [line.strip() for line in common.lines(said) if line.strip()]
    known = [line for line in lines if re.search(r"line [0-9]+|Bad configuration|no hostkeys", line)]
    # whatever it says, it would not start; without sshd there is none to start
    unknown = lines[-1:] or [f"exit status {status}"] if status not in (0, 127) else []
    return (known or unknown)[:3]


def program(asked: dict[str, list[str]]) -> list[dict[str, object]]:
    """The contents of folders that only Rigwright writes."""
    found: list[dict[str, object]] = []
    for top in asked["folders"]:
        for folder, names, files in os.walk(f"{ROOT}{top}"):
            for name in [*files, *(one for one in names if os.path.islink(f"{folder}/{one}"))]:
                seen = os.lstat(f"{folder}/{name}")
                found.append({"path": f"{folder}/{name}".removeprefix(ROOT), **described(f"{folder}/{name}", seen)})
    return found


def described(path: str, seen: os.stat_result) -> dict[str, object]:
    """The object at a path."""
    kind = "file" if stat.S_ISREG(seen.st_mode) else "other"
    kind = f"a link to {os.readlink(path)}" if stat.S_ISLNK(seen.st_mode) else kind
    digest = ""
    if kind == "file" and seen.st_size <= common.MOST:
        with open(path, "rb") as file:
            digest = hashlib.sha256(file.read()).hexdigest()
    return {
        "kind": kind,
        "mode": f"{stat.S_IMODE(seen.st_mode):o}",
        "uid": seen.st_uid,
        "gid": seen.st_gid,
        "sha256": digest,
    }


def lying(paths: list[str]) -> list[dict[str, object]]:
    """The objects at these paths, where they exist."""
    there = {path: f"{ROOT}{path}" for path in paths if os.path.lexists(f"{ROOT}{path}")}
    return [{"path": path, **described(place, os.lstat(place))} for path, place in there.items()]


def look(asked: dict[str, list[str]]) -> dict[str, object]:
    """All of it.

    Args:
        asked: `files`, paths that may be ours, `folders`, those that are ours alone; `units`, names of units.
    """
    return {
        "sshd": sshd(),
        "files": lying(asked["files"]) + program(asked),
        "units": systemd_properties.read_properties(asked["units"], PROPERTIES),
        "applied": (common.read(f"{ROOT}/run/rigwright-power") or "").strip(),
    }
