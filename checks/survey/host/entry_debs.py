"""Entries of packages against the archive's own package files: a signed release names a list, that names a package
file, and the file has the content. Nothing of it comes from dpkg's records, which root can write.
"""

from __future__ import annotations

import glob
import hashlib
import os
import pwd
import shutil
import stat
import subprocess
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import IO, Any, NamedTuple

from checks.survey.host import dpkg, entry_archives
from checks.survey.host.entry_archives import ArchivedDeb
from checks.survey.host.entry_packages import MERGED, PackageRecords
from checks.survey.host.host_entry import HostEntry

CACHE = "/var/cache/apt/archives"
SCRATCH = "/var/tmp"  # noqa: S108 (the folder for much that a reboot may keep)
FETCHER = "_apt"
"""The user as which apt fetches."""
TIME = 420.0  # s for all
MOST_BYTES = 2 << 30  # of all package files
LARGEST = 512 << 20  # bytes of a package file
RESERVE = 1 << 30  # bytes of the disk that stay free
PART = 25  # packages that are fetched at once
MOST_MEMBERS = 200_000  # of a package file
MOST_UNPACKED = 4 << 30  # bytes that a package file comes to
INFO = f"{dpkg.ADMIN}/info"


class DebComparison:
    """The comparisons that were made, and those that were not."""

    def __init__(self) -> None:
        self.packages = self.bytes = 0
        self.seconds = 0.0
        self.left: dict[str, str] = {}
        """Package with its version -> why it was not compared."""

    def describe(self) -> dict[str, object]:
        """The same for an answer."""
        return {
            "packages": self.packages,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 1),
            "left": [f"{name}: {why}" for name, why in sorted(self.left.items())],
        }


class DebContent(NamedTuple):
    """The contents of a package file."""

    files: dict[str, str]
    """Path -> MD5, or `link to TARGET`."""
    scripts: dict[str, str]
    """Name of a script -> MD5."""


def compare_debs(entries: list[HostEntry], index: PackageRecords) -> DebComparison:
    """Take the origin from entries that differ from their package's file in its archive.

    Args:
        entries: All of them; those of packages were read.
        index: Owners of paths.
    """
    found, began = DebComparison(), time.monotonic()
    explained = group_entries(entries, index)
    debs = entry_archives.find_debs({base.partition(":")[0]: index.versions[base] for base in explained})
    waiting = {}
    architectures = Counter(base.partition(":")[0] for base in index.versions)
    for base in sorted(explained):
        name, version = base.partition(":")[0], index.versions[base]
        if architectures[name] > 1:
            found.left[f"{base} {version}"] = "it is installed for several architectures"
        elif name not in debs:
            found.left[f"{name} {version}"] = "no signed list has this version any more"
        elif debs[name].size > LARGEST:
            found.left[f"{name} {version}"] = f"larger than {LARGEST >> 20} MiB"
        else:
            waiting[base] = debs[name]
    cached = _by_size(f"{dpkg.ROOT}{CACHE}")
    bases = [*waiting]
    for start in range(0, len(bases), PART):
        part = {base: waiting[base] for base in bases[start : start + PART]}
        _compare_part(part, explained, index, cached, found, began)
    found.seconds = time.monotonic() - began
    return found


def group_entries(entries: Iterable[HostEntry], index: PackageRecords) -> dict[str, list[HostEntry]]:
    """Package -> its entries that it explains, and those of its scripts."""
    found: dict[str, list[HostEntry]] = {}
    for entry in entries:
        # the links of a merged /usr are made at an installation
        if not entry.origin or entry.key != entry.path or entry.path in ("", *MERGED):
            continue
        owner = index.owners.get(entry.path)
        base = owner.package if owner and entry.origin == f"package {owner.package}" else ""
        if entry.path.startswith(f"{INFO}/"):
            base = entry.path.removeprefix(f"{INFO}/").rpartition(".")[0]
        if base in index.archives:
            found.setdefault(base, []).append(entry)
    return found


