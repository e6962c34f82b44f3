"""The host around Rigwright: disks, journal and packages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from checks.survey.host import common, dpkg

PROC = Path("/proc")
ETC = Path("/etc")
RUN = Path("/run")
USR = Path("/usr")


def look(asked: dict[str, Any]) -> dict[str, object]:
    """All of it.

    Args:
        asked: `locks`, a folder; `room`, paths whose file systems are looked at; `packages` that have to be installed.
    """
    return {
        "held": list(_held(Path(asked["locks"]))),
        "disks": [_disk(path) for path in asked["room"]],
        "journal": _journal(),
        "audit": _read_audit(),
        "missing": _missing(asked["packages"]),
    }


def _held(locks: Path) -> Iterator[dict[str, object]]:
    """The holders of the locks that lie in a folder."""
    names = {}
    for path in common.list_folder(locks):
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
            for one in common.list_folder(folder / "fd"):
                with suppress(OSError):  # it opens the files of each process that it learns of for a moment
                    opened.append(str(one.readlink()))
    files = [path for path in opened if path.startswith(("/var/log/journal/", "/run/log/journal/"))]
    units = ("systemd-journald.service", "systemd-journald.socket", "systemd-journald-dev-log.socket")
    places = [(folder / "systemd/system" / unit, unit) for unit in units for folder in (ETC, RUN)]
    masked = [unit for place, unit in places if place.is_symlink() and str(place.readlink()) == "/dev/null"]
    return {
        "runs": runs,
        "files": sorted(files),
        "settings": _settings("journald.conf", "[Journal]"),
        "masked": masked,
    }


def _settings(name: str, section: str) -> dict[str, str]:
    """The effective settings of a daemon of systemd's from its files: the main one, then others by name, of which one
    in /etc hides others of its name (systemd-system.conf(5)).
    """
    folders = [ETC / "systemd", RUN / "systemd", USR / "local/lib/systemd", USR / "lib/systemd"]
    main = next((one for folder in folders if (one := folder / name).is_file()), None)
    others: dict[str, Path] = {}
    for folder in folders:
        with suppress(OSError):
            for path in sorted((folder / f"{name}.d").iterdir()):
                if path.suffix == ".conf":
                    others.setdefault(path.name, path)
    found = {}
    for path in [*([main] if main else []), *(others[one] for one in sorted(others))]:
        within_it = ""
        for line in common.lines(common.read(path) or ""):
            text = line.strip()
            if text.startswith("["):
                within_it = text
            elif within_it == section and "=" in text and text[0] not in "#;":
                key, _, value = text.partition("=")
                found[key.strip()] = value.strip()
    return found


def _read_audit() -> str:
    """The packages that dpkg knows to be unfinished.

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
