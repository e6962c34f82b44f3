"""Entries that packages of declared, signed archives explain: the content, the mode and the place are the package's.

dpkg's records are files of the host: root can forge them. This module compares a package with the paragraph of a signed
list, and keeps digests of the records at first sight, so that a later change of a record alone explains nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

from checks.survey.host import common, dpkg, entry_archives, packaged_modes
from checks.survey.host.host_entry import HostEntry

CACHE = "fingerprint_packages.json"
SCHEMA = 1
MOST = 64 << 20
DIGITS = 32  # of an MD5
EXCLUDED = tuple(f"/usr/share/{name}/" for name in ("doc", "man", "locale", "info", "groff", "lintian", "linda"))
"""Folders that images leave out when they install packages (dpkg(1), --path-exclude)."""
SHOWN = 4  # names of files
UNLISTED = "unlisted package"
MERGED = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")


class PathOwner:
    """dpkg's records of a path."""

    __slots__ = ("digest", "made", "package", "version")

    def __init__(self, package: str, version: str, digest: str, made: float) -> None:
        self.package, self.version = package, version
        self.digest = digest
        """MD5 of the content; empty for a link, a folder, and a file without one."""
        self.made = made
        """When the package was built, in seconds since 1970: no link of it is newer. 0 where it has no sums."""


