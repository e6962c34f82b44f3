"""How trees are judged, whichever they are."""

from __future__ import annotations

from collections.abc import Iterable

from checks import DEPLOY, Drift
from checks.remedy import Remedy
from checks.survey.trees import MISSING, OTHER, InstalledTree, TreeChange

SHOWN = 3


def expect_as_recorded(tree: InstalledTree, again: Remedy) -> None:
    """Have a tree's bytes and links as root has recorded them.

    Args:
        tree: The tree.
        again: The step that installs it anew.

    Raises:
        Drift: they are not, or it is unknown.
    """
    __tracebackhide__ = True
    if not tree.there:
        raise Drift(tree.path, "nothing there", again)
    if tree.unrecorded:
        raise Drift(f"root's record of {tree.path}", tree.unrecorded, DEPLOY)
    expect_no_changes([(tree, change) for change in tree.changes if change.what in (OTHER, MISSING)], again)


def expect_no_changes(found: Iterable[tuple[InstalledTree, TreeChange]], remedy: Remedy) -> None:
    """Have no changes.

    Raises:
        Drift: there are some; with when the last of those that are shown was made.
    """
    __tracebackhide__ = True
    shown = list(found)
    if not shown:
        return
    paths = [f"{tree.path}/{change.path}".rstrip("/") for tree, change in shown]
    more = f", and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    pairs = list(zip(paths, (change for _, change in shown), strict=True))[:SHOWN]
    expected = ", ".join(f"{path}: {change.expected}" for path, change in pairs)
    there = ", ".join(change.found for _, change in pairs)
    since = max(change.since for _, change in pairs)
    raise Drift(expected, f"{there}{more}", remedy, since)
