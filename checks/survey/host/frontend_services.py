"""The services between clients and engines: units, the files that they were started from, and their exposure level."""

from __future__ import annotations

import calendar
import contextlib
import os
import re
import time
from typing import Any

from checks.survey.host import common, mount_table, systemd_properties

PROPERTIES = ("Id", "ActiveState", "UnitFileState", "NeedDaemonReload", "MainPID")
STATUS = "/var/lib/logrotate/status"
ROTATED = re.compile(r'^"([^"]+)" ([0-9]{1,4})-([0-9]{1,2})-([0-9]{1,2})', re.MULTILINE)


def started(pid: int) -> float:
    """When a process began, in seconds since 1970; 0 where it is gone."""
    told = (common.read(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
    if len(told) < 20:
        return 0.0
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + int(told[19]) / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    """Processes that a process has begun."""
    told = common.read(f"/proc/{pid}/task/{pid}/children") or ""
    return [int(word) for word in told.split()]


def since(record: str, pid: int, settings: list[str]) -> int:
    """Seconds from when a record was written to when the first of a process's workers began, where its settings have
    been touched in the meantime; 0 where they have not, or nothing is noted.
    """
    workers = [moment for child in children(pid) if (moment := started(child))]
    touched = 0.0
    for path in settings:
        for at in [path, *(os.path.join(path, name) for name in (os.listdir(path) if os.path.isdir(path) else ()))]:
            with contextlib.suppress(OSError):
                touched = max(touched, os.stat(at).st_ctime)
    try:
        written = os.stat(record).st_mtime
    except OSError:
        return 0
    return max(0, int(min(workers) - written)) if workers and touched > written else 0


def written(pid: int, folder: str) -> list[str]:
    """Mounts by which a process may write to a folder."""
    found, best = [], ("", "")
    for mount in mount_table.list_mounts(pid):
        if f"{folder}/".startswith(mount.point.rstrip("/") + "/"):
            # of several at one place the last is the one that is seen
            if len(mount.point) >= len(best[0]):
                best = (mount.point, "ro" if "ro" in mount.options else "rw")
        elif mount.point.startswith(f"{folder}/") and "ro" not in mount.options:
            found.append(mount.point)
    return [*([best[0]] if best[1] == "rw" else []), *found]


def may(pid: int) -> tuple[int, bool]:
    """A process's user, and whether it has any capability."""
    told = dict(line.partition(":")[::2] for line in common.lines(common.read(f"/proc/{pid}/status") or ""))
    return int((told.get("Uid") or "0").split()[0]), int(told.get("CapEff") or "1", 16) != 0


def links(folder: str) -> dict[str, str]:
    """Name -> what it leads to, of all that lies in a folder; empty for what is no link."""
    found = {}
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            found[entry.name] = os.readlink(entry.path) if entry.is_symlink() else ""
    return found


def loose(folder: str) -> list[str]:
    """Files with secrets that others than their owner may read."""
    found = []
    for at, _, names in os.walk(folder):
        for name in names:
            # a file that is being replaced has gone meanwhile
            with contextlib.suppress(FileNotFoundError):
                if name.endswith((".key", ".json")) and os.lstat(os.path.join(at, name)).st_mode & 0o077:
                    found.append(os.path.join(at, name))
    return sorted(found)


def opened(folder: str) -> list[str]:
    """The parts of a folder that others than its owner can write, or others than its group read."""
    found = []
    for at, _, names in os.walk(folder):
        for path in (at, *(os.path.join(at, name) for name in names)):
            with contextlib.suppress(FileNotFoundError):
                if os.lstat(path).st_mode & 0o027:
                    found.append(path)
    return sorted(found)


def rotated(folder: str) -> int:
    """When logrotate says that it has rotated a log of a folder last, in seconds since 1970; 0 for never."""
    found = [0]
    for path, *moment in ROTATED.findall(common.read(STATUS) or ""):
        if path.startswith(f"{folder}/"):
            with contextlib.suppress(ValueError, OverflowError):
                found.append(calendar.timegm((*map(int, moment), 0, 0, 0)))
    return max(found)


def look(asked: dict[str, Any]) -> dict[str, object]:
    """Each unit.

    Args:
        asked: As checks.survey.frontend_services has it.
    """
    units, folder = asked["units"], asked["records"]
    states = systemd_properties.properties(units, *PROPERTIES)
    exposed = asked["exposed"]
    levels = systemd_properties.read_exposure(exposed)
    found = {}
    for unit in units:
        state = states.get(unit, {})
        pid = int(state.get("MainPID") or 0)
        record = f"{folder}/{unit}"
        program = ""
        with contextlib.suppress(OSError):
            program = os.readlink(f"/proc/{pid}/exe") if pid else ""
        configured = common.read(f"{record}.configured")
        noted = record if unit == asked["sharing"] else f"{record}.configured"
        found[unit] = {
            "active": state.get("ActiveState", ""),
            "enabled": state.get("UnitFileState", ""),
            "started_from": (common.read(record) or "").split("\n")[0][:64],
            "configured": (configured or "").split("\n")[0][:64],
            "replaced": program.endswith(" (deleted)"),
            "reload_needed": bool(state.get("NeedDaemonReload")),
            "later": since(noted, pid, asked["settings"].get(unit, [])) if pid else 0,
            "exposure": levels.get(unit, ""),
            "pid": pid,
        }
    pid = found.get(asked["sharing"], {}).get("pid", 0)
    user, able = may(pid) if pid else (0, False)
    return {
        "gates": found,
        "files": {path: common.read(path) for path in asked["files"]},
        "rotated": rotated(asked["logs"]) if asked["logs"] else 0,
        "offered": links(asked["links"]),
        "out": sorted(links(asked["out"])),
        "rotation": sorted(links(asked["rotation"])),
        "loose": [*loose(asked["runtime"]), *(opened(asked["logs"]) if asked["logs"] else [])],
        "sharing": {"user": user, "able": able, "writes": written(pid, asked["models"]) if pid else []},
    }
