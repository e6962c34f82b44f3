"""Entries of the fingerprint for files that run as their owner or group, or with capabilities, wherever they lie."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress

from checks.survey.host import entry_files, fs_responsiveness
from checks.survey.host.entry_digests import EntryDigests
from checks.survey.host.host_entry import HostEntry

MOST_SCANNED = 5000  # files of a folder outside the classes that are looked at for setuid and capabilities
PRIVILEGED_DEPTH = 4  # folders
MOST_SCANNED_DEEP = 2_000_000
SCANNED = (
    *("/tmp", "/var/tmp", "/dev/shm", "/home", "/root", "/opt", "/srv", "/mnt", "/var/lib"),  # noqa: S108 (places)
)
UNSCANNED = ("/var/lib/dpkg", "/var/lib/docker", "/var/lib/containerd", "/var/lib/containers", "/proc", "/sys")
"""Folders with nothing that runs, and those in which containers have programs of their own."""
PRIVILEGED = "privileged_files"  # what the table of classes calls this reader


def list_files(folders: Iterable[str], depth: int, most: int) -> Iterator[tuple[str, os.stat_result]]:
    """Paths of files below folders, with what lstat(2) has of each; what is mounted below a folder is left out.

    Args:
        folders: Where to begin.
        depth: How many folders deep.
        most: How many files of each folder.
    """
    for folder in folders:
        waiting, left = [(folder, 0)], most
        device = 0
        while waiting and left > 0:
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
                        if level < depth:
                            waiting.append((path, level + 1))
                        continue
                    left -= 1
                    if left < 0:
                        break
                    with suppress(OSError):
                        yield path, entry.stat(follow_symlinks=False)


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


def _scan(digests: EntryDigests) -> Iterator[tuple[str, os.stat_result]]:
    """Files below folders, and those that the last full look at all disks found to be privileged."""
    if digests.deep:
        digests.memory[PRIVILEGED] = []
        places = ["/"] if entry_files.ROOT else fs_responsiveness.mounted()
        yield from list_files(places, entry_files.DEEPEST, MOST_SCANNED_DEEP)
    yield from list_files(SCANNED, PRIVILEGED_DEPTH, MOST_SCANNED)
    for path in digests.memory.get(PRIVILEGED, []):
        with suppress(OSError, TypeError):
            if not entry_files.is_silent(path):
                yield path, os.lstat(f"{entry_files.ROOT}{path}")


def is_privileged(mode: int) -> bool:
    """Whether a program runs as its owner or group, whoever starts it."""
    return bool(mode & (stat.S_ISUID | stat.S_ISGID)) and bool(mode & 0o111)
