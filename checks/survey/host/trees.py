"""Installed files and generations, compared with root's record of every file; only a few are read.

A file whose state is the recorded one has the recorded bytes: the time of a change cannot be set. One that was touched
since is read. Nothing of a tree is run, and no link in it is followed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from checks.survey.host import common

SHOWN = 8  # of the changes of each kind in a tree
# How a record begins, and bytes of it that have as much in them.
TREE, BEGINS = re.compile(r'\{"tree":"(/[^"\\]+)"'), 8192
TOP, LISTED = "%i %m %U %G\\0", "%y %i %s %m %U %G %T@ %C@ {} %l\\0"
FEW = 500  # entries of a tree of which each is asked whether it can be removed: for more it takes as long as all else
LONGEST = 1 << 28  # bytes of a record: an environment has 60,000 files, each takes 200
DESCRIBES = (
    ".dist-info",
    ".egg-info",
    ".egg",
    ".egg-link",
)  # folders that Python takes for a package, in any case of letters
RIGHTS = frozenset(("security.capability", "system.posix_acl_access", "system.posix_acl_default"))
KINDS = {"f": "a file", "d": "a folder", "l": "a link", "?": "neither file nor folder"}


class TreeNode(NamedTuple):
    """One name in a tree, and what the file system says of it."""

    path: str
    name: str
    lstat: os.stat_result

    @property
    def kind(self) -> str:
        """As a record has it."""
        mode = self.lstat.st_mode
        return "f" if stat.S_ISREG(mode) else "d" if stat.S_ISDIR(mode) else "l" if stat.S_ISLNK(mode) else "?"

    @property
    def open(self) -> str:
        """Its owner and mode."""
        mode = "" if self.kind == "l" else f" with mode {stat.S_IMODE(self.lstat.st_mode):o}"
        return owned(self.lstat.st_uid, self.lstat.st_gid) + mode

    @property
    def since(self) -> str:
        """When it was changed last."""
        return day(self.lstat.st_ctime)

    def rights(self) -> list[str]:
        """The rights beyond its mode."""
        if self.kind == "l":
            return []
        try:
            return sorted(RIGHTS.intersection(os.listxattr(self.path, follow_symlinks=False)))
        except OSError:
            return []

    def content(self) -> str:
        """The bytes in a record."""
        if self.kind == "l":
            return str(Path(self.path).readlink())
        return hashed(self.path) if self.kind == "f" else ""


def day(seconds: float) -> str:
    """A time for people."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def owned(uid: int, gid: int) -> str:
    """An owner for people."""
    return "root's" if (uid, gid) == (0, 0) else f"of user {uid} and group {gid}"


def hashed(path: str) -> str:
    """SHA-256 of a file."""
    digest = hashlib.sha256()
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def is_real_folder(path: str) -> bool:
    """Whether it is a folder, and no link to one."""
    return Path(path).is_dir() and not Path(path).is_symlink()


def names(folder: str) -> list[str]:
    """The names in a folder; none where it is no folder."""
    try:
        return sorted(one.name for one in Path(folder).iterdir())
    except OSError:
        return []


def walk(top: str, unless: list[str]) -> Iterator[TreeNode]:
    """All that is in a tree, itself first."""
    yield TreeNode(top, "", os.lstat(top))
    left = [top] if is_real_folder(top) else []
    while left:
        folder = left.pop()
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as found:
            for one in found:
                name = one.path[len(top) + 1 :]
                if name in unless:
                    continue
                with suppress(FileNotFoundError):
                    state = TreeNode(one.path, name, one.stat(follow_symlinks=False))
                    if state.kind == "d":
                        left.append(one.path)
                    yield state


def same(state: TreeNode, was: list[Any]) -> bool:
    """Whether nothing has touched it since it was recorded."""
    now = state.lstat
    if state.kind == "d":
        expected = (was[0], was[3], was[4], was[5])
        return ("d", stat.S_IMODE(now.st_mode), now.st_uid, now.st_gid) == expected and not state.rights()
    if state.kind == "f":
        moved = (now.st_size, stat.S_IMODE(now.st_mode), now.st_mtime_ns) != (was[2], was[3], was[6])
        if moved:
            return False
    return (state.kind, now.st_ino, now.st_uid, now.st_gid, now.st_ctime_ns) == (was[0], was[1], was[4], was[5], was[7])


