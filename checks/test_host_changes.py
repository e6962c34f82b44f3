"""Changes of a host that no package, no deploy and no acceptance explains: a check for each class of entries."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from checks import Drift, ItemText, check
from checks.change_review.accepted_comparison import ACCEPTANCE_CHECK, HostReview, describe_unreviewed
from checks.change_review.class_checks import CLASS_CHECKS, PACKAGES, ClassCheck
from checks.change_review.fingerprint_diff import ACCEPTANCE, HostChange, UnacceptedChanges
from checks.remedy import instruction
from checks.survey.fingerprint_classes import ENTRY_CLASSES

LISTED = 8
"""Entries of a failure that are named."""


@check(
    ACCEPTANCE_CHECK,
    "the accepted entries next to the inventory are those that the host has recorded",
    severity="high",
    why="with older entries, a change that was revoked since counts as accepted",
    blind="a host whose root forges its record of accepted entries",
)
def test_acceptance(host_review: HostReview) -> None:
    if host_review.problem:
        fetch = instruction("fetch the newer file; or remove this one, and review all entries with `check --accept`")
        raise Drift("accepted entries that the host knows", host_review.problem, fetch)
    changes = host_review.of_class(ACCEPTANCE)
    if host_review.state == "unreviewed":
        if not host_review.strict:
            pytest.skip("no entry is accepted yet")
        text = describe_unreviewed(host_review.number)
        changes = (HostChange(ACCEPTANCE, ACCEPTANCE, "new", now=text),)
    if changes:
        raise UnacceptedChanges("accepted entries", changes)


@check(
    "X02",
    "the host has no entry of a never-accepted kind",
    severity="critical",
    why="a second root, a preloaded library, an unsigned archive or a root program that others can write gives away "
    "the box",
)
def test_unacceptable(host_review: HostReview) -> None:
    if found := [f"{one.key}: {one.problem}" for one in host_review.unacceptable]:
        cure = instruction("remove or repair each of them; `check --accept` refuses them")
        raise Drift("none", ItemText.from_items(found, "; ", LISTED), cure)


def report_changes(review: HostReview, spec: ClassCheck) -> None:
    """Report the changes of a class that are not accepted.

    Raises:
        UnacceptedChanges: there are some.
        pytest.skip.Exception: the class is left out, or the host has entries of it and no review.
    """
    if spec.name in review.ignored:
        pytest.skip("left out by --ignore")
    if review.state == "unreviewed" and (number := review.unexplained.get(spec.name, 0)):
        pytest.skip(f"not reviewed: {number}")
    changes = review.of_class(spec.name)
    if review.state == "refused" or (review.state == "renewed" and not changes):
        pytest.skip(f"the accepted entries are not those of the host: {ACCEPTANCE_CHECK}")
    if changes:
        raise UnacceptedChanges(spec.label, changes)


def _make_check(spec: ClassCheck) -> Callable[[HostReview], None]:
    def test_class(host_review: HostReview) -> None:
        report_changes(host_review, spec)

    test_class.__name__ = test_class.__qualname__ = f"test_{spec.name}"
    title = f"{spec.label}: all are packaged, deployed or accepted"
    return check(spec.id, title, severity="high", why=spec.why)(test_class)


CLASSES = {PACKAGES, *(one.name for one in ENTRY_CLASSES)}
globals().update({f"test_{spec.name}": _make_check(spec) for spec in CLASS_CHECKS if spec.name in CLASSES})
