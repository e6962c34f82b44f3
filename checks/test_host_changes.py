"""Changes of a host that no package, no deploy and no acceptance explains: a check for each class of entries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from checks import Drift, ItemText, check
from checks.acceptance.host_changes import ACCEPTANCE, PACKAGES, HostChange, UnacceptedChanges
from checks.acceptance.host_review import ACCEPTANCE_CHECK, HostReview, describe_unreviewed
from checks.remedy import instruction
from checks.survey.entry_classes import ENTRY_CLASSES

FORGED = "what root of the host forges: its package database, its records and its answers are root's"
LISTED = 8
"""Entries of a failure that are named."""


@dataclass(frozen=True)
class ClassCheck:
    """The check of a class of entries."""

    id: str
    """Stable: waivers and reports name it. Append only."""
    label: str
    """What belongs to the class, as a plural."""
    why: str


CLASS_CHECKS = {
    "accounts": ClassCheck("X03", "accounts", "a further account, password or shell is a way to log in"),
    "groups": ClassCheck("X04", "groups", "membership of groups such as sudo, docker or disk makes root"),
    "sudo": ClassCheck("X05", "sudo rules", "a further rule lets its user become root"),
    "pam": ClassCheck("X06", "PAM services", "a further module or option lets in without the password"),
    PACKAGES: ClassCheck("X07", "packages", "a further package brings units, timers, accounts or rules with it"),
}
"""Class -> its check."""


@check(
    ACCEPTANCE_CHECK,
    "the accepted entries beside the inventory are those that the host knows",
    severity="high",
    why="with older entries, a change that was undone since passes for an accepted one",
    blind=FORGED,
)
def test_acceptance(host_review: HostReview) -> None:
    if host_review.problem:
        fetch = instruction("fetch the newer file; or remove this one, and review all entries with `check --accept`")
        raise Drift("accepted entries that the host knows", host_review.problem, fetch)
    changes = host_review.of_class(ACCEPTANCE)
    if host_review.state == "unreviewed":
        if not host_review.strict:
            pytest.skip("nothing was accepted yet")
        text = describe_unreviewed(host_review.number)
        changes = (HostChange(ACCEPTANCE, "accepted entries", "new", now=text),)
    if changes:
        raise UnacceptedChanges("accepted entries", changes)


@check(
    "X02",
    "no entry is of a kind that is never accepted",
    severity="critical",
    why="a second root, a preloaded library, an unsigned archive or a program that others can write gives the box away",
    blind=FORGED,
)
def test_unacceptable(host_review: HostReview) -> None:
    if found := [f"{one.key}: {one.problem}" for one in host_review.unacceptable]:
        cure = instruction("remove or repair each of them; `check --accept` refuses them")
        raise Drift("none", ItemText.from_items(found, "; ", LISTED), cure)


def report_changes(review: HostReview, name: str) -> None:
    """Report the changes of a class that are not accepted.

    Raises:
        UnacceptedChanges: there are some.
        pytest.skip.Exception: the class is left out, or the host has entries of it and no review.
    """
    if name in review.ignored:
        pytest.skip("left out by --ignore")
    if review.state == "unreviewed" and (number := review.unexplained.get(name, 0)):
        pytest.skip(f"not reviewed: {number}")
    if review.state in ("refused", "renewed"):
        pytest.skip(f"the accepted entries are not those of the host: {ACCEPTANCE_CHECK}")
    if changes := review.of_class(name):
        raise UnacceptedChanges(CLASS_CHECKS[name].label, changes)


def _make_check(name: str, spec: ClassCheck) -> Callable[[HostReview], None]:
    def test_class(host_review: HostReview) -> None:
        report_changes(host_review, name)

    test_class.__name__ = test_class.__qualname__ = f"test_{name}"
    title = f"{spec.label}: all are packaged, deployed or accepted"
    return check(spec.id, title, severity="high", why=spec.why, blind=FORGED)(test_class)


globals().update(
    {
        f"test_{name}": _make_check(name, spec)
        for name, spec in CLASS_CHECKS.items()
        if name in {PACKAGES, *(one.name for one in ENTRY_CLASSES)}
    }
)
