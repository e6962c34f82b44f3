"""dpkg's records, read without it: its own programs take a tenth of a second each."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from checks.survey.host import common, fs_responsiveness

ROOT = ""  # a test has a folder for a host
ADMIN = "/var/lib/dpkg"
MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
"""Folders below / that are links into /usr: a list may have either name of what lies there."""

LOG, LOG_BYTES = "/var/log/dpkg.log", 4 << 20
INSTALLED = re.compile(r"^(\S+ \S+) status installed ([^\s:]+)", re.MULTILINE)
METAPACKAGE = re.compile(r"linux-image-[a-z]")

SLACK = 5.0  # s: dpkg writes a package's list when its files are there; some are renamed right after
UNPACKING = 600.0  # s: from when dpkg has a package's sums to when it has all of it


class DpkgPackage(NamedTuple):
    """A paragraph of dpkg's status that says more than that there was a package once."""

    name: str
    base: str
    """The names of its files in dpkg's `info`."""
    version: str
    want: str
    """"install", "hold" and so on."""
    state: str
    """"installed", "half-configured" and so on."""
    depends: str
    conffiles: dict[str, str]
    """Path -> MD5 as the package brought it."""


def packages() -> list[DpkgPackage]:
    """All packages that are there, in whatever state.

    Raises:
        RuntimeError: dpkg has no list of them.
    """
    status = f"{ROOT}{ADMIN}/status"
    try:
        return [*_packages(ROOT, _as_of(status))]
    except OSError:
        raise RuntimeError(f"{ADMIN}/status cannot be read") from None


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name matches one of shell patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def describe_states(patterns: Collection[str]) -> dict[str, object]:
    """The packages whose names match shell patterns, and the names of all that are on hold: the fields of
    rigwright.host.package_states.PackageStates.

    Dependencies are reported only of kernels' installed metapackages.
    """
    there = packages()
    return {
        "rows": [
            {
                "name": one.name,
                "state": one.state,
                "version": one.version,
                "depends": one.depends if one.state == "installed" and METAPACKAGE.match(one.name) else "",
            }
            for one in there
            if matches(one.name, patterns)
        ],
        "held": sorted({one.name for one in there if one.want == "hold"}),
    }


def _as_of(path: str) -> tuple[str, int, int, int]:
    """The identity of a file or folder that was read before: a section asks for the same several times."""
    seen = os.stat(path)
    return path, seen.st_ino, seen.st_size, seen.st_mtime_ns


@lru_cache(maxsize=1)
def _packages(root: str, status: tuple[str, int, int, int]) -> tuple[DpkgPackage, ...]:
    text = common.read(status[0], most=256 << 20)
    if not text:
        raise RuntimeError(f"{ADMIN}/status cannot be read")
    text = common.require_whole(f"{ADMIN}/status", text)
    found = []
    for paragraph in text.split("\n\n"):
        fields: dict[str, str] = {}
        key = ""
        for line in paragraph.split("\n"):
            if line[:1] == " ":
                if key == "Conffiles":
                    fields[key] += f"\n{line}"
            else:
                key, _, value = line.partition(":")
                if value and key in fields:
                    raise RuntimeError(f"{ADMIN}/status has two packages in one paragraph")
                fields[key] = value.strip()
        want, _, state = [*fields.get("Status", "").split(), "", "", ""][:3]
        if state in ("", "not-installed", "config-files"):
            continue
        name = fields.get("Package", "")
        if not name:
            raise RuntimeError(f"{ADMIN}/status does not name a package")
        own = f"{name}:{fields.get('Architecture', '')}"
        base = own if os.path.exists(f"{root}{ADMIN}/info/{own}.list") else name
        files = (line.split() for line in fields.get("Conffiles", "").split("\n"))
        conffiles = {one[0]: one[1] for one in files if len(one) == 2}
        found.append(
            DpkgPackage(name, base, fields.get("Version", ""), want, state, fields.get("Depends", ""), conffiles)
        )
    return tuple(found)


