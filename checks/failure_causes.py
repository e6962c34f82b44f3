"""Groups the failures of one host by cause: each cause with the failures that it explains, all others as they are.

A failure is attributed to a cause only if each thing that it is about is explained by one: by the same unit, instance,
card, package or mount. It stays a failure: the verdict, the exit status and the reports do not change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from checks import strip_control_characters
from checks.cause_facts import CauseFacts
from checks.results import FailureCause

TERM = re.compile(r"<([a-z_]+)>")
NEVER = "(?!)"


@dataclass(frozen=True)
class CheckFailure:
    """A check that does not hold, as far as causes need it."""

    id: str
    part: str
    """The instance, engine, weight file or the like; empty for the host."""
    items: tuple[tuple[str, str], ...]
    """(expected, found) of each thing that is not as it should be."""

    @property
    def label(self) -> str:
        """Its id, and the part where it has one."""
        return f"{self.id} {self.part}".rstrip()


@dataclass(frozen=True)
class Consequence:
    """Failures that a cause explains: each of these fields has to fit.

    Patterns are regular expressions that fit from begin to end; `<name>` in them is one of the occurrence's terms of
    that name.
    """

    ids: str
    """A pattern for ids of checks."""
    found: str = ".*"
    expected: str = ".*"
    of_part: str = ""
    """The term that has to name what the check is about; empty where it may be about anything."""
    needs: str = ""
    """A term that must not be empty."""


@dataclass(frozen=True)
class Occurrence:
    """A cause, as it is on a host."""

    headline: str
    """One sentence without its end."""
    cure: str
    evidence: str = ""
    subject: str = ""
    """The instance, card or mount, where a host can have the cause several times."""
    terms: Mapping[str, Sequence[str]] = field(default_factory=lambda: MappingProxyType({}))
    """Name -> units, instances, paths and the like that consequences refer to."""

    def expand(self, pattern: str) -> re.Pattern[str]:
        """A consequence's pattern with this occurrence's terms in place of their names."""

        def alternatives(matched: re.Match[str]) -> str:
            texts = sorted({one for one in self.terms.get(matched[1], ()) if one}, key=len, reverse=True)
            return f"(?:{'|'.join(map(re.escape, texts)) or NEVER})"

        return re.compile(TERM.sub(alternatives, pattern), re.DOTALL)


@dataclass(frozen=True)
class CauseRule:
    """A kind of cause."""

    id: str
    find: Callable[[CauseFacts, Sequence[CheckFailure]], Iterable[Occurrence]]
    consequences: tuple[Consequence, ...]
    is_first: bool = False
    """Whether it is reported before causes that explain more failures."""


@dataclass(frozen=True)
class _Candidate:
    rule: CauseRule
    occurrence: Occurrence
    patterns: tuple[tuple[Consequence, re.Pattern[str], re.Pattern[str], re.Pattern[str]], ...]

    def explains(self, failure: CheckFailure, expected: str, found: str) -> bool:
        """Whether one thing that a failure is about follows from this cause."""
        return any(
            ids.fullmatch(failure.id)
            and (not one.of_part or failure.part in self.occurrence.terms.get(one.of_part, ()))
            and (not one.needs or self.occurrence.terms.get(one.needs))
            and wanted.fullmatch(expected)
            and there.fullmatch(found)
            for one, ids, wanted, there in self.patterns
        )


def group_failures(
    facts: CauseFacts, failures: Sequence[CheckFailure], rules: Sequence[CauseRule]
) -> list[FailureCause]:
    """The causes of a host's failures, those that explain most of them first.

    Args:
        facts: The host.
        failures: All failed checks of it, in their order.
        rules: Kinds of causes; where several explain a failure, it is attributed to the first.
    """
    candidates = [
        _Candidate(
            rule,
            one,
            tuple(
                (row, re.compile(row.ids), one.expand(row.expected), one.expand(row.found)) for row in rule.consequences
            ),
        )
        for rule in rules
        for one in rule.find(facts, failures)
    ]
    explained: dict[int, list[str]] = {}
    for failure in failures:
        if failure.id in facts.own_checks:
            continue
        places = [
            next((place for place, one in enumerate(candidates) if one.explains(failure, *item)), None)
            for item in failure.items
        ]
        if places and places[0] is not None and None not in places:
            explained.setdefault(places[0], []).append(failure.label)
    order = sorted(explained, key=lambda place: (not candidates[place].rule.is_first, -len(explained[place]), place))
    return [_cause(candidates[place], explained[place]) for place in order]


def _cause(made: _Candidate, labels: list[str]) -> FailureCause:
    one = made.occurrence
    identifier = f"{made.rule.id}:{one.subject}" if one.subject else made.rule.id
    identifier, headline, evidence, cure = map(
        strip_control_characters, (identifier, one.headline, one.evidence, one.cure)
    )
    return FailureCause(identifier, headline, evidence, cure, labels)
