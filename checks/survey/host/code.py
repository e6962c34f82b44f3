"""Code that processes run: whether its files lie where they were mapped from, and are what a package has brought."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from contextlib import suppress

from checks.survey.host import closures, common

MAPPING = re.compile(r"^([0-9a-f]+-[0-9a-f]+) (\S+) \S+ \S+ ([0-9]+) *(.*)$")
KERNELS_OWN = ("[vdso]", "[vsyscall]", "[uprobes]")
UNNAMED = ("/memfd:", "/dev/zero", "/SYSV")
MOST = 8 << 20  # bytes of a file that are read: what is larger has a check of its own
PACKAGES = "/var/lib/dpkg/info"


class Code:
    """Files that processes run code from, each looked at once."""

    def __init__(self, folders: tuple[str, ...]) -> None:
        self.folders = folders
        self.files: set[str] = set()

    def of(self, pid: int) -> set[str]:
        """Where a process runs code from, `WHAT PATH`."""
        found = set()
        rows = [*filter(None, map(MAPPING.match, common.lines(common.read(f"/proc/{pid}/maps", 16 << 20) or "")))]
        code = [row for row in rows if "x" in row[2] and row[4] not in KERNELS_OWN]
        for row in code:
            area, path = row[1], row[4]
            if path == closures.NAME and row[2] == "r-xs" and _has_only_closures(pid, row, code, rows):
                found.add(f"closures {path}")
            elif not path.startswith("/") or path.startswith(UNNAMED):
                found.add(f"unnamed {path}".strip())
            elif path.endswith(" (deleted)"):
                found.add(f"deleted {path.removesuffix(' (deleted)')}")
            elif self._replaced(pid, area, path):
                found.add(f"replaced {path}")
            else:
                self.files.add(path)
                found.add(f"file {path}")
        return found

    def _replaced(self, pid: int, area: str, path: str) -> bool:
        """Whether another file lies at a path than the one that is mapped."""
        try:
            mapped = os.stat(f"/proc/{pid}/map_files/{area}")
        except OSError:
            return False
        try:
            there = os.stat(path)
        except OSError:
            # in its own view it may lie elsewhere, as what it has compiled does
            return False
        return (mapped.st_dev, mapped.st_ino) != (there.st_dev, there.st_ino)

    def judged(self) -> dict[str, str]:
        """Path -> what is wrong with it by dpkg's word, of files that are not below the folders."""
        wanted = {path for path in self.files if not path.startswith(self.folders)}
        sums = _sums(wanted)
        found = dict.fromkeys(wanted - sums.keys(), "not from any package")
        for path, digest in sums.items():
            if (now := _md5(path)) and now != digest:
                found[path] = "its bytes are not its package's"
        return found


def _has_only_closures(pid: int, row: re.Match[str], code: list[re.Match[str]], rows: list[re.Match[str]]) -> bool:
    of_files = [one for one in code if one[4].startswith("/") and not one[4].startswith(UNNAMED)]
    return closures.has_only_closures(pid, _area(row), [*map(_area, of_files)], [*map(_area, rows)])


def _area(row: re.Match[str]) -> tuple[int, int]:
    first, _, end = row[1].partition("-")
    return int(first, 16), int(end, 16)


def _sums(wanted: Iterable[str]) -> dict[str, str]:
    """Path -> MD5 by the package that has brought it."""
    # where /lib is a link to /usr/lib, packages may say either
    names = {path.removeprefix("/usr").lstrip("/"): path for path in wanted}
    asked = {f"{merged}{name}".encode(errors="replace") for name in names for merged in ("", "usr/")}
    # a name of several words is found by its lines alone
    several = any(len(one.split()) > 1 for one in asked)
    found: dict[str, str] = {}
    with suppress(OSError), os.scandir(PACKAGES) as entries:
        for entry in entries:
            if not entry.name.endswith(".md5sums"):
                continue
            data = common.data(entry.path, 64 << 20) or b""
            # most packages have brought none of them: their lines are not looked at one by one
            if not several and asked.isdisjoint(data.split()):
                continue
            for line in common.lines(common.text(data)):
                digest, _, path = line.partition("  ")
                if (name := path.removeprefix("usr/")) in names:
                    found[names[name]] = digest
    return found


def _md5(path: str) -> str:
    try:
        if os.stat(path).st_size > MOST:
            return ""
        with open(path, "rb") as file:
            return hashlib.md5(file.read(MOST), usedforsecurity=False).hexdigest()
    except OSError:
        return ""
