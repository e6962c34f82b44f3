"""Packaged files that were changed, as `dpkg --verify` would find them in minutes.

A file's inode has not changed since the package's list was written, or its bytes are compared: a file that is only
touched, copied by a backup or given the mode that it has does not differ.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from fnmatch import fnmatchcase

from checks.survey.host import common, dpkg

# Files that are run, linked or loaded; people read the rest
RUN = (
    "usr/bin/",
    "usr/sbin/",
    "usr/lib",
    "usr/libexec/",
    "usr/src/",
    "bin/",
    "sbin/",
    "lib",
    "boot/",
    "usr/share/initramfs-tools/",
    "usr/share/lua/",
    "usr/share/perl",
    "usr/share/nginx/modules",
)
# ...without code that no program here runs
UNREAD = re.compile(r"usr/lib/(?:locale|mime|os-release|doc)|.*\.(?:pyc|gz|html|txt|md)$")
# Of a distribution's own packages that are set so; every other one is a way to become root
SETUID = re.compile(
    r"(?:.*/)?(?:su|sudo|sudoedit|sudo-rs|su-rs|passwd|chfn|chsh|gpasswd|newgrp|mount|umount|mount\.(?:nfs|cifs|ecryptfs_private)|"
    r"ping6?|fusermount3?|pkexec|crontab|at|ssh-keysign|dbus-daemon-launch-helper|polkit-agent-helper-1|newuidmap|"
    r"newgidmap|nvidia-modprobe|ntfs-3g|snap-confine|Xorg\.wrap|pppd|exim4|doas|traceroute6\.iputils|"
    r"vmware-user-suid-wrapper|utempter|unix_chkpwd|chage|expiry|mtr-packet|arping|bwrap|suexec-.*|lockdev|firejail|cgexec)"
)
CAPABLE = re.compile(
    r".*/(?:ping|mtr-packet|arping|newuidmap|newgidmap|gst-ptp-helper|dumpcap|snap-confine|traceroute6.*|fping6?|clockdiff|tracepath|"
    r"prometheus-blackbox-exporter)"
)
MOST = 200  # findings that are reported; a longer list means that the system itself has changed
# Links by which programs are started and libraries are found
NAMED = re.compile(r"/(?:usr/)?(?:s?bin/[^/]+|lib\S*/(?:lib|ld)[^/]*\.so(?:\.[^/]*)?)")
PIECE = 1 << 20


def md5(path: str) -> str:
    """Of a file's bytes; it is what dpkg has of them."""
    found = hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            found.update(piece)
    return found.hexdigest()


def wrong(path: str, seen: os.stat_result, strict: bool) -> str:
    """The faults of a file's owner and permissions, in words."""
    mode = stat.S_IMODE(seen.st_mode)
    if seen.st_mode & stat.S_ISUID and not SETUID.fullmatch(path):
        return "runs as its owner for every user"
    if strict and seen.st_uid != 0:
        return f"belongs to user {seen.st_uid}"
    if mode & 0o002 or (mode & 0o020 and seen.st_gid != 0):
        return f"can be written by others (mode {mode:o}, group {seen.st_gid})"
    if strict and mode & 0o444 != 0o444:
        return f"cannot be read by everybody (mode {mode:o})"
    if strict and re.search(r"/s?bin/[^/]+\Z", path) and not mode & 0o001:
        return f"cannot be run by everybody (mode {mode:o})"
    return ""


