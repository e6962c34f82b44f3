"""The findings of the checks as data: the source of a line, a JSON report and a JUnit report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from checks import Severity
from checks.change_review.fingerprint_diff import HostChange
from checks.remedy import RemedyStep
from checks.survey.archive_comparison import ArchiveComparison

SCHEMA = 2
"""Of the JSON report; a key that is gone, or means something else, raises it."""
Verdict = Literal["ok", "waived", "fail", "changed", "skip"]
"""`fail` is against the declaration; `waived` is a failure that the inventory accepts for its observed value. `changed`
is something that neither declaration, deploy nor package explains, and that is not accepted."""
LISTED_VERDICTS: tuple[Verdict, ...] = ("fail", "waived", "changed")
"""Those of which reports show each result."""
Conforms = Literal["as declared", "not as declared", "not reached"]
CheckedState = Literal["as declared", "changed", "not as declared", "not reached"]
"""Verdict of all checks of a host, or of hosts."""


@dataclass(frozen=True)
class AppliedWaiver:
    """A waiver of the inventory that covers an observed value of a failure."""

    observed: str
    owner: str
    reason: str
    until: str
    """Its last day, in UTC."""


@dataclass(frozen=True, slots=True)
class Result:
    """A check's finding about one host, or about a part of it."""

    id: str
    title: str
    severity: Severity
    why: str
    """The consequence where it does not hold."""
    part: str
    """The instance, engine, weight file or the like; empty for the host."""
    verdict: Verdict
    took_s: float
    note: str = ""
    """How it was found out, or why it was left out."""
    expected: str = ""
    found: str = ""
    since: str = ""
    """Since when it is so; empty where that is not known."""
    author: str = ""
    """Of a failure: the last change to the files and units that it names, with time and author; empty where no log of
    the host tells."""
    cure: str = ""
    """The remedy, in a line."""
    steps: tuple[RemedyStep, ...] = ()
    """The same, step by step: commands run as they are, in this order."""
    cause: str = ""
    """The id of the cause that explains its failure; empty where it stands for itself."""
    changes: tuple[HostChange, ...] = ()
    """Changes that are not accepted, of a check that is `changed`."""

    observed: tuple[str, ...] = ()
    """Of a failure, waived or not: the values that waivers name."""
    waivers: tuple[AppliedWaiver, ...] = ()
    """Of a check that is `waived`: one for each of these values."""

    change_label: str = ""
    """Name of what has changed, of a check that is `changed`."""

    @property
    def is_listed(self) -> bool:
        """Whether it is `changed` in a way that reaches nothing of Rigwright's: the host conforms."""
        return self.verdict == "changed" and not any(one.counts for one in self.changes)

    @property
    def label(self) -> str:
        """Its id, and the part where it has one."""
        return f"{self.id} {self.part}".rstrip()

    @property
    def name(self) -> str:
        """Its title, and what of the host it is about."""
        return f"{self.part}: {self.title}" if self.part else self.title


@dataclass(frozen=True)
class FailureCause:
    """A cause of several failures on one host."""

    id: str
    """Its kind, and after a colon the instance, card or mount where a host can have several."""
    headline: str
    """One sentence without its end."""
    evidence: str
    """The host's evidence; empty where the headline has it."""
    cure: str
    """The command or step that puts it right."""
    results: list[str]
    """Its consequences: id and part of each failed check that it explains."""


@dataclass(frozen=True)
class AcceptanceReport:
    """Review of what neither a package nor a deploy explains."""

    state: Literal["reviewed", "unreviewed", "refused", "renewed"]
    serial: int
    """Of the accepted entries beside the inventory; 0 without any."""
    author: str
    date: str
    unexplained: int
    """Entries of the host that need acceptance, accepted or not."""


@dataclass(frozen=True)
class HostReport:
    """One host."""

    name: str
    verdict: CheckedState
    lock: str
    """SHA-256 of lock and bundle: of every file from outside."""
    generation: int | None
    """The one that is current there; None for none, or where that could not be seen."""
    clock: str
    """Its own, in UTC, when it was looked at; empty where it could not be."""
    versions: dict[str, str]
    """Its versions: its system, kernel, systemd, and driver where there is one."""
    checks: list[Result] = field(default_factory=list)
    advisories: dict[str, int] = field(default_factory=dict)
    """State (open, unknown, closed) -> published advisories that cover it; empty where some checks were left out."""
    causes: list[FailureCause] = field(default_factory=list)
    """Causes of failures, those that explain most of them first."""
    acceptance: AcceptanceReport | None = None
    """None where the host has not answered."""
    archives: ArchiveComparison | None = None
    """Packages that were compared with their files in archives; None without `--deep`."""

    @property
    def changes(self) -> int:
        """Changes that are not accepted and can reach what Rigwright serves."""
        return count_changes(self.checks)


@dataclass(frozen=True)
class Report:
    """All hosts of an inventory, or those that were asked for."""

    schema: int
    as_of: str
    """When hosts were looked at, by this machine's clock, in UTC."""
    rigwright: str
    """Its version."""
    inventory: str
    deep: bool
    """Whether all bytes were read."""
    verdict: CheckedState
    took_s: float
    hosts: list[HostReport]


S = TypeVar("S", Conforms, CheckedState)


def worst_verdict(verdicts: Sequence[S]) -> S:
    """The verdict of several: an unreached part is known least of."""
    return min(verdicts, key=[*reversed(STATUS)].index, default="as declared")


def count_changes(results: Iterable[Result]) -> int:
    """Changes of checks that are `changed` and not only listed."""
    return sum(change.counts for one in results for change in one.changes)


def describe_waivers(result: Result) -> str:
    """The waivers of a result, in one line."""
    return "; ".join(f"until {one.until} by {one.owner}: {one.reason}" for one in dict.fromkeys(result.waivers))


def host_verdict(results: Iterable[Result]) -> CheckedState:
    """The verdict of a host's checks."""
    verdicts = {one.verdict for one in results if not one.is_listed}
    return "not as declared" if "fail" in verdicts else "changed" if "changed" in verdicts else "as declared"


STATUS: dict[CheckedState, int] = {"as declared": 0, "changed": 1, "not as declared": 1, "not reached": 3}
"""The exit status of each; 2 is that of what is refused before a host is looked at."""


def render_report_schema() -> dict[str, Any]:
    """The JSON report's schema, as JSON Schema has it."""
    from pydantic import TypeAdapter

    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **TypeAdapter(Report).json_schema(mode="serialization"),
    }


def describe_failure(result: Result) -> str:
    """The message of a failed check, on one line."""
    since = f" (since {result.since})" if result.since else ""
    return f"[{result.severity}] expected {result.expected}, found {result.found}{since}; {result.cure}"


def describe_changes(result: Result) -> str:
    """A line for a check that finds changes."""
    return f"[changed] not accepted: {result.found}; {result.cure}"
