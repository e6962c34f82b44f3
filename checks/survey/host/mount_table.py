"""File systems that are mounted now, and those that the next boot mounts: the one reader of both."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from checks.survey.host import common

MOST = 64 << 20  # bytes of a list of mounts
UNIT_FOLDERS = tuple(f"{top}/systemd/system" for top in ("/etc", "/run", "/usr/local/lib", "/usr/lib"))
ESCAPED = re.compile(r"\\([0-7]{3})")
ESCAPED_BYTE = re.compile(r"\\x([0-9a-f]{2})")


class Mount(NamedTuple):
    """A row of a process's list of mounts (proc_pid_mountinfo(5))."""

    point: str
    device: str
    """MAJOR:MINOR of its file system."""
    root: str
    """The folder or file of the file system that is shown there; `/` for all of it."""
    kind: str
    source: str
    options: tuple[str, ...]
    """Of this mount."""
    system_options: str
    """Of its file system, with commas between them: one of an overlay may have commas in it."""

    def has(self, option: str) -> bool:
        """Whether this mount or its file system has an option, such as ro."""
        return option in self.options or option in self.system_options.split(",")


class TableRow(NamedTuple):
    """A row of fstab(5)."""

    source: str
    point: str
    kind: str
    options: tuple[str, ...]


def unescape(word: str) -> str:
    r"""A word of the kernel's lists of mounts or of fstab, which have a blank as \040."""
    return ESCAPED.sub(lambda found: chr(int(found[1], 8)), word)


def list_mounts(pid: int | str = "self", root: str = "") -> list[Mount]:
    """The mounts of a process in their order; of several at one point, the last is the visible one.

    Args:
        pid: The process; 1 for the host's own.
        root: The host's root; a test has a folder for it.
    """
    return list(parse_mounts(common.read(f"{root}/proc/{pid}/mountinfo", MOST) or ""))


def parse_mounts(text: str) -> Iterator[Mount]:
    """The rows of a list of mounts; a row without all of its fields counts for nothing."""
    for line in common.lines(text):
        before, _, after = line.partition(" - ")
        fields, system = before.split(" "), after.split(" ")
        if len(fields) > 5 and len(system) > 2:
            yield Mount(
                unescape(fields[4]),
                fields[2],
                unescape(fields[3]),
                system[0],
                unescape(system[1]),
                tuple(fields[5].split(",")),
                system[2],
            )


def read_table(root: str = "") -> list[TableRow]:
    """The rows of fstab; one without options has the default ones."""
    words = (line.split() for line in common.lines(common.read(f"{root}/etc/fstab") or ""))
    return [
        TableRow(row[0], os.path.normpath(unescape(row[1])), row[2], tuple([*row, "defaults"][3].split(",")))
        for row in words
        if len(row) >= 3 and not row[0].startswith("#")
    ]


def list_boot_points(root: str = "") -> set[str]:
    """Where fstab and units that are not masked mount something at a boot."""
    found = {row.point for row in read_table(root) if row.kind != "swap" and "noauto" not in row.options}
    for folder in UNIT_FOLDERS:
        with suppress(OSError):
            for name in os.listdir(f"{root}{folder}"):
                stem, _, kind = name.rpartition(".")
                if kind in ("mount", "automount") and os.path.realpath(f"{root}{folder}/{name}") != "/dev/null":
                    found.add(unit_point(stem))
    return found


def unit_point(stem: str) -> str:
    """The path that the name of a mount unit stands for, without its ending (systemd-escape(1))."""
    return "/" + ESCAPED_BYTE.sub(lambda found: chr(int(found[1], 16)), stem.replace("-", "/")).lstrip("/")