class PackageVerification:
    """The findings so far."""

    def __init__(self, deep: bool) -> None:
        self.deep = deep
        self.findings: list[dict[str, str]] = []
        self.files = 0
        self.moved = dpkg.diversions()
        text = common.read(f"{dpkg.ROOT}{dpkg.ADMIN}/statoverride") or ""
        self.links: dict[str, tuple[str, str]] = {}
        self.born: dict[str, float] = {}
        self.overridden = {line.split(" ", 3)[3] for line in common.lines(text) if line.count(" ") >= 3}

    def say(self, package: str, path: str, what: str) -> None:
        """Something that is not as it was brought."""
        if len(self.findings) < MOST:
            self.findings.append({"package": package, "path": path, "what": what})

    def place(self, package: str, path: str) -> str:
        """Where a package's file lies, if another one had it moved; a file put in its place is run."""
        for name in dpkg.names(path):
            if name in self.moved and self.moved[name][1] not in (package, ":"):
                return self.moved[name][0]
        return path

    def verify(self, package: dpkg.DpkgPackage, strict: bool) -> None:
        """Look at one package: its programs and libraries, and where `strict` all that it has."""
        info = f"{dpkg.ROOT}{dpkg.ADMIN}/info/{package.base}"
        since = dpkg.unpacked(info, self.born)
        if since is None:
            self.say(package.name, f"{info}.list", "is gone, and with it what the package has brought")
            return
        sums = common.read(f"{info}.md5sums", most=64 << 20)
        rows = [(line[:32], f"/{line[34:]}") for line in common.lines(sums or "") if len(line) > 34]
        if not strict:
            rows = [(md5, path) for md5, path in rows if path[1:].startswith(RUN) and not UNREAD.match(path[1:])]
        for wanted, path in rows:
            self.file(package.name, path, wanted, since, strict)
        if not strict:
            listed = common.lines(common.read(f"{info}.list", most=64 << 20) or "")
            named = [path for path in listed if NAMED.fullmatch(path)]
            self.link(package.name, {path for path in named if os.path.islink(f"{dpkg.ROOT}{path}")}, whole=False)
        if strict:
            for path, wanted in package.conffiles.items():
                if wanted not in ("newconffile", "obsolete"):
                    self.file(package.name, path, wanted, since, strict=False)
            self.others(package, f"{info}.list", {path for _, path in rows} | package.conffiles.keys(), sums is None)

    def link(self, package: str, paths: set[str], *, whole: bool) -> None:
        """Have links judged, once all are known; those that lead to nothing where the `whole` package is looked at."""
        for path in paths:
            there = f"{dpkg.ROOT}{self.place(package, path)}"
            target = os.path.realpath(there).removeprefix(dpkg.ROOT) if os.path.exists(there) else ""
            if target or whole:
                self.links[path] = (package, target)

    def report_foreign_links(self) -> None:
        """Say which links lead to what no package has brought."""
        ends = {target for _, target in self.links.values() if target and not os.path.isdir(f"{dpkg.ROOT}{target}")}
        own = dpkg.owners(ends)
        for path, (package, target) in self.links.items():
            if not target:
                self.say(package, path, "is a link to nothing")
            elif target in ends and target not in own:
                self.say(package, path, f"is a link to {target}, which no package has brought")

    def file(self, package: str, path: str, wanted: str, since: float, strict: bool) -> None:
        """Look at one file."""
        there = self.place(package, path)
        try:
            seen = os.lstat(f"{dpkg.ROOT}{there}")
        except OSError:
            if strict or not re.match(r"/usr/(?:share|src)/", path):
                self.say(package, path, "is missing")
            return
        self.files += 1
        if not stat.S_ISREG(seen.st_mode):
            self.say(
                package,
                path,
                f"is a link to {os.readlink(dpkg.ROOT + there)}" if stat.S_ISLNK(seen.st_mode) else "is no file",
            )
            return
        said = wrong(path, seen, strict)
        # an administrator's override may close a file, or have it run as its owner; it may not let others write to it
        if said and (path not in self.overridden or seen.st_mode & stat.S_IWOTH):
            self.say(package, path, said)
        if seen.st_ctime <= since and not self.deep:
            return
        try:
            if "security.capability" in os.listxattr(f"{dpkg.ROOT}{there}") and not CAPABLE.fullmatch(path):
                self.say(package, path, "has capabilities of its own")
            if md5(f"{dpkg.ROOT}{there}") != wanted:
                self.say(package, path, "has another content")
        except OSError as error:
            self.say(package, path, f"cannot be read: {error.strerror}")

    def others(self, package: dpkg.DpkgPackage, listed: str, summed: set[str], blind: bool) -> None:
        """Look at a package's links and folders; and for what lies in its sources beside what it has brought."""
        paths = common.lines(common.read(listed, most=64 << 20) or "")
        links: set[str] = set()
        trees = []
        for path in paths:
            if (
                path in summed
                or path in ("/.", "")
                or path.startswith(("/usr/share/doc", "/usr/share/man", "/usr/share/locale"))
            ):
                continue
            there = f"{dpkg.ROOT}{self.place(package.name, path)}"
            try:
                seen = os.lstat(there)
            except OSError:
                self.say(package.name, path, "is missing")
                continue
            if stat.S_ISREG(seen.st_mode) and blind:
                self.say(package.name, path, "cannot be compared: the package's sums are gone")
            elif stat.S_ISDIR(seen.st_mode):
                mode = stat.S_IMODE(seen.st_mode)
                loose = seen.st_uid or (mode & 0o022 and not mode & stat.S_ISVTX) or mode & 0o555 != 0o555
                if loose and not path.startswith(("/var/", "/etc/sudoers.d", "/root")):
                    self.say(package.name, path, f"is a folder of user {seen.st_uid} with mode {mode:o}")
                if fnmatchcase(path, "/usr/src/*-*") and path.count("/") == 3:
                    trees.append(path)
            elif stat.S_ISLNK(seen.st_mode):
                links.add(path)
        self.link(package.name, links, whole=True)
        for tree in trees:
            known = set(paths)
            for folder, _, names in os.walk(f"{dpkg.ROOT}{tree}"):
                for name in names:
                    path = f"{folder}/{name}".removeprefix(dpkg.ROOT)
                    if path not in known:
                        self.say(package.name, path, "was not brought by the package")