def _compare_part(
    part: Mapping[str, ArchivedDeb],
    explained: Mapping[str, list[HostEntry]],
    index: PackageRecords,
    cached: Mapping[int, list[str]],
    found: DebComparison,
    began: float,
) -> None:
    """Fetch some packages and compare their entries."""
    names = {base: f"{base.partition(':')[0]} {index.versions[base]}" for base in part}
    size = sum(deb.size for deb in part.values())
    reason = ""
    if time.monotonic() - began > TIME:
        reason = f"not reached in {TIME:.0f} s"
    elif found.bytes + size > MOST_BYTES:
        reason = f"over {MOST_BYTES >> 30} GiB of package files"
    elif shutil.disk_usage(f"{dpkg.ROOT}{SCRATCH}").free < size + RESERVE:
        reason = f"{SCRATCH} has too little space"
    if reason:
        found.left |= {names[base]: reason for base in part}
        return
    until = began + TIME
    parent = tempfile.mkdtemp(prefix="rw-check-debs-", dir=f"{dpkg.ROOT}{SCRATCH}")
    try:
        own = {base: _read_first(cached.get(deb.size, ()), deb.sha256, until) for base, deb in part.items()}
        folder = make_fetch_folder(parent)
        missing = [f"{base}={index.versions[base]}" for base, content in own.items() if content is None]
        if folder:
            fetch_debs(missing, folder, until)
        fetched = _by_size(folder) if folder else {}
        for base, deb in part.items():
            paths = fetched.get(deb.size, ())
            content = own[base] or _read_first(paths, deb.sha256, until)
            if content is None:
                found.left[names[base]] = (
                    "its file is another one, or cannot be read" if paths else "its archive has this file no longer"
                )
                continue
            found.packages += 1
            found.bytes += deb.size
            for entry in explained[base]:
                if not is_in_deb(entry, base, content):
                    entry.origin = ""
                    entry.expected_from = f"the archive's package file {names[base]}"
    finally:
        shutil.rmtree(parent, ignore_errors=True)


def _by_size(folder: str) -> dict[int, list[str]]:
    """Size -> package files of a folder, links left out."""
    found: dict[int, list[str]] = {}
    for path in sorted(glob.glob(f"{glob.escape(folder)}/*.deb")):
        with suppress(OSError):
            status = os.lstat(path)
            if stat.S_ISREG(status.st_mode):
                found.setdefault(status.st_size, []).append(path)
    return found


def _read_first(paths: Iterable[str], sha256: str, until: float) -> DebContent | None:
    return next((content for path in paths if (content := read_deb(path, sha256, until))), None)


def make_fetch_folder(parent: str) -> str:
    """A folder of the fetcher's own in one of root's, in which it can replace nothing; empty without a fetcher."""
    folder = f"{parent}/files"
    try:
        account = pwd.getpwnam(FETCHER)
        os.chmod(parent, 0o711)  # noqa: S103 (its user passes through it)
        os.mkdir(folder, 0o700)
        os.chown(folder, account.pw_uid, account.pw_gid, follow_symlinks=False)
    except (OSError, LookupError):
        return ""
    return folder


