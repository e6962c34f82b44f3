"""Results of changes, their totals and the tables that show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tests.hosts.host_changes.change_tables import ChangeCase
from tests.hosts.host_changes.report_findings import ORDER, HostFinding, Outcome, strongest_outcome

CaseVerdict = Literal["detected", "MISSED", "listed", "as expected", "ALARMS", "FAILS", "invalid"]
"""Of new changes and drifts: detected, missed or only listed. Of harmless ones: as expected, stronger than expected
(ALARMS), or a failed check (FAILS). `invalid`: the change itself fails on the host, and proves nothing."""


@dataclass(frozen=True)
class ChangeResult:
    """Report of a host for one change."""

    name: str
    area: str
    reaches: bool
    verdict: CaseVerdict
    findings: list[HostFinding] = field(default_factory=list)
    """The host's new reports with the change."""
    error: str = ""
    """Why the change is invalid."""
    leftover: str = ""
    """The rest after its `undo`; the host was restored."""
    written: list[str] = field(default_factory=list)
    """Of a change that is not detected: files that it has written."""
    red: tuple[str, ...] = ()
    """Of a drift: the checks that fail for it without a fingerprint."""
    seconds: float = 0.0

    @property
    def is_attributed(self) -> bool:
        """Whether the report names an author."""
        return any(finding.author for finding in self.findings)

    @property
    def is_in_fingerprint(self) -> bool:
        """Whether checks of the fingerprint report it as changed, or fail for it."""
        return any(one.is_of_fingerprint and one.outcome in ("changed", "fails") for one in self.findings)

    @property
    def reporters(self) -> list[str]:
        """Checks that report it, the strongest report first; those of the fingerprint with the classes of entries."""
        strongest = sorted(self.findings, key=lambda one: (-ORDER.index(one.outcome), not one.is_of_fingerprint))
        return [*dict.fromkeys(one.label if one.is_of_fingerprint else one.check or one.text for one in strongest)]


def judge_case(case: ChangeCase, findings: Sequence[HostFinding]) -> CaseVerdict:
    """The verdict for a change by what its host reports.

    Args:
        case: The change.
        findings: The host's reports with it, and not without it.
    """
    outcome = strongest_outcome(findings)
    if case.expect:
        allowed: Outcome = "nothing" if case.expect == "explained" else case.expect
        stronger = ORDER.index(outcome) > ORDER.index(allowed)
        return "FAILS" if outcome == "fails" else "ALARMS" if stronger else "as expected"
    if outcome == "listed":
        return "listed" if case.reaches else "detected"
    return "MISSED" if outcome == "nothing" else "detected"


def render_row(result: ChangeResult) -> str:
    """A result in a line, and what is wrong with it in further ones."""
    reporters = ", ".join(result.reporters[:4]) + (", ..." if len(result.reporters) > 4 else "") or "-"
    author = "author" if result.is_attributed else "-"
    line = f"{result.verdict:11}  {result.area:12}  {author:6}  {result.seconds:5.1f} s  {reporters:40}  {result.name}"
    lines = [line]
    lines += [f"    invalid: {result.error}"] if result.error else []
    lines += [f"    its undo leaves: {result.leftover}"] if result.leftover else []
    lines += [f"    wrote: {' '.join(result.written[:8])}"] if result.written else []
    shown = result.findings if result.verdict in ("ALARMS", "FAILS", "listed") else []
    lines += [f"    {one.outcome}: {one.label}: {one.text[:200]}" for one in shown[:5]]
    return "\n".join(lines)


def render_totals(results: Sequence[ChangeResult]) -> list[str]:
    """Totals of results: of new changes by area, of harmless ones by verdict."""
    valid = [one for one in results if one.verdict != "invalid"]
    harmless = [one for one in valid if one.verdict in ("as expected", "ALARMS", "FAILS")]
    changes = [one for one in valid if one not in harmless]
    lines = []
    if changes:
        lines += [*render_detection(changes), ""]
        width = max(len(one.area) for one in changes)
        for area in sorted({one.area for one in changes}):
            of_area = [one for one in changes if one.area == area]
            detected = sum(one.verdict == "detected" for one in of_area)
            lines.append(f"{area:{width}}  {detected} of {len(of_area)}")
        lines += ["", *_list_names("not detected", (one for one in changes if one.verdict != "detected"))]
    if harmless:
        counts = Counter(one.verdict for one in harmless)
        lines.append(
            f"harmless: {len(harmless)}; {counts['FAILS']} fail, {counts['ALARMS']} are reported more strongly than "
            f"expected, {sum(strongest_outcome(one.findings) in ('changed', 'fails') for one in harmless)} alarm"
        )
        lines += _list_names("not as expected", (one for one in harmless if one.verdict != "as expected"))
    lines += _list_names("invalid", (one for one in results if one.verdict == "invalid"))
    lines += _list_names("not undone", (one for one in results if one.leftover))
    return lines


def render_detection(changes: Sequence[ChangeResult]) -> list[str]:
    """Shares of detected and attributed changes."""
    detected = [one for one in changes if one.verdict == "detected"]
    reaching = [one for one in changes if one.reaches]
    named = sum(one.is_attributed for one in detected)
    return [
        f"detected: {render_share(len(detected), len(changes))}",
        f"of those that reach the served models: "
        f"{render_share(sum(one.verdict == 'detected' for one in reaching), len(reaching))}",
        f"by the fingerprint: {render_share(sum(one.is_in_fingerprint for one in changes), len(changes))}",
        f"author named: {render_share(named, len(detected))} of the detected",
        f"median: {sorted(one.seconds for one in changes)[len(changes) // 2]:.1f} s a change",
    ]


def render_drifts(results: Sequence[ChangeResult]) -> list[str]:
    """Which drifts the fingerprint reports, and of which earlier checks it reports all drifts."""
    valid = [one for one in results if one.verdict != "invalid"]
    lines = [
        f"drifts that the fingerprint reports: {render_share(sum(one.is_in_fingerprint for one in valid), len(valid))}",
        "",
        "check  drifts  reported",
    ]
    for check in sorted({identifier for one in valid for identifier in one.red}):
        rows = [one for one in valid if check in one.red]
        reported = sum(one.is_in_fingerprint for one in rows)
        lines.append(f"{check:5}  {len(rows):6}  {reported:8}  {'all' if reported == len(rows) else ''}".rstrip())
    lines += ["", *_list_names("not reported", (one for one in valid if not one.is_in_fingerprint))]
    return lines + _list_names("invalid", (one for one in results if one.verdict == "invalid"))


def render_share(part: int, total: int) -> str:
    """A share in numbers and percent."""
    return f"{part} of {total} ({100 * part / total:.1f} %)" if total else "none"


def _list_names(title: str, results: Iterable[ChangeResult]) -> list[str]:
    rows = [f"    {one.area}: {one.name} {' '.join(one.red)}".rstrip() for one in results]
    return [f"{title}: {len(rows)}", *rows] if rows else []
