"""Entries of the fingerprint for files that run as their owner or group, or with capabilities, wherever they lie."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache

from checks.survey.host import entry_files, fs_responsiveness
from checks.survey.host.entry_digests import EntryDigests
from checks.survey.host.host_entry import HostEntry

MOST_SCANNED = 40_000  # files of a folder outside the classes that are looked at
SCANNED_DEPTH = 16  # folders
MOST_SCANNED_TOGETHER = 200_000  # files of all these folders
MOST_SCANNED_DEEP = 2_000_000
FULL_SCAN_AGE = 48 * 3600.0  # s: for so long, a full look at all disks stands for what others leave out
SCANNED = (
    *("/tmp", "/var/tmp", "/dev/shm", "/home", "/root", "/opt", "/srv", "/mnt", "/var/lib"),  # noqa: S108 (places)
    *("/usr/local/share", "/usr/share", "/usr/src", "/var/cache", "/var/log", "/var/spool", "/var/www", "/var/backups"),
    *("/var/opt", "/var/local", "/var/mail", "/run", "/media", "/etc"),
)
UNSCANNED = ("/var/lib/dpkg", "/var/lib/docker", "/var/lib/containerd", "/var/lib/containers", "/proc", "/sys")
"""Folders with nothing that runs, and those in which containers have programs of their own."""
PRIVILEGED = "privileged_files"  # the name of this reader in the table of classes
FULL_SCAN = "full_scan"
ScannedFile = tuple[str, os.stat_result]


class FileScan:
    """Files below folders, without what is mounted below a folder."""

    def __init__(self, folders: Iterable[str], depth: int, most: int, together: int) -> None:
        """Keep what to look at.

        Args:
            folders: Where to begin.
            depth: How many folders deep.
            most: How many files of each folder.
            together: How many files of all.
        """
        self.folders, self.depth, self.most, self.together = [*folders], depth, most, together
        self.unscanned: list[str] = []
        """Those of the folders of which something was left out, once all files were listed."""

    def list_files(self) -> Iterator[ScannedFile]:
        """Paths of files, with what lstat(2) has of each."""
        for folder in self.folders:
            waiting, left = [(folder, 0)], min(self.most, self.together)
            begin = left
            device, is_whole = 0, True
            while waiting and left >= 0:
                place, level = waiting.pop()
                if entry_files.is_silent(place) or place in UNSCANNED:
                    continue
                with suppress(OSError), os.scandir(f"{entry_files.ROOT}{place}") as entries:
                    device = device or os.lstat(f"{entry_files.ROOT}{place}").st_dev
                    if os.lstat(f"{entry_files.ROOT}{place}").st_dev != device:
                        continue
                    for entry in entries:
                        path = f"{place.rstrip('/')}/{entry.name}"
                        if entry.is_dir(follow_symlinks=False):
                            is_whole = is_whole and level < self.depth
                            if level < self.depth:
                                waiting.append((path, level + 1))
                            continue
                        left -= 1
                        if left < 0:
                            break
                        with suppress(OSError):
                            yield path, entry.stat(follow_symlinks=False)
            self.together -= begin - max(left, 0)
            if left < 0 or not is_whole:
                self.unscanned.append(folder)


@lru_cache(maxsize=1)
def usual_scan(root: str) -> tuple[list[ScannedFile], list[str]]:
    """Files in usual places outside the classes, and the folders of which some were left out.

    Args:
        root: The folder that stands for the host; empty for the host.
    """
    scan = FileScan(SCANNED, SCANNED_DEPTH, MOST_SCANNED, MOST_SCANNED_TOGETHER)
    files = [row for row in scan.list_files() if stat.S_ISREG(row[1].st_mode)]
    return files, scan.unscanned


def full_scan() -> Iterator[ScannedFile]:
    """Files of all disks."""
    places = ["/"] if entry_files.ROOT else fs_responsiveness.mounted()
    yield from FileScan(places, entry_files.DEEPEST, MOST_SCANNED_DEEP, MOST_SCANNED_DEEP).list_files()


def collect(kind: str, entries: Iterable[HostEntry], digests: EntryDigests) -> list[HostEntry]:
    """Entries of files with setuid, setgid or capabilities: among files that have entries, and below other folders."""
    found = [*_find(kind, entries, digests)]
    entry_files.find_packages([entry for entry in found if not entry.package], digests)
    return found


def _find(kind: str, entries: Iterable[HostEntry], digests: EntryDigests) -> Iterator[HostEntry]:
    known = set()
    for entry in entries:
        known.add(entry.path)
        if stat.S_ISREG(entry.mode) and (is_privileged(entry.mode) or "capabilities " in entry.state):
            found = HostEntry(kind, entry.path, entry.state, entry.path)
            for name in ("mode", "uid", "gid", "size", "ctime", "package", "unread", "md5", "sha256"):
                setattr(found, name, getattr(entry, name))
            yield found
    for path, status in _scan(digests):
        if path not in known and stat.S_ISREG(status.st_mode) and status.st_mode & 0o111:
            entry = entry_files.describe_file(kind, path, status)
            entry_files.describe_attributes(entry)
            if is_privileged(status.st_mode) or "capabilities " in entry.state:
                known.add(path)
                entry_files.read_entry(entry, digests)
                yield entry
                if digests.deep:
                    digests.memory.setdefault(PRIVILEGED, []).append(path)
    yield from _unscanned(kind, digests)


def _unscanned(kind: str, digests: EntryDigests) -> Iterator[HostEntry]:
    """A row per folder of which some files were left out, unless all of them were looked at lately."""
    moment = digests.memory.get(FULL_SCAN)
    is_known = isinstance(moment, float) and 0 <= time.time() - moment < FULL_SCAN_AGE
    for folder in usual_scan(entry_files.ROOT)[1]:
        state = f"more than {MOST_SCANNED} files, or {SCANNED_DEPTH} folders deep: `check --deep` looks at all of them"
        entry = HostEntry(kind, f"{folder} {entry_files.BOUND}", state)
        entry.origin = "derived from the last look at all files" if is_known else ""
        yield entry


def _scan(digests: EntryDigests) -> Iterator[ScannedFile]:
    """Files below folders, and those that the last full look at all disks found to be privileged."""
    if digests.deep:
        digests.memory[PRIVILEGED], digests.memory[FULL_SCAN] = [], time.time()
        yield from full_scan()
    yield from usual_scan(entry_files.ROOT)[0]
    for path in digests.memory.get(PRIVILEGED, []):
        with suppress(OSError, TypeError):
            if not entry_files.is_silent(path):
                yield path, os.lstat(f"{entry_files.ROOT}{path}")


def is_privileged(mode: int) -> bool:
    """Whether a program runs as its owner or group for every user."""
    return bool(mode & (stat.S_ISUID | stat.S_ISGID)) and bool(mode & 0o111)