class PackageRecords:
    """The owners of paths, and the archives of packages; kept between runs in a folder of root's."""

    def __init__(self, folder: str) -> None:
        self.path = f"{dpkg.ROOT}{folder}/{CACHE}" if folder else ""
        self.cache: dict[str, Any] = load_cache(self.path)
        self.changed = False
        self.owners: dict[str, PathOwner] = {}
        self.archives: dict[str, str] = {}
        """Package -> the archive that has its version; without those that no archive has."""
        self.versions: dict[str, str] = {}
        self.installed: set[str] = set()
        """Names of packages that an archive has."""
        self.forged: set[str] = set()
        """Packages whose records in dpkg's database were others once, for the same version."""

    def load(self, paths: set[str]) -> None:
        """Know the owners of these paths, and the archives of all packages."""
        key: list[object] = [_identity(f"{dpkg.ROOT}{dpkg.ADMIN}/{name}") for name in ("status", "info", "diversions")]
        known = self.cache.get("owners", {}) if self.cache.get("key") == key else {}
        missing = {path for path in paths if path not in known}
        archived = self._load_archives(key)
        if missing or not archived:
            packages = [one for one in dpkg.packages() if one.state == "installed"]
            if not archived:
                self._find_archives(packages)
            folders = {path.rpartition("/")[0] for path in paths} if self.cache.get("key") != key else set()
            known = known | self._find_owners(missing, packages, folders)
            self.cache["key"], self.cache["owners"] = key, known
            self.changed = True
        self.versions = dict(self.cache.get("versions", {}))
        self.archives = {name: archive for name, archive in self.cache.get("archives", {}).items() if archive}
        self.forged = {*self.cache.get("forged", ())}
        self.installed = {base.partition(":")[0] for base in self.archives}
        self.owners = {path: PathOwner(*row) for path in paths if (row := known.get(path))}

    def owner(self, path: str) -> str:
        """The archived package that lists a path, with its architecture where several have it; empty for none."""
        self.load_more({path})
        found = self.owners.get(path)
        return found.package if found and found.package in self.archives else ""

    def load_more(self, paths: set[str]) -> None:
        """Know the owners of further paths."""
        known = self.cache.setdefault("owners", {})
        if missing := {path for path in paths if path not in known}:
            packages = [one for one in dpkg.packages() if one.state == "installed"]
            self.cache["owners"] |= self._find_owners(missing, packages)
            self.changed = True
        self.owners |= {path: PathOwner(*row) for path in paths if (row := self.cache["owners"].get(path))}

    def has_first(self, path: str, version: str) -> bool:
        """Whether it is known what lay at a path when this version of its package was there first."""
        return bool(self.cache.get("first", {}).get(path, [""])[0] == version)

    def is_first(self, path: str, version: str, value: str) -> bool:
        """Whether what lies at a path is what lay there when this version of its package was there first."""
        if not self.has_first(path, version):
            self.cache.setdefault("first", {})[path] = [version, value]
            self.changed = True
        return bool(self.cache["first"][path][1] == value)

    def save(self) -> None:
        """Keep what was read, where there is a folder for it."""
        if self.changed and self.path:
            save_cache(self.path, {**self.cache, "schema": SCHEMA})

    def _load_archives(self, key: list[object]) -> bool:
        """Whether the cache has the archives of the packages that are installed now."""
        return bool(
            self.cache.get("key") == key and self.cache.get("lists") == entry_archives.describe_lists(dpkg.ROOT)
        )

    def _find_archives(self, packages: list[dpkg.DpkgPackage]) -> None:
        """Find the archive of each package; one that had this version once, with these records, still counts."""
        remembered: dict[str, list[str]] = self.cache.get("remembered", {})
        records = {one.base: _records_digest(one) for one in packages}
        keys = {one.base: f"{one.base} {one.version}" for one in packages}
        unknown = [one for one in packages if keys[one.base] not in remembered]
        found = entry_archives.find_archives({one.name: one.version for one in unknown}) if unknown else {}
        remembered |= {keys[one.base]: [found[one.name], records[one.base]] for one in unknown if one.name in found}
        self.cache["remembered"] = remembered
        self.cache["lists"] = entry_archives.describe_lists(dpkg.ROOT)
        self.cache["versions"] = {one.base: one.version for one in packages}
        self.cache["archives"] = {
            one.base: row[0]
            for one in packages
            if (row := remembered.get(keys[one.base])) and row[1] == records[one.base]
        }
        self.cache["forged"] = [
            one.base for one in packages if (row := remembered.get(keys[one.base])) and row[1] != records[one.base]
        ]

    def missing_files(self, paths: Collection[str]) -> dict[str, PathOwner]:
        """Packaged files that lie beside these paths by dpkg's records, and are not there."""
        return {
            path: PathOwner(*row)
            for path, row in self.cache.get("owners", {}).items()
            if row
            and len(row[2]) == DIGITS
            and path not in paths
            and not path.startswith(EXCLUDED)
            and not any(os.path.lexists(f"{dpkg.ROOT}{name}") for name in dpkg.names(path))
        }

    def _find_owners(
        self, paths: set[str], packages: list[dpkg.DpkgPackage], folders: Collection[str] = ()
    ) -> dict[str, list[object] | None]:
        """Path -> owner, version, digest, time of the build; None where no package has it.

        Args:
            paths: Those that are asked.
            packages: All that are installed.
            folders: All packaged files there are wanted, too.
        """
        moved = dpkg.diversions()
        found: dict[str, list[object] | None] = dict.fromkeys(paths)
        names: dict[bytes, set[str]] = {}
        for path in paths:
            for name in (*dpkg.names(path), *(source for source, (to, _) in moved.items() if to == path)):
                names.setdefault(name.encode(errors="surrogateescape"), set()).add(path)
        for one in packages:
            info = f"{dpkg.ROOT}{dpkg.ADMIN}/info/{one.base}"
            listed = common.data(f"{info}.list", most=MOST) or b""
            lines = set(listed.split(b"\n"))
            ours = names.keys() & lines
            if not ours and not folders:
                continue
            sums = common.data(f"{info}.md5sums", most=MOST) or b""
            digests = {b"/" + line[34:]: line[:32].decode() for line in sums.split(b"\n") if len(line) > 34}
            digests |= {path.encode(errors="surrogateescape"): md5 for path, md5 in one.conffiles.items()}
            made = os.stat(f"{info}.md5sums").st_mtime if sums else 0.0
            for row in ours:
                listed_as = row.decode(errors="surrogateescape")
                for path in names[row]:
                    if _lies_there(listed_as, path, one.name, moved):
                        found[path] = [one.base, one.version, digests.get(row, ""), made]
            for row in digests.keys() & lines - ours if folders else ():
                for path in dpkg.names(row.decode(errors="surrogateescape")):
                    if path.rpartition("/")[0] in folders and path not in moved:
                        found.setdefault(path, [one.base, one.version, digests[row], made])
        return found


