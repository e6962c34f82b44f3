"""Times and authors of what failed checks name: files by their last change, units by their files and their state,
processes by their start.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from checks.survey.host import common, dpkg, entry_authors
from checks.survey.host.host_entry import HostEntry

PROC = "/proc"  # a test has a folder for it
PROCESS = re.compile(r"(?:process|pid) ([0-9]+)")
UNIT_FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
)


def look(asked: dict[str, Any]) -> dict[str, object]:
    """All of it.

    Args:
        asked: `failures`, for each the paths, units and processes that it names; `state`, Rigwright's folder of state.
    """
    names = {name for names in asked["failures"] for name in names}
    states = read_state_changes(name for name in names if not name.startswith("/") and not PROCESS.fullmatch(name))
    latest: dict[int, HostEntry] = {}
    for number, names in enumerate(asked["failures"]):
        subjects = [*list_subjects(names, states)]
        if subjects:
            latest[number] = max(subjects, key=lambda one: one.ctime)
    authors = entry_authors.describe([*latest.values()], asked["state"])
    found = [""] * len(asked["failures"])
    for place, number in enumerate(latest):
        moment, words = authors.get(place, (0.0, ""))
        if words:
            entry = latest[number]
            found[number] = f"{entry.key} {entry.state} at {entry_authors.clock(moment)}, {words}"
    return {"authors": found}


def list_subjects(names: Iterable[str], states: dict[str, float]) -> Iterator[HostEntry]:
    """The objects with a time that a failure names.

    Args:
        names: Paths, units and processes.
        states: Unit -> when its state has changed, in seconds since 1970.
    """
    for name in names:
        if name.startswith("/"):
            yield from _file(name)
            continue
        if matched := PROCESS.fullmatch(name):
            yield from _process(matched[1])
            continue
        for folder in UNIT_FOLDERS:
            yield from _file(f"{folder}/{name}", is_required=False)
            with suppress(OSError):
                paths = [f"{folder}/{name}.d/{one}" for one in os.listdir(f"{dpkg.ROOT}{folder}/{name}.d")]
                for path in paths:
                    yield from _file(path)
        if name in states:
            entry = HostEntry("unit", name, "changed its state")
            entry.ctime = states[name]
            yield entry


def _file(path: str, *, is_required: bool = True) -> Iterator[HostEntry]:
    """A file, or the folder that one is gone from."""
    for place in (path, os.path.dirname(path))[: 2 if is_required else 1]:
        with suppress(OSError, ValueError):
            entry = HostEntry("file", place, "changed last", place)
            entry.ctime = os.lstat(f"{dpkg.ROOT}{place}").st_ctime
            yield entry
            return


def _process(number: str) -> Iterator[HostEntry]:
    """A process that runs, with the time of its start (proc_pid_stat(5))."""
    with suppress(IndexError, ValueError):
        ticks = int((common.read(f"{PROC}/{number}/stat") or "").rpartition(")")[2].split()[19])
        entry = HostEntry("process", f"process {number}", "started")
        entry.ctime = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
        yield entry


def read_state_changes(units: Iterable[str]) -> dict[str, float]:
    """Unit -> when its state has changed last, in seconds since 1970, of those that have been in another one."""
    names = sorted(units)
    if not names or dpkg.ROOT:
        return {}
    words = ["systemctl", "show", "--property=Id,StateChangeTimestampMonotonic", "--", *names]
    _, out, _ = common.ended(*words, limit=5.0)
    began = time.time() - time.monotonic()
    found = {}
    for block in out.split("\n\n"):
        row = dict(line.partition("=")[::2] for line in common.lines(block))
        moment = row.get("StateChangeTimestampMonotonic", "")
        if moment.isdecimal() and int(moment):
            found[row.get("Id", "")] = began + int(moment) / 1e6
    return found
