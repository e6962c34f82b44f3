"""The result of one check, and the report about all checks of a host."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest

from checks import Drift, strip_control_characters
from checks.change_review.accepted_comparison import REVIEW
from checks.change_review.fingerprint_diff import UnacceptedChanges
from checks.host_checks import CheckFunction
from checks.remedy import describe_steps, instruction
from checks.result_waivers import describe_waived
from checks.results import (
    AcceptanceReport,
    FailureCause,
    HostReport,
    Result,
    Verdict,
    describe_changes,
    describe_failure,
    host_verdict,
)
from checks.survey.answers import SurveyAnswers
from checks.survey.archive_comparison import ArchiveComparison
from checks.survey.base_system import ABOUT, About
from checks.survey.fingerprint import FINGERPRINT
from checks.survey_run import SurveyedHost


@dataclass(frozen=True)
class CheckCall:
    """The outcome of a check's call, or of a phase of pytest's own protocol for it."""

    error: BaseException | None
    """The error that ended it; without its frames, which hold the host's answers."""
    start: float
    """Seconds since the epoch."""
    took_s: float
    when: Literal["setup", "call", "teardown"] = "call"

    @classmethod
    def from_pytest(cls, call: pytest.CallInfo[None]) -> CheckCall:
        """The outcome of a user's own check."""
        error = call.excinfo.value if call.excinfo else None
        return cls(error, call.start, call.duration, "call" if call.when == "collect" else call.when)

    @classmethod
    def run(cls, function: Callable[[], None]) -> CheckCall:
        """Call one of Rigwright's checks.

        Raises:
            pytest.exit.Exception, KeyboardInterrupt: the run is to end.
        """
        start, began = time.time(), time.perf_counter()
        error = None
        try:
            function()
        except (pytest.exit.Exception, KeyboardInterrupt):
            raise
        except BaseException as raised:
            error = raised.with_traceback(None)
        return cls(error, start, time.perf_counter() - began)


def build_result(
    mark: dict[str, Any], part: str, call: CheckCall, note: str, inventory: str, host: str, *, several: bool
) -> Result:
    """The result of a check of a host of an inventory, which may have several.

    One that ends in no verdict does not hold: nothing was seen that conforms."""
    known: dict[str, Any] = {key: mark[key] for key in ("title", "severity", "why")}
    known |= {"id": mark["identifier"], "part": part, "took_s": round(call.took_s, 4)}
    error = call.error
    if error is None:
        return Result(**known, verdict="ok", note=note)
    if isinstance(error, pytest.skip.Exception):
        return Result(**known, verdict="skip", note=strip_control_characters(str(error.msg)))
    if isinstance(error, UnacceptedChanges):
        changes = tuple(one.printable() for one in error.changes)
        return Result(
            **known,
            verdict="changed",
            found="; ".join(one.describe() for one in changes),
            cure=describe_steps(REVIEW.locate(inventory, host if several else ""), host),
            steps=REVIEW.locate(inventory, host if several else ""),
            changes=changes,
            change_label=error.label,
        )
    if not isinstance(error, Drift):
        first = next(iter(str(error).splitlines()), "")
        found = f"{type(error).__name__}: {first}"
        error = Drift(
            "a check that reaches a verdict", found, instruction("fix the check, or the cause of its failure")
        )
    steps = error.remedy.locate(inventory, host if several else "")
    return Result(
        **known,
        verdict="fail",
        expected=error.expected,
        found=error.found,
        since=error.since,
        cure=describe_steps(steps, host),
        steps=steps,
    )


OUTCOMES: dict[Verdict, tuple[Literal["passed", "failed", "skipped"], Callable[[CheckFunction, Result], Any]]] = {
    "ok": ("passed", lambda function, result: None),
    "fail": ("failed", lambda function, result: describe_failure(result)),
    "waived": ("skipped", lambda function, result: (function.file, 0, describe_waived(result))),
    "changed": ("failed", lambda function, result: describe_changes(result)),
    "skip": ("skipped", lambda function, result: (function.file, 0, result.note)),
}
"""Verdict -> what pytest calls it, and the words that it wants."""


def render_report(function: CheckFunction, target: str, result: Result, call: CheckCall) -> pytest.TestReport:
    """The report of pytest about a result."""
    outcome, words = OUTCOMES["ok" if result.is_listed else result.verdict]
    return pytest.TestReport(
        f"{target}::{result.id} {result.name}",
        # where in it takes reading its source, and nothing here says
        (function.file, None, function.item.name),
        {},
        outcome,
        words(function, result),
        call.when,
        duration=call.took_s,
        start=call.start,
        stop=call.start + call.took_s,
    )


@dataclass(frozen=True)
class EndedHost:
    """The results of a host after its last check, without the host's answers."""

    report: HostReport
    authors: dict[str, str]
    """Label of a failure -> its last change."""
    unreviewed: int | None
    """Unreviewed entries of a host without accepted entries; None for any other host."""


def build_host_report(
    seen: SurveyedHost,
    found: Sequence[Result],
    causes: list[FailureCause],
    authors: Mapping[str, str],
    advisories: dict[str, int],
) -> HostReport:
    """The report about a host, by the results of its checks."""
    try:
        about = (seen.survey or SurveyAnswers({})).read(ABOUT)
    except Drift:
        about = About("", None, {})
    versions = {
        strip_control_characters(what): strip_control_characters(version) for what, version in about.versions.items()
    }
    clock = strip_control_characters(about.clock)
    by_label = {label: cause.id for cause in causes for label in cause.results}
    checks = [
        replace(one, cause=by_label.get(one.label, ""), author=authors.get(one.label, ""))
        if one.verdict == "fail"
        else one
        for one in found
    ]
    review, verdict = _describe_review(seen), host_verdict(found)
    about_host = (seen.target.name, verdict, seen.rig.digest, about.generation, clock, versions)
    return HostReport(*about_host, checks, advisories, causes, review, _find_comparison(seen))


def _find_comparison(seen: SurveyedHost) -> ArchiveComparison | None:
    """Packages that were compared with their files in archives."""
    try:
        return seen.survey.read(FINGERPRINT).archives if seen.survey and seen.deep else None
    except Drift:
        return None


def _describe_review(seen: SurveyedHost) -> AcceptanceReport | None:
    try:
        review = seen.review
    except Drift:
        return None
    return AcceptanceReport(review.state, review.serial, review.author, review.date, review.number)
