"""The review of a host: whether its accepted entries are those that the host knows, and what differs from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Literal

from checks.change_review.accepted_entries import HostAcceptance
from checks.change_review.fingerprint_diff import ACCEPTANCE, HostChange, compare_entries, describe_value
from checks.remedy import rig_command
from checks.survey.fingerprint import FingerprintEntry, HostFingerprint

State = Literal["reviewed", "unreviewed", "refused", "renewed"]
"""`unreviewed`: nothing was ever accepted. `refused`: the file is another host's. `renewed`: the host knows of no
acceptance, as after a rebuild, and its key is another one."""


ACCEPTANCE_CHECK = "X01"
"""The check of the accepted entries themselves."""
REVIEW = rig_command("check", "--accept")
"""Lists what is not accepted, and accepts it once its operator has answered."""


@dataclass(frozen=True)
class HostReview:
    """Accepted entries against what a host has answered."""

    state: State
    problem: str
    """Why the accepted entries are refused; empty where they are not."""
    changes: tuple[HostChange, ...]
    unacceptable: tuple[FingerprintEntry, ...]
    unexplained: Mapping[str, int]
    """Class -> entries that may be accepted, accepted or not."""
    serial: int = 0
    """Of the file; 0 without one."""
    author: str = ""
    date: str = ""
    strict: bool = False
    """Whether changes of all classes count, and a host that was not reviewed does not conform."""
    ignored: frozenset[str] = frozenset()
    """Classes that are left out."""

    @property
    def number(self) -> int:
        """Entries of all classes that are not left out."""
        return sum(number for kind, number in self.unexplained.items() if kind not in self.ignored)

    def with_options(self, *, strict: bool, ignored: Iterable[str]) -> HostReview:
        """The same by the options of a run of checks."""
        left_out = frozenset(ignored)
        kept = (one for one in self.changes if one.entry_class not in left_out)
        changes = tuple(replace(one, counts=one.counts or strict) for one in kept)
        return replace(self, changes=changes, strict=strict, ignored=left_out)

    def of_class(self, name: str) -> tuple[HostChange, ...]:
        """Changes of a class."""
        return tuple(one for one in self.changes if one.entry_class == name)


def review_host(accepted: HostAcceptance | None, found: HostFingerprint, file: PurePath) -> HostReview:
    """Compare accepted entries with a host's.

    Args:
        accepted: Those of the file; None without one.
        found: The host's answer.
        file: Place of the file, for its name.
    """
    unacceptable = tuple(one for one in found.entries if one.problem)
    unexplained = Counter(one.kind for one in found.entries if not one.problem)
    place = f"{file.parent.name}/{file.name}"

    def make(state: State, problem: str = "", *changes: HostChange) -> HostReview:
        about = (accepted.serial, accepted.author, accepted.date) if accepted else ()
        return HostReview(state, problem, changes, unacceptable, unexplained, *about)

    known = found.accepted_serial
    if accepted is None:
        if not known:
            return make("unreviewed")
        return make("refused", f"the host has recorded accepted entries {known}; the file {place} is missing")
    if known > accepted.serial:
        return make("refused", f"the host has recorded accepted entries {known}; {place} has {accepted.serial}")
    if known == accepted.serial and found.accepted_digest != accepted.digest:
        return make("refused", f"the host knows other accepted entries {known} than {place} has")
    if not known:
        text = f"none on the host, {accepted.serial} in {place}: a rebuilt host has a new key and needs a new review"
        # contents cannot be compared under another key; all else can: a key that is gone hides no new entry
        shown = (
            one for one in compare_entries(accepted, found) if describe_value(one.before) != describe_value(one.now)
        )
        return make("renewed", "", HostChange(ACCEPTANCE, ACCEPTANCE, "changed", now=text), *shown)
    # a file that was edited elsewhere explains nothing until it is accepted here
    changes = compare_entries(accepted, found, is_behind=known < accepted.serial)
    if known < accepted.serial:
        text = f"{known} on the host, {accepted.serial} in {place}: the host was restored, or did not store them"
        changes.insert(0, HostChange(ACCEPTANCE, ACCEPTANCE, "changed", now=text))
    return make("reviewed", "", *changes)


def describe_unreviewed(number: int) -> str:
    """The entries of a host without an acceptance.

    Args:
        number: Its entries that need acceptance.
    """
    what = f"{number} {'entry of the host is' if number == 1 else 'entries of the host are'}"
    return f"not reviewed: {what} explained by no package and no deploy"
