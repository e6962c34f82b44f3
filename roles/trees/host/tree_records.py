"""Root's own record of each tree that a deploy has put on this host: every file as root saw it once all were proven.

This part says what is not as it was recorded, and changes nothing. A record is a file of its own outside of the tree,
and the ledger knows its SHA-256, so that no user with write access to a tree can forge it. Nothing of a tree is run,
and no link in it is followed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from .tree_entry import Entry, content_digest, extra_permissions, stat_fields, walk_tree
from .tree_fingerprint import fingerprint_tree

# Root writes it once a generation has answered, and a job while it mends modes: neither is part of what is run.
LOOSE = {"generation": ("proven",), "engine": ("tree", "tree.new")}

ENTRIES = b',"entries":'  # the last part of a record: of a large tree it is not read where a glance is enough


class TreesOnHost:
    """The trees of this host that are looked at.

    Args:
        asked: `software`, `engines`, `generations`, `records` and `ledger`, paths; `texts`, path of a tree -> name ->
            SHA-256 of the files that it has, and no others; where trees are settled, `sealed`, the digest of the
            generation that is to be.
    """

    def __init__(self, asked: dict[str, object]) -> None:
        self.software, self.engines = Path(str(asked["software"])), Path(str(asked["engines"]))
        self.generations = Path(str(asked["generations"]))
        self.records, self.ledger = Path(str(asked["records"])), Path(str(asked["ledger"]))
        self.sealed = str(asked.get("sealed", ""))
        self.texts: dict[str, dict[str, str]] = dict(asked["texts"])  # type: ignore[call-overload]
        self.known = self._ledger_records()

    def find_trees(self) -> dict[Path, str]:
        """Those that are whole -> what they are."""
        found = {made.parent: "engine" for made in self.engines.glob("*/build.json")}
        for name in ("tools", "hub-client", "installers"):
            found |= {made.parent: "tools" for made in self.software.glob(f"{name}-*/.complete")}
        found |= {made.parent: "cuda" for made in self.software.glob("cuda-*/files.sha256")}
        found |= {Path(path): "texts" for path in self.texts if Path(path).is_dir()}
        numbered = (one for one in self.generations.glob("[1-9]*") if re.fullmatch("[0-9]{1,9}", one.name))
        found |= {one: "generation" for one in numbered if (one / "meta").is_file()}
        return {path: kind for path, kind in sorted(found.items()) if not path.is_symlink()}

    def is_current(self, tree: Path) -> bool:
        """Whether a generation is the one that is served."""
        with suppress(OSError):
            return (self.generations.parent / "current").resolve() == tree.resolve()
        return False

    def is_target_generation(self, tree: Path) -> bool:
        """Whether a generation says that it is the one that is to be."""
        return sealed_digest(tree) == self.sealed

    def record_path(self, tree: Path) -> Path:
        """Where a tree's record lies."""
        return self.records / f"{hashlib.sha256(str(tree).encode()).hexdigest()[:16]}-{tree.name}"

    def read_record(self, tree: Path) -> bytes | None:
        """A tree's record as it is; None where there is none that the ledger knows."""
        path = self.record_path(tree)
        with suppress(OSError):
            text = path.read_bytes()
            if self.known.get(path.name) == hashlib.sha256(text).hexdigest():
                return text
        return None

    def recorded_entries(self, tree: Path) -> dict[str, Entry] | None:
        """The recorded entries of a tree; None where there is no record that the ledger knows."""
        return parse_record_entries(self.read_record(tree))

    def install_hashes_path(self, tree: Path) -> Path:
        """Where the job that has made a tree has left what it saw of each file."""
        return self.records / f"{self.record_path(tree).name}.seen"

    def read_install_hashes(self, tree: Path) -> dict[tuple[str, int, int, int, int], str]:
        """Path, inode, size, mtime and ctime of each file that root hashed in the job that made a tree -> its SHA-256.

        A file whose times are as they were has the bytes that it had: only the kernel sets a ctime.
        """
        path, found = self.install_hashes_path(tree), {}
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            with os.fdopen(handle, encoding="utf-8") as file:
                state = os.fstat(handle)
                # a link, or another user's file, is not root's word
                if not stat.S_ISREG(state.st_mode) or state.st_uid != 0 or state.st_mode & 0o022:
                    return {}
                for line in filter(None, file.read().split("\n")):
                    digest, inode, size, mtime, ctime, name = line.split(" ", 5)
                    found[name, int(inode), int(size), int(mtime), int(ctime)] = digest
        except (OSError, ValueError):
            return {}
        return found

    def write_record(self, tree: Path, entries: dict[str, Entry], glance: str, shared: list[list[str]]) -> None:
        """Record a tree, and its glance, if there is one, with what was shared out for it. The ledger has it first, so
        that a record it does not know is foreign.
        """
        path = self.record_path(tree)
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        noted = {"glance": glance, "shares": shared} if glance else {}
        made = {"tree": str(tree), "at": at, **noted, "entries": entries}
        text = json.dumps(made, separators=(",", ":")).encode()
        self.records.mkdir(mode=0o755, exist_ok=True)
        digest = hashlib.sha256(text).hexdigest()
        line = f"record {path.name} {digest}\n".encode()
        append_line(self.ledger, line)
        new = path.with_name(f"{path.name}.new")
        with new.open("wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.chmod(0o644)
        new.replace(path)
        self.known[path.name] = digest
        self.install_hashes_path(tree).unlink(missing_ok=True)

    def _ledger_records(self) -> dict[str, str]:
        try:
            lines = self.ledger.read_text(errors="replace").splitlines()
        except OSError:
            return {}
        rows = (line.split(" ") for line in lines if line.startswith("record "))
        return {row[1]: row[2] for row in rows if len(row) == 3}


def parse_record_entries(text: bytes | None) -> dict[str, Entry] | None:
    """Parse a record; None where it is invalid."""
    try:
        return {name: (*one,) for name, one in json.loads(text or b"")["entries"].items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def matches_fingerprint(tree: Path, kind: str, text: bytes | None) -> bool:
    """Whether a tree is as it was when this record was written, as far as a glance tells."""
    end = text.find(ENTRIES) if text else -1
    noted: dict[str, Any] = json.loads(text[:end] + b"}") if text and end > 0 else {}
    # one of before large trees were shared out is of one pass
    return bool(noted.get("glance")) and noted["glance"] == fingerprint_tree(
        tree, LOOSE.get(kind, ()), noted.get("shares", ())
    )


def sealed_digest(generation: Path) -> str:
    """The digest that a generation says it was sealed with."""
    return (generation / "meta").read_text(errors="replace").split(" ")[0]


def append_line(path: Path, line: bytes) -> None:
    """Add a line to a file, and have it on the disk."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line)
        os.fsync(handle)
    finally:
        os.close(handle)


def find_differences(tree: Path, kind: str, before: dict[str, Entry]) -> Iterator[tuple[str, str]]:
    """The differences of a tree from its record: `touched`, `extra`, `loose` or `changed`, and the path."""
    left = dict(before)
    for name, state in walk_tree(tree, LOOSE.get(kind, ())):
        now, was = stat_fields(state), left.pop(name, None)
        if was is None:
            yield "extra", name
        elif now != was[:8] or (now[0] == "d" and extra_permissions(tree / name, "d")):
            yield _classify_difference(tree / name, now, was), name
    yield from (("changed", name) for name in left)


def _classify_difference(path: Path, now: tuple[str, int, int, int, int, int, int, int], was: Entry) -> str:
    if now[0] != was[0] or now[2] != was[2] or content_digest(path, now[0]) != was[8]:
        return "changed"
    if now[3:6] != was[3:6] or extra_permissions(path, now[0]):
        return "loose"
    return "touched"


def find_pending(host: TreesOnHost) -> Iterator[tuple[str, str, str]]:
    """The pending work on each tree, at most one row for each: kind, tree, and place in it."""
    there = host.find_trees()
    for tree, kind in there.items():
        text = host.read_record(tree)
        if matches_fingerprint(tree, kind, text):
            continue
        recorded = parse_record_entries(text)
        if recorded is None:
            yield "unrecorded", str(tree), ""
            continue
        rank = ("changed", "extra", "loose", "touched")
        found = sorted(find_differences(tree, kind, recorded), key=lambda one: rank.index(one[0]))
        if found:
            what, name = found[0]
            # a role writes the texts, and an older generation that was changed goes
            yield ("extra" if what == "changed" and kind in ("texts", "generation") else what), str(tree), name
    kept = {path.name for tree in there for path in (host.record_path(tree), host.install_hashes_path(tree))}
    yield from (("stale", str(path), "") for path in host.records.glob("*") if path.name not in kept)


def main(words: list[str]) -> int:
    """Tell for the JSON that is asked, as facts of the channel, what is to be done; with `there`, each tree, too."""
    host = TreesOnHost(json.loads(words[0]))
    rows: list[tuple[str, ...]] = [("pending", *row) for row in find_pending(host)]
    if words[1:] == ["there"]:
        there = host.find_trees().items()
        rows += [("there", str(tree), sealed_digest(tree) if kind == "generation" else "") for tree, kind in there]
    for row in rows:
        sys.stdout.buffer.write("".join(f"{one}\0" for one in (len(row), *row)).encode(errors="backslashreplace"))
    return 0
