"""Judge an environment before it is used: `python3 -I judge.py TREE`, in a folder with plan.json, as root.

TREE is what somebody else has put together; nothing of it is run, nothing of it is written to, and no link in it is
followed. Every file must be one that a locked package says it has, with the bytes that it says. Prints the SHA-256 of
each into files.sha256.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import dropwhile
from pathlib import Path
from typing import Any

NAME = re.compile(r"[^\x00-\x1f\x7f]{1,255}")
DIST_INFO = re.compile(r"(lib/python3\.[0-9]+/site-packages/)([^/]+)-([^/-]+)\.dist-info/RECORD")
COMPILED = re.compile(r"(.*/)?__pycache__/([^/]+)\.cpython-[0-9]+(?:\.opt-[12])?\.pyc")
META = re.compile(r"conda-meta/[^/]+\.json")
BESIDE = ("CACHEDIR.TAG", "conda-meta/history")
"""What py-rattler writes beside packages."""
LARGEST = 64 << 20
"""Bytes of a list of files; torch's has 2 MB."""
PART = 1 << 20
LONGEST = 300
"""Characters of a word that is told."""


class Refused(Exception):
    """The environment is not what the lock says; a line a reason."""


@dataclass
class Tree:
    """The paths below a folder, by kind."""

    files: dict[str, int] = field(default_factory=dict)
    """Path -> bytes."""
    links: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


def walk(top: Path) -> Tree:
    """Everything below a folder; what no environment has is told as wrong."""
    found = Tree()
    # whoever has made it may have put a link to a folder of somebody's there, who can go on writing to that
    if not stat.S_ISDIR(top.lstat().st_mode):
        found.wrong.append(f"{top.name} is no folder")
        return found
    for folder, folders, names in os.walk(top, followlinks=False):
        for name in (*folders, *names):
            path = Path(folder, name)
            relative = path.relative_to(top).as_posix()
            mode = path.lstat()
            if not NAME.fullmatch(name) or not relative.isprintable():
                found.wrong.append(f"{relative!r} has a name that no file of a package has")
            elif stat.S_ISLNK(mode.st_mode):
                found.links[relative] = str(path.readlink())
                if not _inside(relative, found.links[relative]):
                    found.wrong.append(f"{relative} leads out of it, to {found.links[relative]!r}")
            elif stat.S_ISREG(mode.st_mode):
                found.files[relative] = mode.st_size
                if mode.st_mode & (stat.S_ISUID | stat.S_ISGID) or mode.st_nlink > 1:
                    found.wrong.append(f"{relative} has another name, or another user's rights")
            elif not stat.S_ISDIR(mode.st_mode):
                found.wrong.append(f"{relative} is neither file nor folder")
    return found


def _inside(relative: str, target: str) -> bool:
    """Whether a link's target lies in the same tree, as its text says."""
    parts = target.split("/")
    ups = len(parts) - len(list(dropwhile(lambda part: part == "..", parts)))
    # after a name, `..` leads to wherever that name does
    return not target.startswith("/") and ".." not in parts[ups:] and ups <= relative.count("/")


