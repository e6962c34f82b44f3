"""How trees are judged, whichever they are."""

from __future__ import annotations

from collections.abc import Iterable

from checks import DEPLOY, Drift, ItemText, report_drift
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
        report_drift(Drift(f"root's record of {tree.path}", tree.unrecorded, DEPLOY))
    expect_no_changes([(tree, change) for change in tree.changes if change.what in (OTHER, MISSING)], again)


def expect_no_changes(found: Iterable[tuple[InstalledTree, TreeChange]], remedy: Remedy) -> None:
    """Have no changes.

    Raises:
        Drift: there are some that waivers do not cover; with when the last of those that are shown was made.
    """
    __tracebackhide__ = True
    shown = list(found)
    if not shown:
        return
    paths = [f"{tree.path}/{change.path}".rstrip("/") for tree, change in shown]
    pairs = list(zip(paths, (change for _, change in shown), strict=True))
    expected, there = [f"{path}: {change.expected}" for path, change in pairs], [change.found for _, change in pairs]
    drift = Drift(
        ItemText.from_items(expected, shown=SHOWN, counts=False),
        ItemText.from_items(there, shown=SHOWN),
        remedy,
        max(change.since for _, change in pairs[:SHOWN]),
        is_waivable=all(len(tree.changes) == tree.count for tree, _ in shown),
    )
    report_drift(drift)
