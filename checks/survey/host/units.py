"""Units as systemd has loaded them, related files in systemd's directories, and the manager's own settings."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from checks.survey.host import common, dpkg, systemd_properties

# Where systemd looks for units, the winner first (systemd.unit(5), "System Unit Search Path").
TRANSIENT = "/run/systemd/transient"
FOLDERS = (
    *("/etc/systemd/system.control", "/run/systemd/system.control", TRANSIENT),
    *("/run/systemd/generator.early", "/etc/systemd/system", "/etc/systemd/system.attached", "/run/systemd/system"),
    *("/run/systemd/system.attached", "/run/systemd/generator", "/usr/local/lib/systemd/system"),
    *("/usr/lib/systemd/system", "/lib/systemd/system", "/run/systemd/generator.late"),
)
CONFIGURED = ("/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd")
T = TypeVar("T")
LONGEST = 4096  # characters that are reported of a foreign value or line
QUEUED_S = 2.0  # after which a job that still waits counts: systemd begins most at once
MANY = 5000  # entries that are reported of a list; of more, the others are unknown


def look(asked: dict[str, list[str]]) -> dict[str, object]:
    """All of it.

    Args:
        asked: `units`, names of ours; `others`, of units that a boot goes by; `files`, paths of unit files of ours;
            `word`, what names of ours begin with.
    """
    units, others, word = asked["units"], asked["others"], asked["word"][0]
    kinds = sorted({name.rpartition(".")[2] for name in units})
    bare = [f"{word}-that-nobody-has.{kind}" for kind in kinds]
    shows = _start("systemctl", "show", "--", *units, *others, *bare)
    settings = _start("systemctl", "show")
    calls = _start("systemd-analyze", "--no-pager", "syscall-filter")
    listed = _start("systemctl", "list-units", "--all", "--full", "--plain", "--no-legend", "--", f"{word}*")
    told = {
        "files": {path: _file(path) for path in asked["files"]},
        "lying": [{"path": path, **_lies(path)} for path in few(_lying(units, word))],
        "default": _default(),
        "command_line": re.findall(r"\S*\bsystemd\.\S+", common.read("/proc/cmdline") or ""),
        "configured": few(_configured()),
    }
    blocks = systemd_properties.parse_blocks(_end(shows))
    names = [*units, *others, *bare]
    if len(blocks) != len(names):
        raise RuntimeError(f"systemctl told of {len(blocks)} units, not {len(names)}")
    shown = _without_young_jobs(dict(zip(names, blocks)))  # noqa: B905 (of Python 3.10; judged above)
    plain = {kind: shown[name] for kind, name in zip(kinds, bare)}  # noqa: B905 (one of each)
    return {
        **told,
        "bare": plain,
        "shown": {name: _difference(shown[name], plain.get(name.rpartition(".")[2], {})) for name in [*units, *others]},
        "manager": systemd_properties.parse_blocks(_end(settings))[0],
        "calls": systemd_properties.parse_call_groups(_end(calls)),
        "loaded": sorted(systemd_properties.parse_unit_names(_end(listed), word)),
    }


def _without_young_jobs(shown: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """Unit -> its properties, with jobs of those that are down or on their way there only where one waits for a while:
    a timer or a role may start or stop a unit at any moment.

    Args:
        shown: The properties of the first look.

    Raises:
        RuntimeError: systemctl does not tell.
    """
    waiting = [
        name
        for name, one in shown.items()
        if one.get("ActiveState") in ("inactive", "deactivating") and one.get("Job", "") not in ("", "0")
    ]
    if not waiting:
        return shown
    time.sleep(QUEUED_S)
    later = systemd_properties.parse_blocks(_end(_start("systemctl", "show", "--", *waiting)))
    if len(later) != len(waiting):
        raise RuntimeError(f"systemctl told of {len(later)} units, not {len(waiting)}")
    found = dict(shown)
    for name, one in zip(waiting, later):  # noqa: B905 (of Python 3.10; judged above)
        found[name] = one if one.get("Job") == shown[name]["Job"] else {**one, "Job": "0"}
    return found


def few(found: list[T]) -> list[T]:
    """A list that can be told whole.

    Raises:
        RuntimeError: it is longer: harmless entries must not hide others.
    """
    if len(found) > MANY:
        raise RuntimeError(f"more than {MANY} entries")
    return found


def _start(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def _end(program: subprocess.Popen[bytes]) -> str:
    output, _ = program.communicate(timeout=40)
    if program.returncode:
        raise RuntimeError(f"{program.args!r}: exit status {program.returncode}")
    return common.require_whole(str(program.args), output.decode(errors="replace"))


def _difference(one: dict[str, str], plain: dict[str, str]) -> dict[str, str | None]:
    """The settings of a unit that differ from one of its kind without any settings; None for what it lacks."""
    return {name: one.get(name) for name in {**plain, **one} if one.get(name) != plain.get(name)}


def _file(path: str) -> dict[str, str]:
    """The object in the place of a unit file of ours."""
    text = common.read(path)
    digest = hashlib.sha256(text.encode()).hexdigest() if text is not None else ""
    try:
        seen = Path(path).lstat()
    except OSError:
        return {"link": "", "sha256": "", "loose": ""}
    linked = stat.S_ISLNK(seen.st_mode)
    loose = seen.st_uid or seen.st_gid or (not linked and seen.st_mode & 0o022)
    said = f"of user {seen.st_uid}, group {seen.st_gid} and mode {stat.S_IMODE(seen.st_mode):o}" if loose else ""
    return {"link": str(Path(path).readlink()) if linked else "", "sha256": digest, "loose": said}


def _lies(path: str) -> dict[str, str]:
    """Where an entry of a folder of systemd's leads, and how its text begins."""
    link = str(Path(path).readlink()) if Path(path).is_symlink() else ""
    return {"link": link, "first": common.begin(path, LONGEST).partition("\n")[0]}


