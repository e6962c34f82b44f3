"""The nightly full read: bytes of fingerprinted files are compared with the digests that the fingerprint takes from its
cache, so that a raw write is found behind an inode, a size and times that are as they were.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time

from .observed_host import Host

TYPE_CHECKING = False  # as in observed_host.py
if TYPE_CHECKING:
    from typing import Any

CACHE, PACKAGES = "fingerprint_cache.json", "fingerprint_packages.json"  # of checks/survey/host
RECORD = "full_read.json"
CACHE_BYTES = 64 << 20
LARGEST = 1 << 30  # bytes of a file that the fingerprint reads
PIECE = 1 << 20  # bytes
FIRST_HOUR, HOURS = 1, 4  # of the night, in the box's zone
READ_S = 300.0  # seconds of one run: the next one continues
SHOWN = 20  # files that are named
ROOT_USER = 0


def judge_full_read(host: Host) -> None:
    """No fingerprinted file has other bytes behind the same inode, size and times; reads them where that is due."""
    folder = host.declared["folder"]
    record = _load(host, f"{folder}/{RECORD}")
    if last_due(host, time.time()) > max(record.get("complete", 0.0), _deployed(host)):
        record = read_files(host, folder, record)
        _write(host, f"{folder}/{RECORD}", record)
    rows = [row for row in record.get("changed", []) if identity_of(host, row[0]) == row[1]]
    for path, _ in rows[:SHOWN]:
        host.fail("Y03", "high", "", f"{path} has other bytes, with inode, size and times as before")


def last_due(host: Host, now: float) -> float:
    """When the last full read was due: at a time of each night that each box has of its own."""
    digest = hashlib.sha256(host.text("/etc/machine-id").strip().encode()).digest()
    offset = int.from_bytes(digest[:4], "big") % (HOURS * 3600)
    day = time.localtime(now)
    for back in (0, 1):
        begin = time.mktime((day.tm_year, day.tm_mon, day.tm_mday - back, FIRST_HOUR, 0, 0, 0, 0, -1))
        if begin + offset <= now:
            return begin + offset
    return 0.0


def read_files(host: Host, folder: str, record: dict[str, Any]) -> dict[str, Any]:
    """Read files, from where the last run ended; what was found, and where this one ended.

    Args:
        host: The host.
        folder: Of results, with the caches of the fingerprint.
        record: What earlier runs found.
    """
    cache = _load(host, f"{folder}/{CACHE}")
    known = expected_digests(cache, _load(host, f"{folder}/{PACKAGES}"))
    until = time.monotonic() + READ_S
    changed = {row[0]: row[1] for row in record.get("changed", []) if identity_of(host, row[0]) == row[1]}
    begin, found = record.get("next", ""), set()
    for path in sorted(known):
        if path < begin:
            continue
        if time.monotonic() > until:
            return {**record, "changed": sorted(changed.items()), "next": path}
        identity = identity_of(host, path)
        if identity and has_other_bytes(host, path, identity, known[path]):
            changed[path] = identity
            found.add(path)
    if found:
        forget_digests(host, f"{folder}/{CACHE}", cache, found)
    return {"complete": time.time(), "files": len(known), "changed": sorted(changed.items())}


def expected_digests(cache: dict[str, Any], packages: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Path -> its identity and SHA-256 as the fingerprint has read it; of a file that it has left unread, for it is as
    old as its package, the moment of the package and the MD5.
    """
    files: dict[str, Any] = cache.get("files", {})
    found: dict[str, tuple[Any, ...]] = {path: ("sha256", row[:4], row[5]) for path, row in files.items()}
    listed = cache.get("memory", {}).get("dpkg", {})
    sums = packages.get("owners", {})
    for path, package in listed.get("owners", {}).items():
        moment, row = listed["moments"].get(package, 0.0), sums.get(path)
        if path not in found and moment and row and row[2]:
            found[path] = ("md5", moment, row[2])
    return found


def identity_of(host: Host, path: str) -> list[int]:
    """Inode, size and times of a file of root's that is read; empty for none."""
    there = host.lstat(path)
    if not there or not stat.S_ISREG(there.st_mode) or there.st_size >= LARGEST:
        return []
    if there.st_uid != ROOT_USER and not host.root:  # the fingerprint reads no more than a part of a user's files
        return []
    return [there.st_ino, there.st_size, there.st_mtime_ns, there.st_ctime_ns]


def has_other_bytes(host: Host, path: str, identity: list[int], expected: tuple[Any, ...]) -> bool:
    """Whether a file that is as it was by what the file system says has other bytes; those come from its disk."""
    kind, state, digest = expected
    if kind == "sha256" and list(state) != identity:
        return False  # the next check reads it
    if kind == "md5" and identity[3] > state * 1e9:
        return False  # the same
    made = hashlib.sha256() if kind == "sha256" else hashlib.md5(usedforsecurity=False)
    try:
        opened = os.open(host.path(path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        # a raw write does not change what lies in memory
        os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
        while piece := os.read(opened, PIECE):
            made.update(piece)
        os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(opened)
    return made.hexdigest() != digest and identity_of(host, path) == identity


def forget_digests(host: Host, path: str, cache: dict[str, Any], changed: set[str]) -> None:
    """Have the next check read changed files, and other files of their packages, whatever their times are."""
    listed = cache.get("memory", {}).get("dpkg", {})
    for one in changed:
        cache.get("files", {}).pop(one, None)
        if package := listed.get("owners", {}).get(one):
            listed["moments"][package] = 0.0
    _write(host, path, cache)


def _deployed(host: Host) -> float:
    found = host.lstat(f"{host.declared['config']}/self_check/declaration.json")
    return found.st_mtime if found else 0.0


def _load(host: Host, path: str) -> dict[str, Any]:
    """A file that root wrote; empty where there is none."""
    text = host.text(path, CACHE_BYTES)
    found = json.loads(text) if text else {}
    return found if isinstance(found, dict) else {}


def _write(host: Host, path: str, value: dict[str, Any]) -> None:
    """Write a file that root alone may read, whole or not at all."""
    new = f"{host.path(path)}.new"
    opened = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(opened, "w", encoding="utf-8") as file:
        json.dump(value, file, separators=(",", ":"))
    os.replace(new, host.path(path))
