"""Findings of a JSON report, comparable between two looks at a host."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Outcome = Literal["nothing", "listed", "changed", "fails"]
ORDER: tuple[Outcome, ...] = ("nothing", "listed", "changed", "fails")
"""From the weakest report to the strongest."""
FINGERPRINT = "X"
"""First letter of the checks of the fingerprint."""
NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class HostFinding:
    """One report about a host: a failed check, or an entry that changed."""

    check: str
    """Its id; empty where the host was not reached."""
    part: str
    """The subject of the check; the class of an entry."""
    outcome: Outcome
    text: str
    """The differences, without those between two looks at the same state."""
    author: str = ""
    """Author of the change; empty where the report names none."""

    @property
    def identity(self) -> tuple[str, ...]:
        """Equal for one finding in two looks."""
        return (self.check, self.part, self.outcome, self.text)

    @property
    def label(self) -> str:
        """Check and part."""
        return f"{self.check} {self.part}".strip() or self.text

    @property
    def is_of_fingerprint(self) -> bool:
        """Whether a check of the fingerprint reports it."""
        return self.check.startswith(FINGERPRINT)


def parse_findings(report: Mapping[str, Any]) -> list[HostFinding]:
    """All findings of a report's only host.

    Raises:
        ValueError: the report has no host, or several.
    """
    hosts = report["hosts"]
    if len(hosts) != 1:
        raise ValueError(f"the report has {len(hosts)} hosts")
    if hosts[0]["verdict"] == "not reached":
        return [HostFinding("", "", "fails", "not reached")]
    return [finding for result in hosts[0]["checks"] for finding in _parse_result(result)]


def _parse_result(result: Mapping[str, Any]) -> Iterator[HostFinding]:
    check = result["id"]
    if result["verdict"] == "fail":
        # process ids, sizes and times of a failure differ between two looks
        text = NUMBER.sub("#", result["found"])
        yield HostFinding(check, result["part"], "fails", text, result.get("author", ""))
    for change in result.get("changes") or ():
        outcome: Outcome = "changed" if change["counts"] else "listed"
        text = f"{change['key']}: {change['change']}: {change['now']}"
        yield HostFinding(check, change["entry_class"], outcome, text, change["author"])


def new_findings(before: Iterable[HostFinding], after: Iterable[HostFinding]) -> list[HostFinding]:
    """The findings of a look that an earlier look has not."""
    known = {finding.identity for finding in before}
    return [finding for finding in after if finding.identity not in known]


def strongest_outcome(findings: Iterable[HostFinding]) -> Outcome:
    """The strongest report among findings."""
    return max((finding.outcome for finding in findings), key=ORDER.index, default="nothing")