def change(what: str, name: str, expected: str, found: str, since: str) -> dict[str, str]:
    """One row of the answer."""
    return {
        "what": what,
        "path": common.plain(name),
        "expected": common.plain(expected),
        "found": common.plain(found),
        "since": since,
    }


def compared(state: TreeNode, was: list[Any], deep: bool) -> dict[str, str] | None:
    """The difference of one name from its record; None where it has none."""
    if same(state, was) and not deep:
        return None
    if state.kind != was[0]:
        return change("other", state.name, KINDS.get(was[0], "nothing"), KINDS[state.kind], state.since)
    if state.kind == "f" and state.lstat.st_size != was[2]:
        return change("other", state.name, f"{was[2]} bytes", f"{state.lstat.st_size} bytes", state.since)
    content = state.content()
    if content != was[8]:
        kind = "SHA-256 " if state.kind == "f" else "a link to "
        return change("other", state.name, f"{kind}{was[8][:64]}", f"{kind}{content[:256]}", state.since)
    given = [] if state.kind == "l" else state.rights()
    mode = None if state.kind == "l" else stat.S_IMODE(state.lstat.st_mode)
    if (state.lstat.st_uid, state.lstat.st_gid) != (was[4], was[5]) or mode not in (None, was[3]) or given:
        expected = owned(was[4], was[5]) + ("" if mode is None else f" with mode {was[3]:o}")
        return change("loose", state.name, expected, " and ".join([state.open, *given]), state.since)
    return None


def changes(tree: str, entries: dict[str, list[Any]], unless: list[str], deep: bool) -> Iterator[dict[str, str]]:
    """All that is not as it was recorded."""
    left = dict(entries)
    for state in walk(tree, unless):
        was = left.pop(state.name, None)
        if was is None:
            yield change("added", state.name, "nothing", f"{KINDS[state.kind]} {state.open}", state.since)
            continue
        try:
            found = compared(state, was, deep)
        except FileNotFoundError:
            found = change("missing", state.name, KINDS[was[0]], "nothing", "")
        if not found and len(entries) < FEW and state.kind in "fd" and common.stuck(state.path):
            found = change("loose", state.name, "what a deploy can remove", "immutable (`chattr -ia` it)", state.since)
        if found:
            yield found
    for name, was in left.items():
        folder = Path(tree, name).parent
        since = day(folder.lstat().st_mtime) if folder.is_dir() else ""
        yield change("missing", name, KINDS.get(was[0], "something"), "nothing", since)


def untouched(tree: str, unless: list[str], text: str) -> bool:
    """Whether find(1) tells what it told when a large tree was recorded: a walk takes many times as long.

    No file has changed then, for the kernel sets a ctime at each change, and nothing has come to a folder or gone.

    Args:
        tree: Its path.
        unless: Names that come and go in it.
        text: Its record, which may name folders that find(1) was asked about beside the others, at the same time.
    """
    head, entries, _ = text.partition(',"entries":')
    noted = json.loads(head + "}") if entries else {}
    if noted.get("tree") != tree or "glance" not in noted:
        return False
    folders: list[list[str]] = noted.get("shares", [])
    others = [word for name in unless for word in ("-path", f"./{name}", "-prune", "-o")]
    if folders:
        named = [word for group in folders for name in group for word in ("-o", "-path", f"./{name}")]
        others += ["-type", "d", "(", *named[1:], ")", "-prune", "-o"]
    asked = [[".", "-path", ".", "-printf", TOP, "-o", *others, "-printf", LISTED.format("%P")]]
    asked += [[*(f"./{name}" for name in group), "-printf", LISTED.format("%p")] for group in folders]
    with ExitStack() as opened:
        files = [opened.enter_context(open(os.memfd_create("told"), "r+b")) for _ in (*asked, "errors")]
        try:
            running = [
                subprocess.Popen(["find", *words], cwd=tree, stdin=subprocess.DEVNULL, stdout=file, stderr=files[-1])
                for words, file in zip(asked, files, strict=False)
            ]
        except OSError:
            return False
        failed = sum(one.wait() != 0 for one in running) + os.fstat(files[-1].fileno()).st_size
        told = hashlib.sha256()
        for file in files[:-1]:
            file.seek(0)
            told.update(file.read())
    return not failed and told.hexdigest() == noted["glance"] and not TreeNode(tree, "", os.lstat(tree)).rights()


