"""The host around Rigwright: disks, mounts, journal, scheduled jobs and packages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from checks.survey.host import command_effects, common, dpkg, scheduled_jobs, script_relative_paths

PROC = Path("/proc")
ETC = Path("/etc")
RUN = Path("/run")
USR = Path("/usr")


def look(asked: dict[str, Any]) -> dict[str, object]:
    """All of it.

    Args:
        asked: `models`, their root; `guarded`, folders that nothing of the host's is to clean; `locks`, a folder;
            `about`, an expression for words about what is ours, `software`, the folder of engines, and `quiet`, files
            in which both may stand; `room`, paths whose file systems are looked at; `packages` that have to be
            installed.
    """
    return {
        "held": list(_held(Path(asked["locks"]))),
        "jobs": list(_jobs(re.compile(asked["about"]), asked["software"], asked["quiet"], asked["guarded"])),
        "ends": list(scheduled_jobs.ends()),
        "disks": [_disk(path) for path in asked["room"]],
        "mounts": list(_mounts(asked["models"])),
        "journal": _journal(),
        "audit": _read_audit(),
        "missing": _missing(asked["packages"]),
    }


def _in(folder: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(folder.iterdir())
    return []


def _held(locks: Path) -> Iterator[dict[str, object]]:
    """Who holds the locks that lie in a folder."""
    names = {}
    for path in _in(locks):
        with suppress(OSError):
            names[path.lstat().st_ino] = path.name
    for line in common.lines(common.read(PROC / "locks") or ""):
        words = line.split()
        if len(words) < 6 or "->" in words or not words[4].isdigit() or words[5].count(":") != 2:
            continue
        inode = int(words[5].split(":")[2])
        if inode in names:
            group = common.read(PROC / words[4] / "cgroup") or ""
            name = (common.read(PROC / words[4] / "comm") or "").strip()
            yield {"lock": names[inode], "pid": int(words[4]), "name": name, "groups": group.split()}


def _jobs(about: re.Pattern[str], software: str, quiet: list[str], guarded: list[str]) -> Iterator[dict[str, str]]:
    """Lines that change what is ours, where something of the host's obeys them, and in scripts that those start."""
    started: set[str] = set()
    own: set[str] = set()
    for path, text in script_relative_paths.meant(scheduled_jobs.lines(), about):
        if str(path) in quiet:
            continue
        started.update(scheduled_jobs.named(text))
        own.add(str(path))
        # what is named to logrotate is rotated
        rotated = any(part.startswith("logrotate") for part in path.parts) and about.search(text)
        if (
            command_effects.touches(text, about, software)
            or rotated
            or ("tmpfiles.d" in path.parts and _cleans(text, guarded))
        ):
            yield scheduled_jobs.describe_line(path, text)
    within = [*script_relative_paths.meant(scheduled_jobs.within(started), about)]
    yield from (
        scheduled_jobs.describe_line(path, text)
        for path, text in within
        if command_effects.touches(text, about, software)
    )
    # what cron.daily and the like have is scripts itself
    further = script_relative_paths.find_relative_changes(
        (*within, *script_relative_paths.meant(scheduled_jobs.within(own), about)), about
    )
    yield from (
        scheduled_jobs.describe_line(path, text)
        for path, text in further
        if not command_effects.touches(text, about, software)
    )


def _cleans(line: str, guarded: list[str]) -> bool:
    """Whether a line of tmpfiles.d(5) is about a folder of ours, a pattern that it fits among them."""
    words = line.split()
    if len(words) < 2:
        return False
    pattern = words[1].rstrip("/") or "/"
    depth = pattern.count("/")
    return any(common.meets(pattern, path) and depth >= path.count("/") for path in guarded)


def _disk(path: str) -> dict[str, object]:
    """The file system that holds a path, or will."""
    place = Path(path)
    while not place.exists():
        place = place.parent
    found = os.statvfs(place)
    return {
        "path": path,
        "free": found.f_bavail * found.f_frsize,
        # some file systems make inodes as they need them
        "inodes": found.f_favail if found.f_files else None,
        "read_only": bool(found.f_flag & os.ST_RDONLY),
    }


def _mounts(models: str) -> Iterator[dict[str, object]]:
    """What is mounted below the models' root."""
    for line in common.lines(common.read(PROC / "self/mountinfo") or ""):
        words = line.split()
        shown, point = (re.sub(r"\\([0-7]{3})", _octal, word) for word in words[3:5])
        if point.startswith(f"{models}/"):
            kind = words[words.index("-") + 1]
            yield {"point": point, "kind": kind, "shown": shown, "boot": _at_boot(point)}


def _octal(found: re.Match[str]) -> str:
    return chr(int(found[1], 8))


def _at_boot(point: str) -> bool:
    """Whether systemd mounts it when the host is started: it has a unit that is more than what the kernel has told."""
    escaped = "-".join(re.sub(r"[^A-Za-z0-9:_.]", _escape, part) for part in point.strip("/").split("/"))
    folders = (ETC / "systemd/system", RUN / "systemd/generator", USR / "lib/systemd/system")
    return any((folder / f"{escaped}.mount").exists() for folder in folders)


def _escape(character: re.Match[str]) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character[0].encode())


def _journal() -> dict[str, object]:
    """Into which files what is logged goes, and what the next start of it will do."""
    opened = []
    runs = False
    for folder in PROC.iterdir():
        if folder.name.isdigit() and (common.read(folder / "comm") or "").strip() == "systemd-journal":
            words = common.begin(folder / "cmdline").split("\0")
            # one of a namespace has its name as a word
            if len([word for word in words if word]) > 1:
                continue
            runs = True
            for one in _in(folder / "fd"):
                with suppress(OSError):  # of whom it hears it opens files for a moment
                    opened.append(str(one.readlink()))
    files = [path for path in opened if path.startswith(("/var/log/journal/", "/run/log/journal/"))]
    units = ("systemd-journald.service", "systemd-journald.socket", "systemd-journald-dev-log.socket")
    places = [(folder / "systemd/system" / unit, unit) for unit in units for folder in (ETC, RUN)]
    masked = [unit for place, unit in places if place.is_symlink() and str(place.readlink()) == "/dev/null"]
    return {
        "runs": runs,
        "files": sorted(files),
        "settings": scheduled_jobs.settings("journald.conf", "[Journal]"),
        "masked": masked,
    }


def _read_audit() -> str:
    """What dpkg knows to be unfinished.

    Raises:
        RuntimeError: it does not say.
    """
    status, said, complaint = common.ended("dpkg", "--audit")
    if status and not said.strip():
        raise RuntimeError(f"dpkg: {complaint.strip()[:200] or f'exit status {status}'}")
    return said.strip()[:1000]


def _missing(packages: list[str]) -> list[str]:
    """Those that are not installed, by dpkg's list."""
    there = {one.name for one in dpkg.packages() if one.state == "installed"}
    return sorted(set(packages) - there)