class Matching:
    """Names that fit one of shell patterns."""

    def __init__(self, patterns: list[str]) -> None:
        # most are a name, or how one begins: a pattern of a hundred of them takes long to make
        self.names = {one for one in patterns if not common.WILD.search(one)}
        begin = [one for one in patterns if one.endswith("*") and not common.WILD.search(one[:-1])]
        self.begin = tuple(one[:-1] for one in begin)
        self.others = [one for one in patterns if one not in self.names and one not in begin]

    def has(self, name: str) -> bool:
        """Whether a name fits one."""
        return (
            name in self.names
            or name.startswith(self.begin)
            or any(fnmatchcase(name, pattern) for pattern in self.others)
        )


def look(asked: dict[str, object]) -> dict[str, object]:
    """Packages' files that are not as they were brought.

    Args:
        asked: Shell patterns of the names of packages: `strict`, of which everything is looked at, and `run`, of which
            programs and libraries are; `deep`, whether all bytes are read.
    """
    found = PackageVerification(bool(asked["deep"]))
    there = [one for one in dpkg.packages() if one.state == "installed"]
    strictly, running = Matching(asked["strict"]), Matching(asked["run"])  # type: ignore[arg-type] # by the caller
    strict = [one for one in there if strictly.has(one.name)]
    run = [one for one in there if not strictly.has(one.name) and running.has(one.name)]
    bases = [f"{dpkg.ROOT}{dpkg.ADMIN}/info/{one.base}" for one in (*strict, *run)]
    found.born = common.born(f"{base}.{kind}" for base in bases for kind in ("list", "md5sums"))
    for package in strict:
        found.verify(package, strict=True)
    for package in run:
        found.verify(package, strict=False)
    found.report_foreign_links()
    moved = [[path, to] for path, (to, by) in found.moved.items() if by == ":"]
    return {
        "findings": found.findings,
        "files": found.files,
        "strict": [one.name for one in strict],
        "moved": [[path, to, dpkg.owners([path]).get(path, "")] for path, to in moved],
        "overridden": sorted(found.overridden),
    }