def known() -> None:
    """Read what sections ask for, each in a process of its own, before there is one: they have it by themselves as long
    as it is the same. Not where it lies on a disk of its own: one that hangs would keep all of them from looking.
    """
    folders = {f"{place}".rstrip("/") for place in Path(f"{ADMIN}/info/x").parents} - {""}
    if not folders & fs_responsiveness.mount_points():
        with suppress(OSError, RuntimeError):
            packages()
            _lists(_as_of(f"{ROOT}{ADMIN}/info"))


def unpacked(info: str, born: dict[str, float]) -> float | None:
    """When all of a package was there: later changes are read; None where dpkg has no list of it.

    Touching the list moves its times to now, which would hide every change: the time of its creation counts, where the
    file system keeps that, and the time of the sums that came with it.

    Args:
        info: The path of dpkg's files about it, without what they end with.
        born: As `common.born` has it, of those files.
    """

    def moments(path: str) -> tuple[float, ...]:
        seen = os.stat(path)
        return seen.st_mtime, seen.st_ctime, born.get(path, seen.st_ctime)

    try:
        made = min(moments(f"{info}.list")) + SLACK
    except OSError:
        return None
    with suppress(OSError):
        # the sums' time of writing is the package's own
        made = min(made, min(moments(f"{info}.md5sums")[1:]) + UNPACKING)
    return made


def configured() -> dict[str, float]:
    """Package -> when dpkg last had it installed completely, in seconds since 1970, as far as the log reaches."""
    found: dict[str, float] = {}
    for matched in INSTALLED.finditer(common.text(common.tail(f"{ROOT}{LOG}", LOG_BYTES))):
        with suppress(ValueError, OverflowError):
            # dpkg writes local time
            found[matched[2]] = time.mktime(time.strptime(matched[1], "%Y-%m-%d %H:%M:%S"))
    return found


def names(path: str) -> tuple[str, ...]:
    """A path, and the other name that it has where /bin and the like are links into /usr."""
    if path.startswith("/usr/") and path.split("/", 3)[2] in MERGED:
        return path, path.removeprefix("/usr")
    if path.split("/", 2)[1] in MERGED:
        return path, f"/usr{path}"
    return (path,)


@lru_cache(maxsize=1)
def _lists(folder: tuple[str, int, int, int]) -> tuple[tuple[str, bytes], ...]:
    """Packages, and the files of each, a line each."""
    with os.scandir(folder[0]) as entries:
        return tuple(
            (entry.name.removesuffix(".list").partition(":")[0], common.data(entry.path, most=64 << 20) or b"")
            for entry in entries
            if entry.name.endswith(".list")
        )


def owners(paths: Iterable[str]) -> dict[str, str]:
    """Path -> the package that has brought what lies there; without those that none has."""
    asked = {name.encode(errors="surrogateescape"): path for path in paths for name in names(path)}
    found: dict[str, str] = {}
    with suppress(OSError):
        for package, data in _lists(_as_of(f"{ROOT}{ADMIN}/info")) if asked else ():
            # a box with cards has 300,000 lines in these files: none is made text, or put into a set
            for line in asked.keys() & data.split(b"\n"):
                found[asked[line]] = package
    return found


def diversions() -> dict[str, tuple[str, str]]:
    """Path -> (where it went instead, the package that had it moved; ":" for a diversion made by hand).

    Raises:
        RuntimeError: the file of them lacks a line.
    """
    lines = common.lines(common.read(f"{ROOT}{ADMIN}/diversions") or "")
    lines = lines if any(lines) else []
    if len(lines) % 3 or not all(one.startswith("/") for one in lines[::3]):
        raise RuntimeError(f"{ADMIN}/diversions is not whole")
    return {lines[at]: (lines[at + 1], lines[at + 2]) for at in range(0, len(lines), 3)}
