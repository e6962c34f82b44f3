"""pytest as the checks' frame: which of them run, in which order, what comes of each, and the exit status."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import pytest

from checks import Drift, strip_control_characters
from checks.asleep_instances import skip_asleep
from checks.cause_facts import collect_cause_facts
from checks.cause_rules import CAUSE_RULES
from checks.change_authors import ask_authors
from checks.change_review.accepted_comparison import ACCEPTANCE_CHECK, REVIEW
from checks.change_review.fingerprint_diff import UnacceptedChanges
from checks.check_items import (
    parse_identifiers,
    part_of,
    read_check_mark,
    reject_duplicate_ids,
    select_checks,
    target_of,
)
from checks.direct_calls import DirectCalls
from checks.failure_causes import CheckFailure, group_failures
from checks.remedy import describe_steps, instruction, render_place
from checks.result_metrics import count_advisories, write_check_metrics
from checks.result_waivers import apply_waivers, describe_waived, pass_waived
from checks.results import (
    SCHEMA,
    STATUS,
    AcceptanceReport,
    FailureCause,
    HostReport,
    Report,
    Result,
    Verdict,
    describe_changes,
    describe_failure,
    host_verdict,
    worst_verdict,
)
from checks.survey.answers import SurveyAnswers
from checks.survey.archive_comparison import ArchiveComparison
from checks.survey.base_system import ABOUT, About
from checks.survey.fingerprint import FINGERPRINT
from checks.survey_run import SurveyedHost, SurveyRun
from rigwright.check_waivers import format_day
from roles.host_pool import HostThreads

HERE = Path(__file__).parent
ORDER = (
    "preflight",
    "machine",
    "nvidia_driver",
    "nvidia_modules",
    "nvidia_packages",
    "nvidia_cards",
    "base",
    "accounts",
    "ours",
    "tools",
    "trees",
    "container_toolkit",
    "containers",
    "docker",
    "cuda_toolkit",
    "engines",
    "envs",
    "sharing",
    "monitoring",
    "weights",
    "generation",
    "units",
    "systemd",
    "process",
    "code",
    "groups",
    "serving",
)
"""Files of checks in the order of the roles; others come after."""


def build_result(
    mark: dict[str, Any], part: str, call: pytest.CallInfo[None], note: str, inventory: str, host: str, *, several: bool
) -> Result:
    """The result of a check of a host of an inventory, which may have several.

    One that ends in no verdict does not hold: nothing was seen that conforms."""
    known: dict[str, Any] = {key: mark[key] for key in ("title", "severity", "why")}
    known |= {"id": mark["identifier"], "part": part, "took_s": round(call.duration, 4)}
    error = call.excinfo.value if call.excinfo else None
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


class ChecksPlugin:
    """Hooks for all checks, ours and a user's own."""

    def __init__(self, config: pytest.Config, look: SurveyRun) -> None:
        self.config, self.look, self.calls = config, look, DirectCalls(config)
        self.gone: list[str] = []
        self.results: dict[str, list[Result]] = {}
        self.failures: dict[str, list[CheckFailure]] = {}
        self.own_checks: set[str] = set()
        """Ids of the operator's own checks."""
        self._causes: dict[str, list[FailureCause]] = {}
        self._authors: dict[str, dict[str, str]] = {}
        self.advisories: dict[str, dict[str, int]] = {}
        """Host -> advisories by state; of those of which no check was left out."""
        self.unleft: dict[str, str] = {}
        """Host -> why its observer has no results."""
        self.today = format_day(look.began)

    def pytest_collectstart(self) -> None:
        """While files of checks are imported, hosts answer."""
        self.look.yield_to_hosts()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Those that are asked for, host by host, and within one in the order of the roles."""
        marks = {item: read_check_mark(item) for item in items}
        reject_duplicate_ids((mark["identifier"], item) for item, mark in marks.items())
        known = {mark["identifier"] for mark in marks.values()}
        chosen = select_checks(self.config.getoption("--only"), self.config.getoption("--severity"), known)
        place = {part: number for number, part in enumerate(ORDER)}
        items[:] = [item for item in items if target_of(item) and chosen(marks[item])]
        items.sort(key=lambda item: (target_of(item), place.get(item.path.stem.removeprefix("test_"), len(place))))

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self) -> None:
        """Prepare, while hosts answer."""
        self.look.prepare_validators()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the checks of hosts in the order of their names; a host that answers late comes after the others."""
        if session.testsfailed or session.config.option.collectonly:
            return None
        by_host: dict[str, list[pytest.Item]] = {}
        for item in session.items:
            by_host.setdefault(target_of(item), []).append(item)
        name = self.look.choose_next_host(by_host) if by_host else ""
        while by_host:
            items = by_host.pop(name)
            for item, following in zip(items, [*items[1:], None], strict=True):
                if following is None and by_host:
                    name = self.look.choose_next_host(by_host)
                    following = by_host[name][0]
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Run a check of ours at one go, once its host has answered; others may not have: pytest's own way to, of three
        parts with hooks around each, takes longer than a check. A user's own are run by that, for they may ask for more
        of pytest. One of a host out of reach is not run.
        """
        if self.look.is_out_of_reach(target_of(item)):
            # remains of the one before for this one are not the next one's
            item.session._setupstate.teardown_exact(nextitem)
            return True
        if not item.path.is_relative_to(HERE):
            return None
        state = item.session._setupstate
        call = pytest.CallInfo.from_call(
            lambda: self._run_item(item), "call", reraise=(pytest.exit.Exception, KeyboardInterrupt)
        )
        report = self.pytest_runtest_makereport(item, call)
        if state.stack:
            state.teardown_exact(nextitem)
        item.config.hook.pytest_runtest_logreport(report=report)
        return True

    def _run_item(self, item: pytest.Item) -> None:
        with pass_waived(item, self.look.hosts[target_of(item)].rig.waivers, self.today):
            skip_asleep(item, self.look.hosts[target_of(item)].survey)
            if not self.calls.run(item):
                item.session._setupstate.setup(item)
                item.runtest()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """A user's own checks, too, go on past their waived drifts."""
        with pass_waived(item, self.look.hosts[target_of(item)].rig.waivers, self.today):
            return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> pytest.TestReport:
        """A verdict and its words; no traceback is made, which takes longer than a check."""
        target = target_of(item)
        error = call.excinfo.value if call.excinfo else None
        items, waivable = (error.shown_items, error.waivable_items) if isinstance(error, Drift) else ((), ())
        result = build_result(
            read_check_mark(item),
            part_of(item),
            call,
            str(dict(item.user_properties).get("how", "")),
            str(Path(self.look.inventory).absolute()),
            target,
            several=self.look.several,
        )
        if result.verdict == "fail":
            result = apply_waivers(result, waivable, self.look.hosts[target].rig.waivers, self.today)
        outcome, words = OUTCOMES["ok" if result.is_listed else result.verdict]
        report = pytest.TestReport(
            f"{target}::{result.id} {result.name}",
            # where in it takes reading its source, and nothing here says
            (str(item.path), None, item.name),
            {},
            outcome,
            words(item, result),
            call.when,  # type: ignore[arg-type] # of an item, not of collecting
            duration=call.duration,
            start=call.start,
            stop=call.stop,
        )
        if call.when == "call" or result.verdict != "ok":
            self.results.setdefault(target, []).append(result)
            report.__dict__["decided"] = (target, result)
            self._causes.pop(target, None)
            self._authors.pop(target, None)
            if not item.path.is_relative_to(HERE):
                self.own_checks.add(result.id)
            if result.verdict == "fail":
                failed = items or ((result.expected, result.found),)
                self.failures.setdefault(target, []).append(CheckFailure(result.id, result.part, failed))
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A host out of reach is not one that conforms."""
        if session.exitstatus not in (
            pytest.ExitCode.OK,
            pytest.ExitCode.TESTS_FAILED,
            pytest.ExitCode.NO_TESTS_COLLECTED,
        ):
            return
        self.gone = [name for name in self.look.hosts if self.look.is_out_of_reach(name)]
        if not (self.config.getoption("--only") or self.config.getoption("--severity")):
            self.advisories = {name: count_advisories(self.look.hosts[name].rig) for name in self.results}
            self._write_metrics()
        if self.gone:
            session.exitstatus = STATUS["not reached"]

    def find_causes(self, target: str) -> list[FailureCause]:
        """The causes of a host's failures, as far as its checks have run."""
        if target not in self._causes:
            seen, failures = self.look.hosts[target], self.failures.get(target, [])
            try:
                desired = seen.desired if failures else None
            except (ValueError, AssertionError, OSError):
                desired = None
            if failures:
                survey = seen.survey or SurveyAnswers({})
                own = frozenset(self.own_checks)
                place = render_place(self.look.inventory, target if self.look.several else "")
                facts = collect_cause_facts(survey, seen.rig, desired, place, self.look.began, own)
                self._causes[target] = group_failures(facts, failures, CAUSE_RULES)
            else:
                self._causes[target] = []
        return self._causes[target]

    def find_authors(self, target: str) -> dict[str, str]:
        """Label of a host's failure -> its last change: file or unit, time and author, as far as the logs show."""
        if target not in self._authors:
            seen, failures = self.look.hosts[target], self.failures.get(target, [])
            asks = failures and seen.survey
            self._authors[target] = ask_authors(seen.target, seen.rig.roots.state, failures) if asks else {}
        return self._authors[target]

    def count_unreviewed(self, target: str) -> int | None:
        """Number of unreviewed entries of a host without accepted entries; None for any other host."""
        acceptance = next((one for one in self.results.get(target, []) if one.id == ACCEPTANCE_CHECK), None)
        if acceptance is None or acceptance.verdict != "skip":
            return None
        ignored = parse_identifiers(self.config.getoption("--ignore-class"))
        return self.look.hosts[target].review.with_options(strict=False, ignored=ignored).number

    def find_unused_waivers(self, target: str) -> list[str]:
        """The waivers of a host that cover no failure of a complete run."""
        if self.config.getoption("--only") or self.config.getoption("--severity"):
            return []
        used = {(one.label, value) for one in self.results.get(target, []) for value in one.observed}
        unused = (one for one in self.look.hosts[target].rig.waivers if (one.label, one.observed) not in used)
        return list(dict.fromkeys(one.label for one in unused))

    def compared(self, target: str) -> ArchiveComparison | None:
        """Packages of a host that were compared with their files in archives; None where that was not asked."""
        survey = self.look.hosts[target].survey
        with suppress(Drift):
            return survey.read(FINGERPRINT).archives if survey and self.look.hosts[target].deep else None
        return None

    def _write_metrics(self) -> None:
        """Have each host that is declared to tell know what all checks have found of it."""

        def write(name: str) -> str:
            seen = self.look.hosts[name]
            return write_check_metrics(seen, self._build_host_report(name, seen, self.results[name]), time.time())

        with HostThreads(len(self.results)) as pool:
            self.unleft |= {
                name: why for name, why in zip(self.results, pool.map(write, self.results), strict=True) if why
            }

    def build_report(self) -> Report:
        """All that was found."""
        look = self.look
        hosts = [HostReport(name, "not reached", look.hosts[name].rig.digest, None, "", {}) for name in self.gone]
        hosts += [self._build_host_report(name, look.hosts[name], found) for name, found in self.results.items()]
        return Report(
            SCHEMA,
            time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(look.began)),
            metadata.version("rigwright"),
            str(Path(look.inventory).absolute()),
            look.deep,
            worst_verdict([host.verdict for host in hosts]),
            round(time.time() - look.began, 3),
            sorted(hosts, key=lambda host: host.name),
        )

    def _build_host_report(self, name: str, seen: SurveyedHost, found: list[Result]) -> HostReport:
        try:
            about = (seen.survey or SurveyAnswers({})).read(ABOUT)
        except Drift:
            about = About("", None, {})
        versions = {
            strip_control_characters(what): strip_control_characters(version)
            for what, version in about.versions.items()
        }
        counted = self.advisories.get(name, {})
        clock = strip_control_characters(about.clock)
        causes = self.find_causes(name)
        by_label = {label: cause.id for cause in causes for label in cause.results}
        authors = self.find_authors(name)
        checks = [
            replace(one, cause=by_label.get(one.label, ""), author=authors.get(one.label, ""))
            if one.verdict == "fail"
            else one
            for one in found
        ]
        review, verdict = _describe_review(seen), host_verdict(found)
        about_host = (name, verdict, seen.rig.digest, about.generation, clock, versions)
        return HostReport(*about_host, checks, counted, causes, review, self.compared(name))


def _describe_review(seen: SurveyedHost) -> AcceptanceReport | None:
    try:
        review = seen.review
    except Drift:
        return None
    return AcceptanceReport(review.state, review.serial, review.author, review.date, review.number)


OUTCOMES: dict[Verdict, tuple[Literal["passed", "failed", "skipped"], Callable[[pytest.Item, Result], Any]]] = {
    "ok": ("passed", lambda item, result: None),
    "fail": ("failed", lambda item, result: describe_failure(result)),
    "waived": ("skipped", lambda item, result: (str(item.path), 0, describe_waived(result))),
    "changed": ("failed", lambda item, result: describe_changes(result)),
    "skip": ("skipped", lambda item, result: (str(item.path), 0, result.note)),
}
"""Verdict -> what pytest calls it, and the words that it wants."""
