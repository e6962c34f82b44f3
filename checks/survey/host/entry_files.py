"""Files of the fingerprint: selected by pattern, described by what the file system says, and read where that is due."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from fnmatch import translate
from functools import lru_cache
from typing import Any

from checks.survey.host import common, dpkg, fs_responsiveness
from checks.survey.host.entry_digests import EntryDigests
from checks.survey.host.host_entry import HostEntry

ROOT = ""  # a test has a folder for a host
OWNER = 0  # a test's files are its user's
MOST_ENTRIES = 20_000  # of one class
MOST_NAMES = 20_000  # of one folder
DEEPEST = 16  # folders below a pattern's own
MOST_FOLLOWED = 300  # entries for what links lead to
BOUND = "(bound reached)"
INFO = "/var/lib/dpkg/info/"
KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}
ATTRIBUTES = {
    "security.capability": "capabilities",
    "system.posix_acl_access": "access list",
    "system.posix_acl_default": "default access list",
}
LABELS = (
    "security.selinux",
    "security.SMACK64",
    "security.ima",
    "security.evm",
    "security.apparmor",
    "trusted.overlay.",
)
"""Beginnings of the names of attributes that the kernel gives to files."""
MOST_ATTRIBUTES, LONGEST_NAME = 20, 60  # of a file; characters


@lru_cache(maxsize=1)
def silent_mounts() -> tuple[str, ...]:
    """Where file systems are mounted that do not answer."""
    return () if ROOT else tuple(fs_responsiveness.silent(fs_responsiveness.mounted()))


def is_silent(path: str) -> bool:
    """Whether a path lies on a file system that does not answer."""
    return any(f"{path}/".startswith(f"{place.rstrip('/')}/") for place in silent_mounts())


def _matcher(pattern: str) -> Callable[[str], object]:
    """A test whether a name fits a shell pattern; most have one star, for which no expression has to be made."""
    begin, star, end = pattern.partition("*")
    if star and not common.WILD.search(begin + end):
        return lambda name: len(name) >= len(begin + end) and name.startswith(begin) and name.endswith(end)
    return re.compile(translate(pattern)).match


class FileCollector:
    """Files of all classes, each once: the first class that takes a path has it."""

    def __init__(self, exclude: Callable[[HostEntry], bool], taken: Iterable[str] = ()) -> None:
        """Begin.

        Args:
            exclude: Whether the churn table leaves out an entry.
            taken: Paths that readers have made entries of.
        """
        self.exclude = exclude
        self.entries: list[HostEntry] = []
        self.paths = set(taken)
        self._folders: set[str] = set()
        self._walked: set[str] = set()
        self._bounds: set[tuple[str, str, str]] = set()
        self._count = 0

    def collect_class(self, kind: str, patterns: Iterable[str]) -> None:
        """Make entries of what the patterns of a class select."""
        self._count = 0
        for pattern in patterns:
            below = pattern.endswith("/**")
            for path in self._expand(kind, pattern.removesuffix("/**")):
                self._parents(kind, path)
                self._visit(kind, path, DEEPEST if below else None)

    def _expand(self, kind: str, pattern: str) -> Iterator[str]:
        """Paths that a pattern selects; hidden ones as well."""
        found = [""]
        parts = pattern.strip("/").split("/")
        for number, part in enumerate(parts):
            if not common.WILD.search(part):
                found = [f"{path}/{part}" for path in found]
                continue
            fits = _matcher(part)
            last = number == len(parts) - 1
            fitting = []
            for path in found:
                names = self._scan(path or "/")
                if len(names) == MOST_NAMES:
                    self._report_bound(kind, path or "/", f"more than {MOST_NAMES} names in the folder")
                fitting += [
                    f"{path}/{entry.name}"
                    for entry in names
                    if fits(entry.name) and (last or entry.is_dir(follow_symlinks=False))
                ]
            found = fitting
        yield from (path for path in found if is_silent(path) or os.path.lexists(f"{ROOT}{path}"))

    def _scan(self, folder: str) -> list[os.DirEntry[str]]:
        """The names in a folder, in their order; none where it is no folder, or does not answer."""
        if is_silent(folder):
            return []
        with suppress(OSError), os.scandir(f"{ROOT}{folder}") as entries:
            found = [entry for _, entry in zip(range(MOST_NAMES), entries)]  # noqa: B905 (of Python 3.10)
            return sorted(found, key=lambda entry: entry.name)
        return []

    def _parents(self, kind: str, path: str) -> None:
        """Make entries of folders above a path in which others than root may write."""
        folder = os.path.dirname(path)
        while folder not in self._folders:
            self._folders.add(folder)
            with suppress(OSError):
                self._folder(kind, folder or "/", os.lstat(f"{ROOT}{folder or '/'}"))
            folder = os.path.dirname(folder)

    def _visit(self, kind: str, path: str, depth: int | None) -> None:
        """Make entries of a path, and of what lies so many folders below it."""
        if is_silent(path):
            self._add(HostEntry(kind, path, "a file system that does not answer", path))
            return
        try:
            status = os.lstat(f"{ROOT}{path}")
        except OSError:
            return
        if not stat.S_ISDIR(status.st_mode):
            self._file(kind, path, status)
            return
        self._folder(kind, path, status)
        if depth is None or path in self._walked:
            return
        self._walked.add(path)
        if not depth:
            self._report_bound(kind, path, "more folders below than are read")
            return
        names = self._scan(path)
        if len(names) == MOST_NAMES:
            self._report_bound(kind, path, f"more than {MOST_NAMES} names in the folder")
        for entry in names:
            self._visit(kind, f"{path}/{entry.name}", depth - 1)

    def _report_bound(self, kind: str, path: str, state: str) -> None:
        if (kind, path, state) in self._bounds:
            return
        self._bounds.add((kind, path, state))
        self.entries.append(HostEntry(kind, f"{path} {BOUND}", state, path))

    def _folder(self, kind: str, path: str, status: os.stat_result) -> None:
        """A folder is an entry where others than root may write in it: its contents have entries of their own."""
        if status.st_uid != OWNER or stat.S_IMODE(status.st_mode) & 0o022 or _attributes(path):
            self._file(kind, path, status)

    def _file(self, kind: str, path: str, status: os.stat_result) -> None:
        if path in self.paths:
            return
        if self._count >= MOST_ENTRIES:
            if self._count == MOST_ENTRIES:
                self._count += 1
                self._report_bound(kind, kind, f"too many entries: more than {MOST_ENTRIES}")
            return
        self._add(describe_file(kind, path, status))

    def _add(self, entry: HostEntry) -> None:
        self.paths.add(entry.path)
        if self.exclude(entry):
            return
        self._count += 1
        self.entries.append(entry)

    def follow_links(self) -> None:
        """Make entries of the targets of links, where no class has them: files that they name are obeyed in their
        place."""
        left = MOST_FOLLOWED
        for entry in [one for one in self.entries if stat.S_ISLNK(one.mode) and not one.unread]:
            target = os.path.realpath(f"{ROOT}{entry.path}")
            target = target.removeprefix(ROOT) if target.startswith(f"{ROOT}/") else target
            if target in self.paths or target.startswith(common.KERNELS) or is_silent(target):
                continue
            with suppress(OSError):
                status = os.lstat(f"{ROOT}{target}")
                if entry.uid not in (OWNER, status.st_uid):
                    # a user's link would have files read that this user may not read
                    continue
                if stat.S_ISREG(status.st_mode) or (stat.S_ISDIR(status.st_mode) and not entry.package):
                    if not left:
                        self._report_bound(entry.kind, entry.path, f"more than {MOST_FOLLOWED} links to elsewhere")
                        return
                    left -= 1
                    self._count = MOST_ENTRIES - MOST_FOLLOWED
                    self._visit(entry.kind, target, 2)


def describe_file(kind: str, path: str, status: os.stat_result) -> HostEntry:
    """An entry for what lies at a path, without its content."""
    if stat.S_ISLNK(status.st_mode):
        try:
            state = f"link to {os.readlink(f'{ROOT}{path}')}"
        except OSError:
            state = "link"
    else:
        word = KINDS.get(stat.S_IFMT(status.st_mode), f"device {status.st_rdev:x}")
        owner = account_names("passwd").get(status.st_uid, str(status.st_uid))
        group = account_names("group").get(status.st_gid, str(status.st_gid))
        state = f"{word} {stat.S_IMODE(status.st_mode):04o} {owner}:{group}"
        if stat.S_ISREG(status.st_mode) and status.st_mode & (stat.S_ISUID | stat.S_ISGID) and status.st_nlink > 1:
            # another name of the same file is another way to start it
            state += f", {status.st_nlink} links"
    entry = HostEntry(kind, path, state, path)
    entry.mode, entry.uid, entry.gid = status.st_mode, status.st_uid, status.st_gid
    entry.size, entry.ctime = status.st_size, status.st_ctime
    return entry


def find_packages(entries: list[HostEntry], digests: EntryDigests) -> None:
    """Set which package lists each file, and whether it is the same since that was unpacked, so that none reads it."""
    places = {entry.path: entry for entry in entries if entry.mode}
    owners, moments = _packages_of(places, digests)
    conffiles = {path for one in dpkg.packages() for path in one.conffiles} if owners else set()
    for path, package in owners.items():
        entry = places[path]
        entry.package = package
        unchanged = entry.ctime <= moments.get(package, 0.0)
        entry.unread = unchanged and not any(name in conffiles for name in dpkg.names(path))


def _packages_of(paths: Iterable[str], digests: EntryDigests) -> tuple[dict[str, str], dict[str, float]]:
    """Path -> the package that lists it, without others; and package -> when all of it was there.

    dpkg's lists are read for paths that no earlier run has asked for, and for all once a package has changed.
    """
    key = [_identity(f"{dpkg.ROOT}{dpkg.ADMIN}/{name}") for name in ("status", "info")]
    kept = digests.memory.get("dpkg")
    if not isinstance(kept, dict) or kept.get("key") != key or digests.deep:
        kept = digests.memory["dpkg"] = {"key": key, "owners": {}, "moments": {}}
    known, moments = kept["owners"], kept["moments"]
    if missing := [path for path in paths if path not in known]:
        found = dpkg.owners(path for path in missing if not path.startswith(INFO))
        known |= dict.fromkeys(missing, "") | found
        known |= {path: _script_package(path) for path in missing if path.startswith(INFO)}
    owners = {path: known[path] for path in paths if known[path]}
    if unknown := {*owners.values()} - moments.keys():
        moments |= dict.fromkeys(unknown, 0.0) | _unpacked(unknown)
    return owners, moments


def _identity(path: str) -> list[int]:
    with suppress(OSError):
        status = os.stat(path)
        return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    return []


def _script_package(path: str) -> str:
    return path.removeprefix(INFO).rpartition(".")[0].partition(":")[0]


def _unpacked(names: set[str]) -> dict[str, float]:
    """Package -> when all of it was there; of several architectures, of the first that was."""
    packages = [one for one in dpkg.packages() if one.name in names]
    bases = {one.base: f"{dpkg.ROOT}{INFO}{one.base}" for one in packages}
    born = common.born(f"{base}.{kind}" for base in bases.values() for kind in ("list", "md5sums"))
    found: dict[str, float] = {}
    for one in packages:
        moment = dpkg.unpacked(bases[one.base], born) or 0.0
        found[one.name] = min(moment, found.get(one.name, moment))
    return found


def read_entry(entry: HostEntry, digests: EntryDigests) -> None:
    """Read a file, or take its digests from the cache; the state of an unreadable one tells so."""
    if entry.sha256 or not stat.S_ISREG(entry.mode):
        return
    try:
        status = os.lstat(f"{ROOT}{entry.path}")
        entry.md5, entry.sha256, entry.content = digests.file_digests(f"{ROOT}{entry.path}", status)
    except OSError as error:
        entry.state += f", not readable: {error.strerror or error}"
        return
    entry.unread = False


def describe_attributes(entry: HostEntry) -> None:
    """Add extended attributes of a file or folder to its state."""
    if stat.S_ISREG(entry.mode) or stat.S_ISDIR(entry.mode):
        entry.state += "".join(f", {name} {value}" for name, value in _attributes(entry.path))


def _attributes(path: str) -> list[tuple[str, str]]:
    """Extended attributes: capabilities and access lists as they are, others by name and length."""
    found = []
    with suppress(OSError):
        for name in os.listxattr(f"{ROOT}{path}", follow_symlinks=False)[:MOST_ATTRIBUTES]:
            if name.startswith(LABELS):
                continue
            value = os.getxattr(f"{ROOT}{path}", name, follow_symlinks=False)
            if name in ATTRIBUTES:
                found.append((ATTRIBUTES[name], value.hex()[:128]))
            else:
                found.append((f"attribute {name[:LONGEST_NAME]}", f"of {len(value)} bytes"))
    return sorted(found)


@lru_cache(maxsize=2)
def account_names(database: str) -> dict[int, str]:
    """Number -> name, of a file of accounts or groups: a directory service may not answer."""
    found: dict[int, str] = {}
    for line in common.lines(common.begin(f"{ROOT}/etc/{database}")):
        row = line.split(":")
        if len(row) > 2 and row[2].isdecimal():
            found.setdefault(int(row[2]), row[0])
    return found


def collect(
    asked: dict[str, Any], digests: EntryDigests, exclude: Callable[[HostEntry], bool], taken: Iterable[str] = ()
) -> list[HostEntry]:
    """Entries for all files that the classes select, read where no package explains that they are the same.

    Args:
        asked: `classes`, each with `name` and `paths`; `deep`, whether packages' files are read as well.
        digests: Reads files.
        exclude: Whether the churn table leaves out an entry.
        taken: Paths that readers have made entries of.
    """
    collector = FileCollector(exclude, taken)
    for one in asked["classes"]:
        collector.collect_class(one["name"], one["paths"])
    find_packages(collector.entries, digests)
    known = len(collector.entries)
    collector.follow_links()
    find_packages(collector.entries[known:], digests)
    for entry in collector.entries:
        if asked["deep"] or not entry.unread:
            describe_attributes(entry)
            read_entry(entry, digests)
    return collector.entries
