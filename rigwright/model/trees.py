"""Where root keeps its record of each tree that a deploy has put on a host."""

from __future__ import annotations

import hashlib

from rigwright.model.rig import Rig


def records_folder(rig: Rig) -> str:
    """The folder on the host with the record of each tree."""
    return f"{rig.roots.state}/trees"


def record_path(rig: Rig, tree: str) -> str:
    """Where the record of a tree lies: its absolute path names it."""
    return f"{records_folder(rig)}/{hashlib.sha256(tree.encode()).hexdigest()[:16]}-{tree.rpartition('/')[2]}"


def scan_path(rig: Rig, tree: str) -> str:
    """Where the job that has made a tree leaves what it saw of each file, for the record."""
    return f"{record_path(rig, tree)}.seen"
