"""Entries that packages of declared, signed archives explain: the content, the mode and the place are the package's.

dpkg's records are files of the host: root can forge them. This module compares a package with the paragraph of a signed
list, and keeps digests of the records at first sight, so that a later change of a record alone explains nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from checks.survey.host import common, dpkg, entry_archives
from checks.survey.host.host_entry import HostEntry

CACHE = "fingerprint_packages.json"
OWNER = 0  # a test's files are its user's
SCHEMA = 1
MOST = 64 << 20
PROGRAMS = ("/usr/bin/", "/usr/sbin/", "/bin/", "/sbin/")
PRIVILEGED: dict[str, tuple[int, str, bool]] = {
    **{
        f"/usr/bin/{name}": (0o4755, "root", False)
        for name in (
            *("chfn", "chsh", "gpasswd", "mount", "newgrp", "ntfs-3g", "passwd", "pkexec", "su", "sudo", "umount"),
            *("fusermount", "fusermount3", "bwrap", "doas", "newuidmap", "newgidmap", "nvidia-modprobe", "at"),
        )
    },
    **{
        f"/usr/sbin/{name}": (0o4755, "root", False)
        for name in ("mount.nfs", "mount.cifs", "mount.ecryptfs_private", "exim4", "pppd")
    },
    "/usr/bin/chage": (0o2755, "shadow", False),
    "/usr/bin/expiry": (0o2755, "shadow", False),
    "/usr/sbin/unix_chkpwd": (0o2755, "shadow", False),
    "/usr/bin/crontab": (0o2755, "crontab", False),
    "/usr/bin/ssh-agent": (0o2755, "_ssh", False),
    "/usr/bin/wall": (0o2755, "tty", False),
    "/usr/bin/write": (0o2755, "tty", False),
    "/usr/bin/bsd-write": (0o2755, "tty", False),
    "/usr/bin/dotlockfile": (0o2755, "mail", False),
    "/usr/lib/openssh/ssh-keysign": (0o4755, "root", False),
    "/usr/lib/dbus-1.0/dbus-daemon-launch-helper": (0o4754, "messagebus", False),
    "/usr/lib/polkit-1/polkit-agent-helper-1": (0o4755, "root", False),
    "/usr/libexec/polkit-agent-helper-1": (0o4755, "root", False),
    "/usr/lib/xorg/Xorg.wrap": (0o4755, "root", False),
    "/usr/lib/snapd/snap-confine": (0o4755, "root", True),
    **{
        f"/usr/bin/{name}": (0o755, "root", True)
        for name in ("ping", "arping", "clockdiff", "mtr-packet", "dumpcap", "fping", "prometheus-blackbox-exporter")
    },
    "/usr/lib/x86_64-linux-gnu/gstreamer1.0/gstreamer-1.0/gst-ptp-helper": (0o755, "root", True),
}
"""Program -> mode, group and whether it has capabilities, as Debian's and Ubuntu's packages install it: dpkg records no
modes."""
OTHER_MODES = {
    "/usr/bin/ping": (0o4755,),
    "/usr/bin/fusermount": (0o4754,),
    "/usr/bin/at": (0o6755,),
    "/usr/bin/crontab": (0o2755, 0o4755),
    "/usr/bin/newuidmap": (0o755,),
    "/usr/bin/newgidmap": (0o755,),
    "/usr/bin/mtr-packet": (0o4755,),
}
"""Modes of other releases' packages."""
FOLDERS = {
    **dict.fromkeys(("/tmp", "/var/tmp"), (0o1777, 0, 0)),
    **dict.fromkeys(
        (
            "/var/local",
            *(f"/usr/local{one}" for one in ("", "/bin", "/sbin", "/lib", "/etc", "/share", "/src", "/games")),
        ),
        (0o2775, 0, 50),
    ),
    "/var/mail": (0o2775, 0, 8),
    "/var/spool/cron/crontabs": (0o1730, 0, -1),
}
"""Folders of packages in which others than root may write: mode, owner and group."""
MERGED = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
GROUPS = {"/usr/bin/crontab": ("crontab", "_crontab", "root"), "/usr/bin/ssh-agent": ("_ssh", "ssh")}


