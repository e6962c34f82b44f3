"""Have each tree as it was recorded, and recorded as it is.

Owner and modes are given back, what was added is taken away, and the bytes are proven. A file with other bytes stays as
it is, and is reported with its remedy: only the job that has installed it can do so again.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from .package_manifests import find_unproven
from .tree_entry import Entry, content_digest, extra_permissions, kind_letter, stat_fields, walk_tree
from .tree_fingerprint import MANY, fingerprint_tree, split_into_passes
from .tree_records import LOOSE, TreesOnHost, find_differences, find_pending, matches_fingerprint, parse_record_entries

NOTED = 5  # of a tree; more than that is no help to anybody


class TreeModified(Exception):
    """A tree is not what it was, and cannot be mended here."""


def reconcile_tree(host: TreesOnHost, tree: Path, kind: str) -> None:
    """Have a tree as it was recorded, and recorded as it is.

    Raises:
        TreeModified: it has other bytes than were installed.
    """
    loose, text = LOOSE.get(kind, ()), host.read_record(tree)
    if matches_fingerprint(tree, kind, text):
        return
    before = parse_record_entries(text)
    shared = split_into_passes(before) if before and len(before) >= MANY else []
    shown = fingerprint_tree(tree, loose, shared) if len(before or ()) >= MANY else ""
    found = list(find_differences(tree, kind, before)) if before is not None else []
    if before is not None and not found:
        # names that have come and gone in a folder, or a record from before there were glances
        if shown and shown == fingerprint_tree(tree, loose, shared):
            host.write_record(tree, before, shown, shared)
        return
    if kind == "texts":
        before = None
        found = [("extra", name) for name, _ in walk_tree(tree) if name and name not in host.texts[str(tree)]]
    for what, name in found:
        if what == "extra":
            remove_extra(tree / name)
    there = []
    for name, state in walk_tree(tree, loose):
        there.append(name)
        was = before.get(name) if before is not None else None
        restore_permissions(tree / name, state, was[3:6] if was else (default_mode(state), 0, 0))
    hashed = host.read_install_hashes(tree) if before is None and kind == "engine" else {}
    entries: dict[str, Entry] = {}
    shared = split_into_passes(there) if len(there) >= MANY else []
    shown = fingerprint_tree(tree, loose, shared) if len(there) >= MANY else ""
    for name, state in walk_tree(tree, loose):
        known = hashed.get((name, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns))
        entries[name] = (*stat_fields(state), known or content_digest(tree / name, kind_letter(state)))
        if shown and stat.S_ISDIR(state.st_mode) and extra_permissions(tree / name, "d"):
            shown = ""
    if before is None:
        wrong = find_unproven(tree, kind, entries, host)
    else:
        wrong = [
            name
            for name in {**before, **entries}
            if _kind_and_content(before.get(name)) != _kind_and_content(entries.get(name))
        ]
    if wrong:
        more = f" and {len(wrong) - NOTED} more" if len(wrong) > NOTED else ""
        raise TreeModified(f"{', '.join(sorted(wrong)[:NOTED])}{more}")
    host.write_record(tree, entries, shown if shown and shown == fingerprint_tree(tree, loose, shared) else "", shared)


def _kind_and_content(entry: Entry | None) -> tuple[str, str] | None:
    return (entry[0], entry[8]) if entry else None


def default_mode(state: os.stat_result) -> int:
    """The mode that what is installed has, where none is recorded."""
    mode = stat.S_IMODE(state.st_mode)
    return 0o755 if stat.S_ISDIR(state.st_mode) or mode & 0o111 else 0o644


def restore_permissions(path: Path, state: os.stat_result, wanted: tuple[int, int, int]) -> None:
    """Restore mode, user and group; folders come before their contents, so that no other process swaps it meanwhile."""
    kind = kind_letter(state)
    if (state.st_uid, state.st_gid) != wanted[1:]:
        os.chown(path, *wanted[1:], follow_symlinks=False)
    for name in extra_permissions(path, kind):
        os.removexattr(path, name, follow_symlinks=False)
    if kind != "l" and stat.S_IMODE(path.lstat().st_mode) != wanted[0]:
        path.chmod(wanted[0])


def remove_extra(path: Path) -> None:
    """Remove what was added, and say so."""
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path)
        else:
            path.unlink()
        print(f"note: {path} was added to what is installed: removed")


def reconcile_all(host: TreesOnHost) -> int:
    """Settle all; returns an exit status."""
    ours = any(
        host.record_path(tree).name in host.known for tree, kind in host.find_trees().items() if kind == "generation"
    )
    status = 0
    for tree, kind in host.find_trees().items():
        try:
            if (
                kind == "generation"
                and ours
                and host.recorded_entries(tree) is None
                and not host.is_target_generation(tree)
            ):
                raise TreeModified("no deploy has written it")
            reconcile_tree(host, tree, kind)
        except TreeModified as error:
            if kind == "generation" and not host.is_current(tree):
                shutil.rmtree(tree)
                print(f"note: {tree} was no way back any more, and is removed: {error}")
                continue
            print(f"{tree} is not what was installed ({error}): remove it and deploy again")
            status = 1
    for what, path, _ in [*find_pending(host)]:
        if what == "stale":
            Path(path).unlink()
    return status


def main(words: list[str]) -> int:
    """Settle all, for the JSON that is asked."""
    return reconcile_all(TreesOnHost(json.loads(words[0])))