def _default() -> str:
    """The target of a boot, by its file."""
    there = (Path(folder, "default.target") for folder in FOLDERS)
    return next((path.resolve().name for path in there if path.is_symlink() or path.exists()), "")


def _leads(entry: os.DirEntry[str]) -> str:
    """The name of the file that a link leads to; empty for no link."""
    return Path(entry.path).readlink().name if entry.is_symlink() else ""


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _folders() -> list[str]:
    """Those that there are, each once, whatever links lead to it."""
    there = {os.path.realpath(folder): folder for folder in reversed(FOLDERS) if Path(folder).is_dir()}
    return [folder for folder in FOLDERS if folder in there.values()]


def _added(units: list[str]) -> set[str]:
    """Names of folders whose files are added to units of these names (systemd.unit(5): `foo-.service.d`, too)."""
    found = set()
    for unit in units:
        name, _, kind = unit.rpartition(".")
        parts = name.split("-")
        found |= {f"{unit}.d", f"{kind}.d"}
        found |= {f"{'-'.join(parts[:end])}-.{kind}.d" for end in range(1, len(parts))}
    return found


def _lying(units: list[str], word: str) -> list[str]:
    """Paths of unit files that are named as ours, and of what is added to ours."""
    added, found = _added(units), []
    for folder in _folders():
        for entry in _entries(folder):
            if entry.name in added:
                found += [one.path for one in _entries(entry.path) if one.name.endswith(".conf")]
            elif (
                entry.name in units
                or (entry.name.startswith(word) and not entry.is_dir(follow_symlinks=False))
                or _leads(entry) in units
            ):
                found.append(entry.path)
            elif entry.name.endswith((".wants", ".requires", ".upholds")):
                # units that a boot starts in addition, and those that start with ours
                with_ours = entry.name.rpartition(".")[0] in units
                found += [one.path for one in _entries(entry.path) if with_ours or one.name in units]
    return found


def _lines(path: str, wanted: re.Pattern[str]) -> list[dict[str, str]]:
    # a remark ends with its line, whatever that ends with (systemd.syntax(7))
    said = (line for line in common.lines(common.begin(path)) if not line.lstrip().startswith(("#", ";")))
    lines = "\n".join(said).replace("\\\n", " ").split("\n")
    return [{"path": path, "line": common.masked(line.strip())[:LONGEST]} for line in lines if wanted.search(line)]


def _configured() -> list[dict[str, str]]:
    """Lines of the manager's settings that no package has brought."""
    paths = [f"{root}/system.conf" for root in CONFIGURED]
    paths += [entry.path for root in CONFIGURED for entry in _entries(f"{root}/system.conf.d")]
    wanted = re.compile(r"\s*[A-Za-z]+\s*=")
    return _foreign(line for path in paths for line in _lines(path, wanted))


def _foreign(found: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """Lines of files that no package has brought; in /usr/lib another program may have put one, too."""
    lines = list(found)
    own = dpkg.owners({one["path"] for one in lines if one["path"].startswith("/usr/lib/")})
    return [one for one in lines if one["path"] not in own]