class PathOwner:
    """What dpkg's records have of a path."""

    __slots__ = ("digest", "made", "package", "version")

    def __init__(self, package: str, version: str, digest: str, made: float) -> None:
        self.package, self.version = package, version
        self.digest = digest
        """MD5 of the content; empty for a link, a folder, and a file without one."""
        self.made = made
        """When the package was built, in seconds since 1970: no link of it is newer. 0 where it has no sums."""


class PackageIndex:
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

    def load(self, paths: set[str]) -> None:
        """Know the owners of these paths, and the archives of all packages."""
        key = [_identity(f"{dpkg.ROOT}{dpkg.ADMIN}/{name}") for name in ("status", "info", "diversions")]
        known = self.cache.get("owners", {}) if self.cache.get("key") == key else {}
        missing = {path for path in paths if path not in known}
        archived = self._load_archives(key)
        if missing or not archived:
            packages = [one for one in dpkg.packages() if one.state == "installed"]
            if not archived:
                self._find_archives(packages)
            known = known | self._find_owners(missing, packages)
            self.cache["key"], self.cache["owners"] = key, known
            self.changed = True
        self.versions = dict(self.cache.get("versions", {}))
        self.archives = {name: archive for name, archive in self.cache.get("archives", {}).items() if archive}
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

    def _find_owners(self, paths: set[str], packages: list[dpkg.DpkgPackage]) -> dict[str, list[object] | None]:
        """Path -> owner, version, digest, time of the build; None where no package has it."""
        moved = dpkg.diversions()
        found: dict[str, list[object] | None] = dict.fromkeys(paths)
        names: dict[bytes, set[str]] = {}
        for path in paths:
            for name in (*dpkg.names(path), *(source for source, (to, _) in moved.items() if to == path)):
                names.setdefault(name.encode(errors="surrogateescape"), set()).add(path)
        for one in packages:
            info = f"{dpkg.ROOT}{dpkg.ADMIN}/info/{one.base}"
            listed = common.data(f"{info}.list", most=MOST) or b""
            ours = names.keys() & set(listed.split(b"\n"))
            if not ours:
                continue
            sums = common.data(f"{info}.md5sums", most=MOST) or b""
            digests = {b"/" + line[34:]: line[:32].decode() for line in sums.split(b"\n") if len(line) > 34}
            digests |= {path.encode(errors="surrogateescape"): md5 for path, md5 in one.conffiles.items()}
            made = os.stat(f"{info}.md5sums").st_mtime if sums else 0.0
            for name in ours:
                listed_as = name.decode(errors="surrogateescape")
                for path in names[name]:
                    if _lies_there(listed_as, path, one.name, moved):
                        found[path] = [one.base, one.version, digests.get(name, ""), made]
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
    """What shows that a file or folder has changed."""
    with suppress(OSError):
        status = os.stat(path)
        return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
    return []


def load_cache(path: str) -> dict[str, Any]:
    """What an earlier run kept; empty where another user could have written it."""
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


def has_packaged_mode(path: str, status: os.stat_result) -> bool:
    """Whether owner, group and mode are as a package installs a file: root's, and writable by root alone."""
    extended: list[str] = []
    with suppress(OSError):
        extended = os.listxattr(f"{dpkg.ROOT}{path}", follow_symlinks=False)
    listed, capable = any("posix_acl" in one for one in extended), "security.capability" in extended
    return not listed and fits_package(path, status.st_mode, status.st_uid, status.st_gid, capable=capable)


