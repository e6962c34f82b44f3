"""Changes of a host: entries of its fingerprint that differ from the accepted ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from checks import strip_control_characters
from checks.change_review.class_checks import PACKAGES
from checks.drift_text import format_day
from checks.survey.fingerprint_classes import CLASS_NAMES, ENTRY_CLASSES

if TYPE_CHECKING:  # every verb imports results, and these import pydantic
    from checks.change_review.accepted_entries import HostAcceptance
    from checks.survey.fingerprint import EntryPackage, HostFingerprint

ACCEPTANCE = "acceptance"
"""Class of changes of the accepted entries themselves, and the key of one of all of them."""
REACHES_US = frozenset(one.name for one in ENTRY_CLASSES if one.reaches_us)
PASSIVE = frozenset(("programs", "libraries"))
"""Classes of which a signed package may bring more without a change that counts: nothing starts them by itself."""
DIGEST = re.compile(r"\s*\b[0-9a-f]{32}\Z")
"""At the end of a value; elsewhere, a name may look as one."""


@dataclass(frozen=True)
class HostChange:
    """One change that is not accepted."""

    entry_class: str
    """Its class; `packages` of a package, `acceptance` of the accepted entries themselves."""
    key: str
    """Name of the entry within its class, or of the package."""
    change: Literal["new", "changed", "gone"]
    before: str = ""
    """The accepted value."""
    now: str = ""
    """The host's value; of a package its version, archive and classes."""
    expected_from: str = ""
    """The package or derivation that the entry differs from; empty without one."""
    since: str = ""
    """Time of the change in UTC; empty where the host does not know it."""
    author: str = ""
    """Author of the change, as far as logs of the host tell."""
    difference: tuple[str, ...] = ()
    """Lines of a redacted difference."""
    run_value: str = ""
    """Equal on all hosts of one run where the entry is equal."""
    counts: bool = True
    """Whether the host does not conform with it: it can reach what Rigwright serves. Others are listed."""

    def printable(self) -> HostChange:
        """The change as a terminal may show it: a host has made up its names."""
        names = ("key", "before", "now", "expected_from", "since", "author")
        texts: dict[str, Any] = {name: strip_control_characters(getattr(self, name)) for name in names}
        return replace(self, **texts, difference=tuple(map(strip_control_characters, self.difference)))

    def describe(self) -> str:
        """The change in a line."""
        if self.entry_class == ACCEPTANCE:
            return self.now if self.key == ACCEPTANCE else f"{self.key}: {describe_value(self.now)}"
        now, before = describe_value(self.now), describe_value(self.before)
        package = f"of {self.expected_from}" if self.expected_from else ""
        if self.entry_class == PACKAGES and self.change == "new":
            word, details = "new", [self.now]
        elif self.change == "gone":
            word, details = "gone", [f"was {before}" if before else ""]
        elif self.change == "new" and not self.now and self.expected_from:
            word, details = f"gone, {self.expected_from} has it", []
        elif self.change == "new":
            word, details = "differs from that " + package if package else "new", [now]
        elif before == now:
            word, details = "other content", [now]
        else:
            word, details = f"{before or 'gone'} -> {now or 'gone'}", []
        details += [f"since {self.since}" if self.since else "", self.author]
        listed = ", ".join(one for one in details if one)
        return f"{self.key}: {word}{f' ({listed})' if listed else ''}"


class UnacceptedChanges(Exception):
    """A check finds changes; no failure, for nothing of them is against the declaration."""

    def __init__(self, label: str, changes: Sequence[HostChange]) -> None:
        self.label, self.changes = label, tuple(changes)
        super().__init__(f"{label}: {'; '.join(one.describe() for one in changes)}")


def describe_value(value: str) -> str:
    """A value without its digests, which say nothing to a reader."""
    return DIGEST.sub("", value).strip()


def compare_entries(accepted: HostAcceptance, found: HostFingerprint, *, is_behind: bool = False) -> list[HostChange]:
    """The entries of a host that are not accepted, by class and key. Entries that can never be accepted are failures,
    and left out.

    Args:
        accepted: The accepted entries.
        found: The host's answer.
        is_behind: Whether the host has stored earlier ones: entries that both accept count.
    """
    changes = [*_compare_listed(accepted, found, is_behind), *_compare_packages(accepted, found.packages)]
    return sorted(changes, key=lambda one: (one.entry_class, one.key))


def _compare_listed(accepted: HostAcceptance, found: HostFingerprint, is_behind: bool) -> Iterator[HostChange]:
    # an entry that a package or a deploy has taken over is not gone
    there = {*found.accepted_explained}
    for one in found.entries:
        there.add((one.kind, one.key))
        before = accepted.entries.get(one.kind, {}).get(one.key)
        if is_behind and before == one.value:
            before = one.before or None
        if before != one.value and not one.problem:
            yield HostChange(
                # of no class: the host has more entries than an answer takes
                one.kind if one.kind in CLASS_NAMES else ACCEPTANCE,
                one.key,
                "new" if before is None else "changed",
                before or "",
                one.value,
                one.expected_from,
                format_day(one.since).removesuffix(" UTC") if one.since else "",
                one.author,
                tuple(one.difference),
                one.run_value,
                counts=one.kind in REACHES_US or one.kind not in CLASS_NAMES,
            )
    authors = {(kind, key): author for kind, key, author in found.gone}
    for kind, listed in accepted.entries.items():
        for key, before in listed.items():
            if (kind, key) not in there:
                author = authors.get((kind, key), "")
                yield HostChange(kind, key, "gone", before, author=author, counts=kind in REACHES_US)


def _compare_packages(accepted: HostAcceptance, packages: Sequence[EntryPackage]) -> Iterator[HostChange]:
    """Packages that add entries to further classes; one that is gone is listed."""
    for one in packages:
        # entries of a package from no signed archive are listed one by one
        added = ({*one.classes} & CLASS_NAMES) - {*accepted.packages.get(one.name, ())}
        if one.archive and added:
            counts = ", ".join(f"{kind} {one.classes[kind]}" for kind in sorted(added))
            now = f"{one.version} of {one.archive}: {counts}"
            yield HostChange(PACKAGES, one.name, "new", now=now, counts=bool(added & REACHES_US - PASSIVE))
    for name in accepted.packages.keys() - {one.name for one in packages}:
        yield HostChange(PACKAGES, name, "gone", counts=False)
