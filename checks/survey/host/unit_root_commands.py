"""Which lines of a unit start something as root: of one that has a user of its own, those that say so themselves."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from checks.survey.host import common

# Where units lie that were started by hand, set by systemctl, attached, or made by generators
OTHERS = (
    *("/run/systemd/transient", "/etc/systemd/system.control", "/run/systemd/system.control"),
    *("/etc/systemd/system.attached", "/run/systemd/system.attached"),
    *("/run/systemd/generator", "/run/systemd/generator.early", "/run/systemd/generator.late"),
)
FOLDERS = (*(f"{place}/systemd/system" for place in ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")), *OTHERS)
SAYS = re.compile(r"\s*(User|DynamicUser|PermissionsStartOnly)\s*=\s*(.*?)\s*$")
# `!!` is as nothing where the kernel has ambient capabilities (systemd.service(5))
RAISED = re.compile(r"\s*Exec\w+\s*=\s*[-@:|]*(?:\+|!(?!!))")
FIRST = re.compile(r"\s*ExecStart\s*=")
YES = ("1", "yes", "y", "true", "t", "on")


def root(path: Path, lines: list[str], host: str = "") -> list[str]:
    """Lines of a unit, or of a file added to one, without those by which somebody else than root starts something.

    Args:
        path: The file that they are of.
        lines: All of them.
        host: A folder that is there for a host.
    """
    said: dict[str, str] = {}
    for one in sources(path, host):
        for line in common.lines(common.begin(one)):
            if match := SAYS.match(line):
                said[match[1]] = match[2]
    if roots(said, unit(path), host):
        return lines
    only = said.get("PermissionsStartOnly", "").lower() in YES
    return [line for line in lines if RAISED.match(line) or (only and not FIRST.match(line))]


def roots(said: dict[str, str], name: str, host: str) -> bool:
    """Whether it is root that a unit runs as; whom an instance's name says where there is none is not."""
    instance = re.search(r"@([^.]+)[.]", name)
    user = re.sub("%[iI]", instance[1] if instance else "?", said.get("User", ""))
    if not user:
        return said.get("DynamicUser", "").lower() not in YES
    if "%" in user or (user.isdecimal() and int(user) == 0):
        return True
    others = {row[0] for row in common.rows(f"{host}/etc/passwd", 7) if row[2] == "0"}
    return user in {"root", *others}


def unit(path: Path) -> str:
    """The unit that a file is of, or is added to."""
    added = path.suffix == ".conf" and path.parent.name.endswith(".d")
    return path.parent.name.removesuffix(".d") if added else path.name


def sources(path: Path, host: str) -> Iterator[Path]:
    """The unit's own file, and what is added to it, in the order in which that counts (systemd.unit(5))."""
    name = unit(path)
    called = [*names(name)]
    if path.name == name:
        yield path
        # what is added to a unit is added whatever it is called by
        called += names(os.path.basename(os.path.realpath(path)))
    else:
        places = (Path(f"{host}{folder}/{one}") for one in called[:2] for folder in FOLDERS)
        yield from [one for one in places if one.is_file()][:1]
    added, there = dict[str, Path](), adding(host)
    for one in dict.fromkeys(called):
        for place in (f"{host}{folder}/{one}.d" for folder in FOLDERS):
            if place in there:
                with suppress(OSError):
                    for file in Path(place).iterdir():
                        added.setdefault(file.name, file)
    yield from (added[one] for one in sorted(added) if one.endswith(".conf"))


@cache
def adding(host: str) -> frozenset[str]:
    """Folders of what is added to units. A host has a dozen, and each of its units could have a hundred."""
    found = set()
    for folder in FOLDERS:
        with suppress(OSError), os.scandir(f"{host}{folder}") as entries:
            found |= {one.path for one in entries if one.name.endswith(".d")}
    return frozenset(found)


def names(name: str) -> Iterator[str]:
    """What a unit is looked up by: itself, what it is an instance of, how its name begins, its kind."""
    stem, _, kind = name.rpartition(".")
    yield name
    yield f"{stem.partition('@')[0]}@.{kind}" if "@" in stem else name
    parts = stem.split("-")
    yield from (f"{'-'.join(parts[:end])}-.{kind}" for end in range(len(parts) - 1, 0, -1))
    yield kind