def _lies_there(listed: str, path: str, package: str, moved: dict[str, tuple[str, str]]) -> bool:
    """Whether what a package lists under one path lies at another, as diversions have it (dpkg-divert(1))."""
    for name in dpkg.names(listed):
        if name in moved and moved[name][1] != package:
            return path in dpkg.names(moved[name][0])
    return path in dpkg.names(listed)


def _records_digest(package: dpkg.DpkgPackage) -> str:
    """SHA-256 of what dpkg's records have of a package's content, and of its scripts."""
    found = hashlib.sha256(json.dumps(sorted(package.conffiles.items())).encode())
    for kind in ("md5sums", "preinst", "postinst", "prerm", "postrm"):
        data = common.data(f"{dpkg.ROOT}{dpkg.ADMIN}/info/{package.base}.{kind}", most=MOST)
        found.update(f"{kind} {-1 if data is None else len(data)}\n".encode() + (data or b""))
    return found.hexdigest()


def _identity(path: str) -> list[int]:
    """The evidence that a file or folder has changed."""
    with suppress(OSError):
        status = os.stat(path)
        return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    return []


def load_cache(path: str) -> dict[str, Any]:
    """The data of an earlier run; empty where another user could have written it."""
    if not path:
        return {}
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return {}
    with os.fdopen(opened, "rb") as file:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            return {}
        try:
            value = json.loads(file.read(MOST))
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) and value.get("schema") == SCHEMA else {}


def save_cache(path: str, value: dict[str, Any]) -> None:
    """Keep what the next run need not read again; a folder that is not there, or is full, keeps nothing."""
    new = f"{path}.{os.getpid()}.new"
    with suppress(OSError):
        try:
            opened = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(opened, "w") as file:
                json.dump(value, file, separators=(",", ":"))
            os.replace(new, path)
        except OSError:
            os.unlink(new)


PackagedLink = tuple[HostEntry, PathOwner, os.stat_result]


def attribute_packages(entries: list[HostEntry], index: PackageRecords) -> list[PackagedLink]:
    """Set the origin of entries that are as a package of a declared archive brought them; returns links of packages,
    which count with what they lead to.
    """
    links = []
    digests = {entry.path: entry.md5 for entry in entries if entry.md5}
    for entry in entries:
        owner = index.owners.get(entry.path) if entry.path else None
        if not owner or entry.origin or entry.key != entry.path:
            continue
        entry.expected_from = f"package {owner.package} {owner.version}"
        if owner.package in index.forged:
            entry.expected_from += ", whose records in dpkg's database have changed"
            continue
        if stat.S_ISREG(entry.mode):
            # its state has what collect has read of attributes; none came since it was unpacked
            capable = ", capabilities " in entry.state
            further = any(word in entry.state for word in (" access list ", ", attribute ", " links"))
            same = (
                bool(owner.digest)
                and not further
                and (entry.unread or (entry.md5 or digests.get(entry.path)) == owner.digest)
            )
            if same and packaged_modes.fits_package(entry.path, entry.mode, entry.uid, entry.gid, capable=capable):
                _explain(entry, owner.package, index)
            continue
        try:
            status = os.lstat(f"{dpkg.ROOT}{entry.path}")
        except OSError:
            continue
        if stat.S_ISLNK(status.st_mode):
            links.append((entry, owner, status))
        else:
            there = stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid
            if packaged_modes.FOLDERS.get(entry.path) == there:
                _explain(entry, owner.package, index)
    return links