def read_recorded_entries(
    tree: str, folder: str, known: dict[str, str], unless: list[str] | None
) -> dict[str, list[Any]] | str:
    """Name -> what is recorded of it, and nothing of one that is as it was; in words, why nothing is recorded.

    Args:
        tree: Its path.
        folder: Of records.
        known: Name of a record -> SHA-256.
        unless: Names that come and go in it; None has all of it looked at.
    """
    name = f"{hashlib.sha256(tree.encode(errors='surrogateescape')).hexdigest()[:16]}-{Path(tree).name}"
    text = common.read(f"{folder}/{name}", LONGEST)
    if text is None:
        return "no record of it"
    if known.get(name) != hashlib.sha256(text.encode()).hexdigest():
        return "a record that the ledger does not know"
    if unless is not None and untouched(tree, unless, text):
        return {}
    made = json.loads(text)
    entries: dict[str, list[Any]] = made["entries"] if made["tree"] == tree else {}
    return entries or "a record of something else"


def look(asked: dict[str, Any]) -> dict[str, object]:
    """Compare all trees.

    Args:
        asked: `software`, a root; `installed`, folder -> what the names of trees in it begin with; `declared`, the
            trees that are to be there; `records`, with `folder` and `ledger`; `unless`, folder -> names at the top of
            trees in it that come and go; `marker`, the name of build records; `prefixes`, the environments whose
            packages are asked for; `deep`, whether all bytes are read.
    """
    ledger = common.read(asked["records"]["ledger"], LONGEST) or ""
    rows = (line.split(" ") for line in common.lines(ledger) if line.startswith("record "))
    known = {row[1]: row[2] for row in rows if len(row) == 3}
    found: dict[str, str] = {path: str(Path(path).parent) for path in asked["declared"]}
    beside = []
    for folder, begins in asked["installed"].items():
        for name in names(folder):
            path = f"{folder}/{name}"
            if is_real_folder(path) and any(name.startswith(one) for one in begins):
                found[path] = folder
            elif path not in asked["installed"]:
                beside.append(common.plain(path))
    told = []
    for path, folder in found.items():
        made: dict[str, object] = {
            "path": common.plain(path),
            "there": is_real_folder(path),
            "unrecorded": "",
            "marker": "",
        }
        unless = asked["unless"].get(folder, [])
        at_once = None if asked["deep"] or not is_real_folder(path) else unless
        entries = read_recorded_entries(path, asked["records"]["folder"], known, at_once)
        rows_: list[dict[str, str]] = []
        if isinstance(entries, str):
            made["unrecorded"] = entries
        elif made["there"] and entries:
            rows_ = list(changes(path, entries, unless, asked["deep"]))
        kinds = {row["what"]: [one for one in rows_ if one["what"] == row["what"]][:SHOWN] for row in rows_}
        made["changes"], made["count"] = [one for kind in kinds.values() for one in kind], len(rows_)
        if path in asked["declared"]:
            made["marker"] = common.read(f"{path}/{asked['marker']}") or ""
        told.append(made)
    packages = {prefix: [common.plain(one) for one in distributions(prefix)] for prefix in asked["prefixes"]}
    return {"trees": told, "beside": beside, "gone": gone(asked["records"]["folder"], known), "distributions": packages}


def gone(folder: str, known: dict[str, str]) -> list[str]:
    """Trees that are recorded and that are not there."""
    begun = (common.begin(f"{folder}/{name}", BEGINS) for name in names(folder) if name in known)
    return [common.plain(found[1]) for text in begun if (found := TREE.match(text)) and not os.path.lexists(found[1])]


def distributions(prefix: str) -> list[str]:
    """The names of what describes the packages of an environment."""
    sites = [f"{prefix}/lib/{name}/site-packages" for name in names(f"{prefix}/lib") if name.startswith("python3.")]
    found = [name for site in sites for name in names(site) if name.lower().endswith(DESCRIBES)]
    return found + [name for name in names(f"{prefix}/conda-meta") if name.endswith(".json")]
