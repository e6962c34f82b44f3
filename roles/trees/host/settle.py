"""Have each tree as it was recorded, and recorded as it is.

Owner and modes are given back, what was added is taken away, and the bytes are proven. What has other bytes stays as it
is, and is said with what to do: only the job that has installed it can do so again.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from .entry import Entry, content, kind_of, rights, seen, walk
from .glance import MANY, glance, shares
from .look import LOOSE, Host, as_at_a_glance, differences, entries_of, pending
from .prove import unproven

NOTED = 5  # of a tree; more than that is no help to anybody


class Unfit(Exception):
    """A tree is not what it was, and cannot be mended here."""


def settled(host: Host, tree: Path, kind: str) -> None:
    """Have a tree as it was recorded, and recorded as it is.

    Raises:
        Unfit: it has other bytes than were installed.
    """
    loose, text = LOOSE.get(kind, ()), host.text(tree)
    if as_at_a_glance(tree, kind, text):
        return
    before = entries_of(text)
    shared = shares(before) if before and len(before) >= MANY else []
    shown = glance(tree, loose, shared) if len(before or ()) >= MANY else ""
    found = list(differences(tree, kind, before)) if before is not None else []
    if before is not None and not found:
        # what has come and gone in a folder, or a record from before there were glances
        if shown and shown == glance(tree, loose, shared):
            host.write(tree, before, shown, shared)
        return
    if kind == "texts":
        before = None
        found = [("extra", name) for name, _ in walk(tree) if name and name not in host.texts[str(tree)]]
    for what, name in found:
        if what == "extra":
            away(tree / name)
    there = []
    for name, state in walk(tree, loose):
        there.append(name)
        was = before.get(name) if before is not None else None
        closed(tree / name, state, was[3:6] if was else (bare(state), 0, 0))
    hashed = host.hashed(tree) if before is None and kind == "engine" else {}
    entries: dict[str, Entry] = {}
    shared = shares(there) if len(there) >= MANY else []
    shown = glance(tree, loose, shared) if len(there) >= MANY else ""
    for name, state in walk(tree, loose):
        known = hashed.get((name, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns))
        entries[name] = (*seen(state), known or content(tree / name, kind_of(state)))
        if shown and stat.S_ISDIR(state.st_mode) and rights(tree / name, "d"):
            shown = ""
    if before is None:
        wrong = unproven(tree, kind, entries, host)
    else:
        wrong = [name for name in {**before, **entries} if _told(before.get(name)) != _told(entries.get(name))]
    if wrong:
        more = f" and {len(wrong) - NOTED} more" if len(wrong) > NOTED else ""
        raise Unfit(f"{', '.join(sorted(wrong)[:NOTED])}{more}")
    host.write(tree, entries, shown if shown and shown == glance(tree, loose, shared) else "", shared)


def _told(entry: Entry | None) -> tuple[str, str] | None:
    return (entry[0], entry[8]) if entry else None


def bare(state: os.stat_result) -> int:
    """The mode that what is installed has, where none is recorded."""
    mode = stat.S_IMODE(state.st_mode)
    return 0o755 if stat.S_ISDIR(state.st_mode) or mode & 0o111 else 0o644


def closed(path: Path, state: os.stat_result, wanted: tuple[int, int, int]) -> None:
    """Give mode, user and group back; folders come before what is in them, so that nobody swaps it meanwhile."""
    kind = kind_of(state)
    if (state.st_uid, state.st_gid) != wanted[1:]:
        os.chown(path, *wanted[1:], follow_symlinks=False)
    for name in rights(path, kind):
        os.removexattr(path, name, follow_symlinks=False)
    if kind != "l" and stat.S_IMODE(path.lstat().st_mode) != wanted[0]:
        path.chmod(wanted[0])


def away(path: Path) -> None:
    """Remove what was added, and say so."""
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path)
        else:
            path.unlink()
        print(f"note: {path} was added to what is installed: removed")


def settle(host: Host) -> int:
    """Settle all; returns an exit status."""
    ours = any(host.record(tree).name in host.known for tree, kind in host.trees().items() if kind == "generation")
    status = 0
    for tree, kind in host.trees().items():
        try:
            if kind == "generation" and ours and host.recorded(tree) is None and not host.is_wanted(tree):
                raise Unfit("no deploy has written it")
            settled(host, tree, kind)
        except Unfit as error:
            if kind == "generation" and not host.is_current(tree):
                shutil.rmtree(tree)
                print(f"note: {tree} was no way back any more, and is removed: {error}")
                continue
            print(f"{tree} is not what was installed ({error}): remove it and deploy again")
            status = 1
    for what, path, _ in [*pending(host)]:
        if what == "stale":
            Path(path).unlink()
    return status


def main(words: list[str]) -> int:
    """Settle all, for the JSON that is asked."""
    return settle(Host(json.loads(words[0])))
