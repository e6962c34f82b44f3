"""Code that processes run: whether its files lie where they were mapped from, and are what a package has brought."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from checks.survey.host import common, libffi_closures

MAPPING = re.compile(r"^([0-9a-f]+-[0-9a-f]+) (\S+) \S+ \S+ ([0-9]+) *(.*)$")
MAPS = 16 << 20  # bytes of a list of mappings: the size of a kernel's 65,530, with usual paths
REGIONS = 16384  # executable mappings of one process: each costs two look-ups of files
SHARED = 64 << 20  # bytes of such lists that are read for files of closures that processes share since a fork
GROUPS = "/sys/fs/cgroup"
KERNELS_OWN = ("[vdso]", "[vsyscall]", "[uprobes]")
UNNAMED = ("/memfd:", "/dev/zero", "/SYSV")
MOST = 8 << 20  # bytes of a file that are read: a larger one has a check of its own
PACKAGES = "/var/lib/dpkg/info"


class Code:
    """Files that processes run code from, each looked at once."""

    def __init__(self, folders: tuple[str, ...]) -> None:
        self.folders = folders
        self.files: set[str] = set()
        self.left = SHARED
        self.spaces: dict[str, libffi_closures.AddressSpace] = {}

    def of(self, pid: int) -> set[str]:
        """Where a process runs code from, `WHAT PATH`; `unjudged` and why where it has more than is read."""
        maps = common.entire(f"/proc/{pid}/maps", MAPS)
        if maps is None:
            return {"unjudged too many mappings"}
        rows = _parse(maps)
        code = [row for row in rows if "x" in row[2] and row[4] not in KERNELS_OWN]
        if len(code) > REGIONS:
            return {"unjudged too many executable mappings"}
        found = set()
        if libffis := [row for row in code if _is_libffis(row)]:
            found.add(f"{self._classify(pid, libffis, rows)} {libffi_closures.NAME}")
        for row in code:
            area, path = row[1], row[4]
            if _is_libffis(row):
                continue
            if not path.startswith("/") or path.startswith(UNNAMED):
                found.add(f"unnamed {path}".strip())
            elif path.endswith(" (deleted)"):
                found.add(f"deleted {path.removesuffix(' (deleted)')}")
            elif self._replaced(pid, area, path):
                found.add(f"replaced {path}")
            else:
                self.files.add(path)
                found.add(f"file {path}")
        return found

    def _classify(self, pid: int, libffis: list[re.Match[str]], rows: list[re.Match[str]]) -> str:
        """`closures`, or `unnamed` for anything else in a file with libffi's name; `unjudged` for too much of it."""
        areas = [*map(_area, libffis)]
        if len(areas) > libffi_closures.AREAS or sum(end - first for first, end in areas) > libffi_closures.BYTES:
            return "unjudged too many closures in"
        data = libffi_closures.read(pid, areas)
        if data is None:
            return "unnamed"
        if _space(rows).are_closures(data):
            return "closures"
        plausible = _space(rows).are_closures(data) or self._shared(pid, libffis[0][3]).are_closures(data)
        return "closures" if plausible else "unnamed"

    def _shared(self, pid: int, file: str) -> libffi_closures.AddressSpace:
        """The mappings of all processes of a control group that share a file since a fork: they write to it, too."""
        if file not in self.spaces:
            rows: list[re.Match[str]] = []
            for other in _neighbours(pid):
                most = min(MAPS, self.left)
                maps = common.entire(f"/proc/{other}/maps", most)
                self.left -= most if maps is None else len(maps)
                found = _parse(maps or "")
                if any(_is_libffis(row) and row[3] == file for row in found):
                    rows += found
            self.spaces[file] = _space(rows)
        return self.spaces[file]

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

    def find_problems(self) -> dict[str, str]:
        """Path -> what is wrong with it by dpkg's word, of files that are not below the folders."""
        wanted = {path for path in self.files if not path.startswith(self.folders)}
        sums = _sums(wanted)
        found = dict.fromkeys(wanted - sums.keys(), "not from any package")
        for path, digest in sums.items():
            if (now := _md5(path)) and now != digest:
                found[path] = "its bytes are not its package's"
        return found


def _parse(maps: str) -> list[re.Match[str]]:
    return [*filter(None, map(MAPPING.match, common.lines(maps)))]


def _is_libffis(row: re.Match[str]) -> bool:
    return row[4] == libffi_closures.NAME and row[2] == "r-xs"


def _space(rows: list[re.Match[str]]) -> libffi_closures.AddressSpace:
    own = [row for row in rows if row[4] == libffi_closures.NAME]
    named = [row for row in rows if row[4].startswith("/") and not row[4].startswith(UNNAMED)]
    return libffi_closures.AddressSpace(
        mapped=[_area(row) for row in rows if row[2].startswith("r")],
        code=[_area(row) for row in named if "x" in row[2] and not row[4].endswith(" (deleted)")],
        links=[*(_area(row) for row in own if row[2] == "rw-s"), *_variables(rows)],
        executable=[_area(row) for row in own if row[2] == "r-xs"],
    )


def _variables(rows: list[re.Match[str]]) -> Iterator[tuple[int, int]]:
    """Where files have their variables: mapped from them, and the zeros that follow."""
    last = 0
    for row in rows:
        first, end = _area(row)
        if row[2] == "rw-p" and ((row[4].startswith("/") and not row[4].startswith(UNNAMED)) or first == last):
            yield first, end
            last = 0 if not row[4] else end


def _neighbours(pid: int) -> list[int]:
    """Processes of the same control group."""
    lines = common.lines(common.begin(f"/proc/{pid}/cgroup"))
    group = next((line[3:] for line in lines if line.startswith("0::/")), "")
    return (
        [int(one) for one in common.begin(f"{GROUPS}{group}/cgroup.procs").split() if one.isdecimal()] if group else []
    )


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