def fits_package(path: str, mode: int, uid: int, gid: int, *, capable: bool) -> bool:
    """The same of a file without an access list.

    Args:
        path: Of the file.
        mode: As lstat(2) has it.
        uid: Its owner.
        gid: Its group.
        capable: Whether it has capabilities.
    """
    mode = stat.S_IMODE(mode)
    if uid != OWNER or mode & 0o022:
        return False
    if name := next((one for one in dpkg.names(path) if one in PRIVILEGED), ""):
        wanted, group, may = PRIVILEGED[name]
        fits = mode == wanted and common.named(_groups, gid) in (group, *GROUPS.get(name, ()))
        plain = mode == 0o755 and gid == 0
        return (fits or plain or mode in OTHER_MODES.get(name, ())) and (may or not capable)
    if capable or mode & 0o7000:
        return False
    return mode & 0o111 == 0o111 if path.startswith(PROGRAMS) else True


def _groups(number: int) -> tuple[str]:
    """A group's name, by the host's own file."""
    for row in common.rows(f"{dpkg.ROOT}/etc/group", 4):
        if row[2] == str(number):
            return (row[0],)
    raise KeyError(number)


PackagedLink = tuple[HostEntry, PathOwner, os.stat_result]


def attribute_packages(entries: list[HostEntry], index: PackageIndex) -> list[PackagedLink]:
    """Set the origin of entries that are as a package of a declared archive brought them; returns links of packages,
    which count with what they lead to.
    """
    links = []
    for entry in entries:
        owner = index.owners.get(entry.path) if entry.path else None
        if not owner or entry.origin or entry.key != entry.path:
            continue
        entry.expected_from = f"package {owner.package} {owner.version}"
        if owner.package not in index.archives:
            entry.expected_from += ", which no declared, signed archive has"
            continue
        if stat.S_ISREG(entry.mode):
            # its state has what collect has read of capabilities and access lists; none came since it was unpacked
            capable, listed = ", capabilities " in entry.state, " access list " in entry.state
            same = bool(owner.digest) and (entry.unread or entry.md5 == owner.digest) and not listed
            if same and fits_package(entry.path, entry.mode, entry.uid, entry.gid, capable=capable):
                _explain(entry, owner.package)
            continue
        try:
            status = os.lstat(f"{dpkg.ROOT}{entry.path}")
        except OSError:
            continue
        if stat.S_ISLNK(status.st_mode):
            links.append((entry, owner, status))
        elif stat.S_ISDIR(status.st_mode):
            if FOLDERS.get(entry.path) == (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid):
                _explain(entry, owner.package)
    return links


def attribute_links(links: list[PackagedLink], index: PackageIndex, is_entry: Callable[[str], bool]) -> None:
    """Set the origin of links that packages brought, and that lead to a package's file, or to an entry.

    Args:
        links: As `attribute_packages` returns them.
        index: Owners of paths.
        is_entry: Whether what lies at a path is an entry of its own.
    """
    ends = {entry.path: _end(entry.path) for entry, _, _ in links if not entry.origin}
    index.load_more({end for end in ends.values() if end})
    for entry, owner, status in links:
        if entry.origin or owner.digest or status.st_uid != OWNER:
            continue
        # a package's links have the time of its build, as its sums have: a later one was made here
        if entry.path not in MERGED and status.st_mtime > owner.made + 1:
            continue
        end = ends[entry.path]
        known = end in ("", "/dev/null") or index.owner(end) or is_entry(end) or os.path.isdir(f"{dpkg.ROOT}{end}")
        if known:
            _explain(entry, owner.package)


def _end(path: str) -> str:
    """Where a link leads at last, in the host's own paths; empty for nothing."""
    real = os.path.realpath(f"{dpkg.ROOT}{path}")
    return real.removeprefix(dpkg.ROOT) if os.path.exists(real) else ""


def _explain(entry: HostEntry, package: str) -> None:
    entry.origin, entry.expected_from = f"package {package}", ""


def list_packages(entries: list[HostEntry], index: PackageIndex) -> list[dict[str, object]]:
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