def attribute_links(links: list[PackagedLink], index: PackageRecords, is_entry: Callable[[str], bool]) -> None:
    """Set the origin of links that packages brought, and that lead to a package's file, or to an entry.

    Args:
        links: As `attribute_packages` returns them.
        index: Owners of paths.
        is_entry: Whether what lies at a path is an entry of its own.
    """
    ends = {entry.path: _end(entry.path) for entry, _, _ in links if not entry.origin}
    index.load_more({end for end in ends.values() if end})
    for entry, owner, status in links:
        if entry.origin or owner.digest or status.st_uid != packaged_modes.OWNER:
            continue
        end = ends[entry.path]
        # a package's links have the time of its build, as its sums have: a later one was made here, unless it was set,
        # or leads where the first one has led
        is_built = status.st_mtime <= owner.made + 1 or index.has_first(entry.path, owner.version)
        if entry.path in MERGED:
            known = end == f"/usr{entry.path}"
        elif not is_built or not index.is_first(entry.path, owner.version, entry.state):
            known = False
        else:
            known = end in ("", "/dev/null") or bool(index.owner(end)) or is_entry(end)
        if known:
            _explain(entry, owner.package, index)


def _end(path: str) -> str:
    """Where a link leads at last, in the host's own paths; empty for nothing."""
    real = os.path.realpath(f"{dpkg.ROOT}{path}")
    return real.removeprefix(dpkg.ROOT) if os.path.exists(real) else ""


def _explain(entry: HostEntry, package: str, index: PackageRecords) -> None:
    entry.origin = f"package {package}" if package in index.archives else f"{UNLISTED} {package}"
    entry.expected_from = ""


def add_missing_files(entries: list[HostEntry], index: PackageRecords) -> None:
    """Add an entry without a state for each packaged file that is gone from a folder with entries."""
    paths = {entry.path for entry in entries}
    kinds: dict[str, str] = {}
    for entry in entries:
        if entry.key == entry.path:
            kinds.setdefault(entry.path.rpartition("/")[0], entry.kind)
    for path, owner in sorted(index.missing_files(paths).items()):
        if kind := kinds.get(path.rpartition("/")[0]):
            gone = HostEntry(kind, path, "", path)
            gone.expected_from = f"package {owner.package} {owner.version}"
            entries.append(gone)


def add_unlisted_packages(entries: list[HostEntry], index: PackageRecords) -> None:
    """Add an entry for each package that no declared, signed archive has, and each class: it stands for the files that
    are as dpkg's records have them. Those are forged as easily as the files.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        if entry.origin.startswith(f"{UNLISTED} "):
            owner = index.owners[entry.path]
            found.setdefault((owner.package, entry.kind), []).append(f"{entry.path} {owner.digest}")
    for (package, kind), rows in sorted(found.items()):
        rows.sort()
        names = ", ".join(row.rpartition(" ")[0] for row in rows[:SHOWN]) + (", ..." if len(rows) > SHOWN else "")
        state = f"{index.versions.get(package, '')}, of no declared, signed archive; {len(rows)} files: {names}"
        entry = HostEntry(kind, f"package {package}", state)
        entry.sha256 = hashlib.sha256("\n".join(rows).encode(errors="surrogateescape")).hexdigest()
        entries.append(entry)


def list_packages(entries: list[HostEntry], index: PackageRecords) -> list[dict[str, object]]:
    """Packages that bring entries, with the number of entries in each class."""
    counts: dict[str, dict[str, int]] = {}
    for entry in entries:
        owner = index.owners.get(entry.path) if entry.key == entry.path else None
        if owner:
            classes = counts.setdefault(owner.package, {})
            classes[entry.kind] = classes.get(entry.kind, 0) + 1
    return [
        {
            "name": name,
            "version": index.versions.get(name, ""),
            "archive": index.archives.get(name, ""),
            "classes": classes,
        }
        for name, classes in sorted(counts.items())
    ]
