"""Entries that can never be accepted, whatever an operator reviews: they give root's rights away by themselves."""

from __future__ import annotations

import os
import re
import stat
import struct
from contextlib import suppress

from checks.survey.host import common, dpkg
from checks.survey.host.entry_archives import UNSIGNED
from checks.survey.host.host_entry import HostEntry

PRIVATE = (
    *("/home/", "/var/spool/", "/srv/", "/mnt/", "/media/", "/dev/", "/run/user/"),
    *("/tmp/", "/var/tmp/"),  # noqa: S108 (names of places)
)
"""Folders whose files are their owners': root runs none of them as its own."""
OPTIONAL = re.compile(r"/opt/(?!(?:bin|cni|containerd)(?:/|$))")
"""Where software that is no package's lies, much of it its own user's."""
ORDINARY = ("etc", "ordinary_settings", "logging", "host_names", "top_folder", "tls_keys", "account_database_files")
"""Classes with files of services' own users: there, only what every user may write is a problem."""
LOOSE_SETTINGS = re.compile(
    r"\b(?:AllowUnauthenticated|AllowInsecureRepositories|AllowWeakRepositories|AllowDowngradeToInsecureRepositories)"
    r"\s+\"?(?:true|yes|1|on|with|enable)\"?\s*;",
    re.IGNORECASE,
)
PEOPLE = 1000
"""The first user that is a person's (login.defs(5), SYS_UID_MAX)."""
ROOT_NUMBER = re.compile(r"uid=\s*[+-]?0+ ")
"""In the state of a user, as the C library reads numbers."""
ACL = "system.posix_acl_access"
ACL_USER, ACL_GROUP, ACL_WRITE = 0x02, 0x08, 0x02


def judge(entries: list[HostEntry]) -> None:
    """Set the problem of entries that can never be accepted."""
    writers = Writers()
    for entry in entries:
        if entry.kind == "accounts":
            entry.problem = account_problem(entry)
        elif entry.path and entry.key == entry.path:
            entry.problem = file_problem(entry, writers)


def account_problem(entry: HostEntry) -> str:
    """Why a user can never be accepted, by its own row: names may have spaces, and be there twice."""
    if ROOT_NUMBER.match(entry.state) and entry.key != "user root":
        return "a second user with root's number"
    return "a user with an empty password" if " password=empty" in entry.state else ""


def file_problem(entry: HostEntry, writers: Writers) -> str:
    """Why a file can never be accepted."""
    path = entry.path
    if path == "/etc/ld.so.preload":
        with suppress(OSError, RuntimeError):
            if (common.data(f"{dpkg.ROOT}{path}") or b"").strip():
                return "the loader puts a library into every program"
    if re.fullmatch(r"/etc/apt/sources\.list(?:\.d/[^/]+\.(?:list|sources))?", path):
        lines = [line for line in common.lines(common.begin(f"{dpkg.ROOT}{path}")) if not line.lstrip().startswith("#")]
        if matched := UNSIGNED.search("\n".join(lines)):
            return f"apt takes packages that no key has signed: {matched[0].strip().lstrip('[')}"
    if re.fullmatch(r"/etc/apt/apt\.conf(?:\.d/[^/]+)?", path):
        text = re.sub(r"(?m)^\s*(?://|#(?!clear)).*$", "", common.begin(f"{dpkg.ROOT}{path}"))
        if matched := LOOSE_SETTINGS.search(text):
            return f"apt takes packages that no key has signed: {' '.join(matched[0].split())}"
    if path.startswith(PRIVATE) or (entry.kind == "programs" and OPTIONAL.match(path)):
        return ""
    if entry.package and entry.mode & stat.S_ISUID and 0 < entry.uid < PEOPLE:
        # such as Debian's at, which is daemon's: another mode or content than the package's is a change
        return ""
    return writers.describe(path, strict=entry.kind not in ORDINARY)


class Writers:
    """Users other than root that can write files and folders."""

    def __init__(self) -> None:
        self.groups: dict[int, str] = {}
        """Number of each group that has a member other than root -> its name."""
        self._folders: dict[str, str] = {}
        self._closed: dict[str, bool] = {}
        rows = common.rows(f"{dpkg.ROOT}/etc/group", 4)
        users = common.rows(f"{dpkg.ROOT}/etc/passwd", 7)
        first = {row[3] for row in users if row[2] != "0"}
        for row in rows:
            if row[2].isdecimal() and (row[2] in first or {*row[3].split(",")} - {"", "root"}):
                self.groups[int(row[2])] = row[0]

    def describe(self, path: str, *, strict: bool) -> str:
        """The other users that can write a file, or a folder above it; empty where only root can.

        Args:
            path: Of the file.
            strict: Whether an owner or a group other than root's counts, too.
        """
        try:
            status = os.lstat(f"{dpkg.ROOT}{path}")
        except OSError:
            return ""
        found = "" if stat.S_ISLNK(status.st_mode) else self._of(path, status, strict)
        folder = os.path.dirname(path)
        if found:
            return "" if self._is_closed(folder) else f"{found} can write it"
        while strict and folder not in ("/", ""):
            if self._is_closed(folder):
                return ""
            if folder not in self._folders:
                above = self._folder(folder)
                self._folders[folder] = f"{above} can write its folder {folder}" if above else ""
            if self._folders[folder]:
                return self._folders[folder]
            folder = os.path.dirname(folder)
        return ""

    def _is_closed(self, folder: str) -> bool:
        """Whether only root gets into a folder or one above it: files that an archive has unpacked there may be
        anyone's."""
        if folder in ("/", ""):
            return False
        if folder not in self._closed:
            self._closed[folder] = self._is_closed(os.path.dirname(folder))
            with suppress(OSError):
                status = os.stat(f"{dpkg.ROOT}{folder}")
                self._closed[folder] |= not status.st_uid and not status.st_mode & 0o011
        return self._closed[folder]

    def _folder(self, path: str) -> str:
        try:
            status = os.stat(f"{dpkg.ROOT}{path}")
        except OSError:
            return ""
        if status.st_mode & stat.S_ISVTX and not status.st_uid:
            # others' files there can be neither removed nor replaced
            return ""
        return self._of(path, status, strict=True)

    def _of(self, path: str, status: os.stat_result, strict: bool) -> str:
        if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX and not status.st_uid:
            return ""
        if status.st_mode & stat.S_IWOTH:
            return "every user"
        if not strict:
            return ""
        if status.st_uid:
            return f"user {status.st_uid}"
        if status.st_mode & stat.S_IWGRP and status.st_gid in self.groups:
            return f"group {self.groups[status.st_gid]}"
        # with an access list, the group's bits are its mask: no entry of it gives more
        return self._listed(path) if status.st_mode & stat.S_IWGRP else ""

    def _listed(self, path: str) -> str:
        """The users that an access list lets write (acl(5))."""
        try:
            value = os.getxattr(f"{dpkg.ROOT}{path}", ACL)
        except OSError:
            return ""
        for tag, rights, number in struct.iter_unpack("<HHI", value[4:]) if len(value) % 8 == 4 else ():
            if rights & ACL_WRITE and tag == ACL_USER and number:
                return f"user {number}, by an access list,"
            if rights & ACL_WRITE and tag == ACL_GROUP and number in self.groups:
                return f"group {self.groups[number]}, by an access list,"
        return ""