def text(top: Path, relative: str) -> str:
    """A file of the tree, of a likely size.

    Raises:
        Refused: it is larger, or no text.
    """
    handle = os.open(top / relative, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(handle, "rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise Refused(f"{relative} is larger than {LARGEST >> 20} MiB")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Refused(f"{relative} is no text") from None


def sha256(path: Path) -> str:
    """Of a file's bytes."""
    digest = hashlib.sha256()
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(handle, "rb", buffering=0) as file:
        while part := file.read(PART):
            digest.update(part)
    return digest.hexdigest()


def _shown(said: object) -> str:
    """A word of somebody's as part of a line, which is to stay one."""
    word = str(said)
    return word if word.isprintable() and len(word) <= LONGEST else repr(word[:LONGEST])


def spelt(name: str) -> str:
    """A distribution's name as an index spells it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def of_wheels(top: Path, tree: Tree, wanted: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Path and SHA-256 of every file that a distribution lists; "" where it lists none for one.

    Raises:
        Refused: other distributions are there than those wanted, or one's list cannot be read.
    """
    found: dict[str, str] = {}
    for relative in sorted(tree.files):
        if not (of := DIST_INFO.fullmatch(relative)):
            continue
        found[spelt(of[2])] = of[3]
        try:
            rows = list(csv.reader(io.StringIO(text(top, relative))))
        except csv.Error:
            raise Refused(f"{relative} cannot be read") from None
        for row in rows:
            if len(row) != 3:
                raise Refused(f"{relative} has a row that is none: {row!r}")
            path = os.path.normpath(of[1] + row[0])
            algorithm, _, encoded = row[1].partition("=")
            if row[1] and algorithm != "sha256":
                raise Refused(f"{relative} has a {algorithm!r} of {row[0]!r}: only sha256 is read")
            yield path, _decoded(encoded, relative) if encoded else ""
    if found != wanted:
        other = sorted(f"{name} {version}" for name, version in set(found.items()) ^ set(wanted.items()))
        raise Refused(f"not the locked distributions: {', '.join(other)}")


def _decoded(encoded: str, relative: str) -> str:
    try:
        return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).hex()
    except ValueError:
        raise Refused(f"{relative} has a hash that is none") from None


def of_conda(top: Path, tree: Tree, wanted: Iterable[Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    """Path and SHA-256 of every file that a conda package lists, as it is in this prefix; "" of links.

    Raises:
        Refused: other packages are there than those wanted, or one's list cannot be read.
    """
    found: dict[str, str] = {}
    for relative in sorted(filter(META.fullmatch, tree.files)):
        try:
            meta = json.loads(text(top, relative))
            said = f"{meta['name']}-{meta['version']}-{meta['build']}"
            found[str(meta["fn"])] = str(meta["sha256"])
            rows = [(row["_path"], row["path_type"], row) for row in meta["paths_data"]["paths"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Refused(f"{relative} cannot be read") from None
        if str(meta["fn"]) not in (f"{said}.conda", f"{said}.tar.bz2"):
            raise Refused(f"not the locked conda packages: {_shown(meta['fn'])} says that it is {_shown(said)}")
        for path, kind, row in rows:
            yield os.path.normpath(str(path)), _in_prefix(kind, row)
    if found != (asked := {Path(one["path"]).name: one["sha256"] for one in wanted}):
        other = ", ".join(map(_shown, sorted(found.keys() ^ asked.keys())))
        raise Refused(f"not the locked conda packages: {other or 'their hashes'}")


def _in_prefix(kind: str, row: Mapping[str, Any]) -> str:
    if kind != "hardlink":
        return ""
    return str(row.get("sha256_in_prefix") or row.get("sha256") or "")


def judge(top: Path, plan: Mapping[str, Any], said: Any = None) -> dict[str, str]:
    """Path -> SHA-256 of every file of an environment.

    Args:
        top: The environment, wherever it lies for now.
        plan: What it was to be put together from.
        said: Is told how far it is, in per cent.

    Raises:
        Refused: with all that is wrong with it.
    """
    tree = walk(top)
    if tree.wrong:
        raise Refused("\n".join(tree.wrong[:20]))
    wheels = {spelt(one["name"]): one["version"] for one in plan["wheels"]}
    listed: dict[str, set[str]] = {}
    for path, digest in (*of_conda(top, tree, plan["conda"]), *of_wheels(top, tree, wheels)):
        listed.setdefault(path, set()).add(digest)
    for name, content in plan["texts"].items():
        listed[name] = {hashlib.sha256(content.encode()).hexdigest()}
    found = hashed(top, tree.files, said)
    wrong = [f"{_shown(path)} is missing" for path in sorted(listed) if path not in found and path not in tree.links]
    for path, digest in sorted(found.items()):
        if _is_compiled(path, listed):
            continue  # anew, whatever its package brought
        if path in listed:
            if digest not in listed[path] and "" not in listed[path]:
                wrong.append(f"{path} has other bytes than its package says")
        elif not (path in BESIDE or META.fullmatch(path)):
            wrong.append(f"{path} is no package's")
    wrong += [f"{path} is no package's link" for path in sorted(tree.links) if path not in listed]
    if wrong:
        raise Refused("\n".join(wrong[:20]))
    return found


def _is_compiled(path: str, listed: Mapping[str, object]) -> bool:
    """Whether a file is what Python has compiled of one that a package lists."""
    made = COMPILED.fullmatch(path)
    return bool(made and f"{made[1] or ''}{made[2]}.py" in listed)


def hashed(top: Path, files: Mapping[str, int], said: Any) -> dict[str, str]:
    """Path -> SHA-256."""
    total, done, told = sum(files.values()) or 1, 0, 0
    found = {}
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for relative, digest in zip(files, pool.map(lambda one: sha256(top / one), files), strict=False):
            found[relative] = digest
            done += files[relative]
            if said and done * 100 // total > told:
                told = done * 100 // total
                said(told)
    return found


def main() -> int:
    """Judge the tree that is named; the exit status."""
    plan = json.loads(Path("plan.json").read_text())
    try:
        found = judge(Path(sys.argv[1]), plan, lambda part: print(f"[{part}/100] per cent", flush=True))
    except Refused as error:
        print(f"the environment is not the locked one:\n{error}", flush=True)
        return 1
    Path("files.sha256").write_text("".join(f"{digest}  env/{path}\n" for path, digest in sorted(found.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
