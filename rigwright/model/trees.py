"""Where root keeps its record of each tree that a deploy has put on a host."""

from __future__ import annotations

import hashlib

from rigwright.model.roots import Roots


def records_folder(roots: Roots) -> str:
    """The folder on the host with the record of each tree."""
    return f"{roots.state}/trees"


def record_path(roots: Roots, tree: str) -> str:
    """Where the record of a tree lies: its absolute path names it."""
    return f"{records_folder(roots)}/{hashlib.sha256(tree.encode()).hexdigest()[:16]}-{tree.rpartition('/')[2]}"


def scan_path(roots: Roots, tree: str) -> str:
    """Where the job that has made a tree leaves what it saw of each file, for the record."""
    return f"{record_path(roots, tree)}.seen"