def fetch_debs(packages: list[str], folder: str, until: float) -> None:
    """Have apt fetch package files into a folder, as its own user; a file that it cannot fetch is not there.

    Args:
        packages: `NAME=VERSION` of each.
        folder: The fetcher's own.
        until: Moment of the monotonic clock at which it ends.
    """
    left = until - time.monotonic()
    if not packages or left <= 0:
        return
    words = ("apt-get", "-q", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=20", "download", "--")
    with suppress(OSError, LookupError, ValueError, subprocess.SubprocessError):
        done = subprocess.run(
            [*words, *packages],
            cwd=folder,
            user=FETCHER,
            group=pwd.getpwnam(FETCHER).pw_gid,
            extra_groups=(),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=left,
            check=False,
        )
        if done.returncode and len(packages) > 1:
            # of one that no archive has any more, apt fetches none
            for one in packages:
                if not glob.glob(f"{glob.escape(folder)}/{glob.escape(one.partition(':')[0].partition('=')[0])}_*"):
                    fetch_debs([one], folder, until)


def read_deb(path: str, sha256: str, until: float) -> DebContent | None:
    """The contents of a package file; None where its SHA-256 differs, or it cannot be read."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        # an unpacked file is a copy of root's: a process of the fetcher's may still write its own file
        with os.fdopen(opened, "rb") as file, tempfile.TemporaryFile(dir=f"{dpkg.ROOT}{SCRATCH}") as copy:
            if not stat.S_ISREG(os.fstat(opened).st_mode) or os.fstat(opened).st_size > LARGEST:
                return None
            digest, left = hashlib.sha256(), LARGEST
            while left > 0 and (piece := file.read(1 << 20)):
                left -= len(piece)
                digest.update(piece)
                copy.write(piece)
            if digest.hexdigest() != sha256:
                return None
            copy.flush()
            files = dict(_members("--fsys-tarfile", copy.fileno(), until))
            scripts = dict(_members("--ctrl-tarfile", copy.fileno(), until))
    # headers of an archive can be nested without end, or as long as they like
    except (OSError, ValueError, tarfile.TarError, subprocess.SubprocessError, RecursionError, MemoryError):
        return None
    return DebContent(files, {name.lstrip("/"): value for name, value in scripts.items()})


def _members(option: str, opened: int, until: float) -> Iterator[tuple[str, str]]:
    """Path and MD5 of each file in a part of a package file; of a link, where it leads.

    Raises:
        ValueError: it has too many files or bytes, cannot be unpacked, or the time is over.
    """
    os.lseek(opened, 0, os.SEEK_SET)
    words = ("/usr/bin/dpkg-deb", option, f"/proc/self/fd/{opened}")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, pass_fds=(opened,)) as unpacking:
        stream: IO[bytes] = unpacking.stdout  # type: ignore[assignment] # a pipe is asked for
        try:
            yield from _files_of(stream, until)
        except BaseException:
            unpacking.kill()
            raise
        while stream.read(1 << 20):
            _require_time(until)
    if unpacking.returncode:
        raise ValueError("it cannot be unpacked")


def _require_time(until: float) -> None:
    if time.monotonic() > until:
        raise ValueError("the time is over")


def _files_of(stream: IO[bytes], until: float) -> Iterator[tuple[str, str]]:
    left = MOST_UNPACKED
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        hard: dict[str, str] = {}
        for number, member in enumerate(archive):
            left -= member.size
            if number > MOST_MEMBERS or left < 0 or member.issparse():
                raise ValueError("too many files or bytes")
            name = os.path.normpath(f"/{member.name}")
            if member.issym():
                yield name, f"link to {member.linkname}"
            elif member.islnk():
                yield name, hard.get(os.path.normpath(f"/{member.linkname}"), "")
            elif member.isreg():
                hard[name] = _digest(archive.extractfile(member), until)
                yield name, hard[name]


def _digest(content: Any, until: float) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    while piece := content.read(1 << 20):
        _require_time(until)
        digest.update(piece)
    return digest.hexdigest()


def is_in_deb(entry: HostEntry, base: str, content: DebContent) -> bool:
    """Whether a package file has an entry as it is on the host."""
    if entry.path.startswith(f"{INFO}/{base}."):
        return content.scripts.get(entry.path.rpartition(".")[2], "") == entry.md5
    moved = {to: source for source, (to, _) in dpkg.diversions().items()}
    for name in dpkg.names(moved.get(entry.path, entry.path)):
        there = content.files.get(name)
        if there is not None:
            return there == (entry.state.partition(", ")[0] if stat.S_ISLNK(entry.mode) else entry.md5)
    return not stat.S_ISREG(entry.mode) and not stat.S_ISLNK(entry.mode)
