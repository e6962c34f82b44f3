"""Patched files, their compiled bytecode, and processes that may have loaded either."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

from checks.survey.host import common, python_import_paths, systemd_properties

GROUPS = "/sys/fs/cgroup"
MOST = 16 << 20  # bytes; a file that is patched has ten million at most
SHOWN = 20  # of a list
CHECKED_HASH = 3
"""The flags of bytecode that has its text's hash, which Python compares with the text."""
BOOTED = re.compile(r"^btime ([0-9]+)$", re.MULTILINE)
BEGUN = 19
"""Where /proc/PID/stat has a process's beginning, after its name (proc_pid_stat(5))."""


def look(asked: dict[str, Any]) -> dict[str, object]:
    """All of them.

    Args:
        asked: `files`, paths of what patches have changed, and of each a pattern of what Python would import in its
            place; `units`, services that run it, each with the folders that it imports from.
    """
    booted = BOOTED.search(common.read("/proc/stat", 64 << 20) or "")
    return {
        "files": {path: one(Path(path), pattern) for path, pattern in asked["files"].items()},
        "units": {
            unit: running(unit, int(booted[1]) if booted else 0, tuple(places))
            for unit, places in asked["units"].items()
        },
    }


def one(path: Path, pattern: str) -> dict[str, object]:
    """A file, what Python has compiled of it, and what it would import in its place."""
    beside = (*path.parent.glob(f"{path.stem}.*"), *path.with_suffix("").glob("__init__.*"))
    others = {"shadowed": sorted(other.name for other in beside if re.fullmatch(pattern, str(other)))[:SHOWN]}
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return {"digest": "", "written": 0.0, "stale": [], **others}
    state = os.fstat(handle)
    if not stat.S_ISREG(state.st_mode):
        os.close(handle)
        return {"digest": "", "written": 0.0, "stale": [], **others}
    with os.fdopen(handle, "rb") as file:
        content = file.read(MOST)
    found = sorted((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc")) if path.suffix == ".py" else []
    written = [state.st_mtime, *(compiled.lstat().st_mtime for compiled in found)]
    stale = [compiled.name for compiled in found if not is_of(compiled, state)]
    digest = hashlib.sha256(content).hexdigest()
    return {"digest": digest, "written": max(written), "stale": stale[:SHOWN], **others}


def is_of(compiled: Path, source: os.stat_result) -> bool:
    """Whether Python would load it in place of this file: it was made of one of this time and length, or Python itself
    compares the hash of the text (PEP 552).
    """
    try:
        with os.fdopen(os.open(compiled, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            _, flags, moment, size = struct.unpack("<IIII", file.read(16))
    except (OSError, struct.error):
        return False
    # a hash that Python does not compare makes bytecode of any source count
    return flags == CHECKED_HASH or (flags, moment, size) == (
        0,
        int(source.st_mtime) & 0xFFFFFFFF,
        source.st_size & 0xFFFFFFFF,
    )


def running(unit: str, booted: int, places: tuple[str, ...]) -> list[dict[str, object]]:
    """The processes of a service, when each began, and what it imports from elsewhere than from these places."""
    path = str(systemd_properties.properties([unit], "ControlGroup")[unit].get("ControlGroup", ""))
    ticks = os.sysconf("SC_CLK_TCK")
    found: list[dict[str, object]] = []
    for folder, _, names in os.walk(f"{GROUPS}{path}") if path.strip("/") else ():
        if "cgroup.procs" not in names:
            continue
        for pid in (common.read(f"{folder}/cgroup.procs") or "").split():
            with suppress(IndexError, ValueError):  # it has ended meanwhile
                fields = (common.read(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
                begun = booted + int(fields[BEGUN]) / ticks
                found.append(
                    {"pid": int(pid), "begun": begun, "elsewhere": python_import_paths.elsewhere(int(pid), places)}
                )
    return found
