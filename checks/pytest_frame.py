"""pytest as the checks' frame: which of them run, in which order, what comes of each, and the exit status."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Protocol

import pytest

from checks import Drift
from checks.asleep_instances import skip_asleep
from checks.cause_facts import collect_cause_facts
from checks.cause_rules import CAUSE_RULES
from checks.change_authors import ask_authors
from checks.change_review.accepted_comparison import ACCEPTANCE_CHECK
from checks.check_items import item_params, parse_identifiers, reject_duplicate_ids, select_checks
from checks.direct_calls import DirectCalls
from checks.failure_causes import CheckFailure, group_failures
from checks.host_checks import HERE, TARGET, CheckFunction, HostCheck, fleet_links, list_host_checks, of_item
from checks.host_report import CheckCall, EndedHost, build_host_report, build_result, render_report
from checks.remedy import render_place
from checks.result_metrics import AdvisoryCounts, write_check_metrics
from checks.result_waivers import apply_waivers, pass_waived
from checks.results import SCHEMA, STATUS, FailureCause, HostReport, Report, Result, worst_verdict
from checks.survey.answers import SurveyAnswers
from checks.survey.archive_comparison import ArchiveComparison
from checks.survey_run import SurveyedHost, SurveyRun
from rigwright.check_waivers import format_day
from rigwright.host_selection import is_many
from rigwright.model.fleet_schema import FleetLinks
from rigwright.model.rig import Rig
from rigwright.problems import Invalid

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


class ResultReporter(Protocol):
    """A reporter that takes results directly, because making a report of pytest's takes longer than a check."""

    def note_result(self, target: str, result: Result, area: str) -> None:
        """Take the result of a check of a host; its area is the name of its file."""


class ChecksPlugin:
    """Hooks for all checks, ours and a user's own."""

    def __init__(self, config: pytest.Config, look: SurveyRun) -> None:
        self.config, self.look, self.calls = config, look, DirectCalls(config)
        self.inventory = str(Path(look.inventory).absolute())
        self.functions: list[CheckFunction] = []
        """Our checks, those that are asked for."""
        self.reporter: ResultReporter | None = None
        """The plugin that takes results directly; None if other plugins need pytest's reports."""
        self.gone: list[str] = []
        self.results: dict[str, list[Result]] = {}
        self.failures: dict[str, list[CheckFailure]] = {}
        self.own_checks: set[str] = set()
        """Ids of the operator's own checks."""
        self.ends = ThreadPoolExecutor(max(len(look.hosts), 1))
        self.ended: dict[str, Future[EndedHost]] = {}
        """Host -> its report, after its last check."""
        self.advisories: dict[str, dict[str, int]] = {}
        """Host -> advisories by state; of those of which no check was left out."""
        self.counts = AdvisoryCounts()
        self.unleft: dict[str, str] = {}
        """Host -> why its observer has no results."""
        self.today = format_day(look.began)
        self.is_complete = not (config.getoption("--only") or config.getoption("--severity"))
        self.partners = {links.pair.partner for one in look.hosts.values() for links in find_links(one) if links.pair}
        """Hosts that checks of other hosts look at."""

    def pytest_collectstart(self) -> None:
        """While files of checks are imported, hosts answer."""
        self.look.yield_to_hosts()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Those that are asked for, in the order of the roles; a user's own host by host, too."""
        found = {item: CheckFunction(item) for item in items}
        reject_duplicate_ids((one.mark["identifier"], item) for item, one in found.items())
        known = {one.mark["identifier"] for one in found.values()}
        chosen = select_checks(self.config.getoption("--only"), self.config.getoption("--severity"), known)
        place = {area: number for number, area in enumerate(ORDER)}
        asked = [one for one in found.values() if chosen(one.mark) and (one.is_ours or one.target)]
        asked.sort(key=lambda one: (one.target, place.get(one.area, len(place))))
        self.functions = [one for one in asked if one.is_ours and any(map(one.find_parts, self._rigs()))]
        items[:] = [one.item for one in asked if not one.is_ours or one in self.functions]

    def _rigs(self) -> Iterator[Rig]:
        return (seen.rig for seen in self.look.hosts.values())

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self) -> None:
        """Prepare, while hosts answer."""
        self.look.prepare_validators()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the checks of hosts in the order of their names; a host that answers late comes after the others."""
        if session.testsfailed or session.config.option.collectonly:
            return None
        self.reporter = find_only_reporter(session)
        items: dict[str, list[pytest.Item]] = {}
        for item in session.items:
            if not item.path.is_relative_to(HERE):
                items.setdefault(str(item_params(item)[TARGET]), []).append(item)
        left = {
            name: items.get(name, [])
            for name, seen in sorted(self.look.hosts.items())
            if name in items or any(one.find_parts(seen.rig) for one in self.functions)
        }
        for unneeded in self.look.hosts.keys() - left:
            self.look.end_host(unneeded)
        name = self.look.choose_next_host(left) if left else ""
        while left:
            mine, chosen = left.pop(name), name
            if not self.look.is_out_of_reach(name):
                for check in list_host_checks(self.functions, name, self.look.hosts[name].rig):
                    self._run_check(check)
                    raise_if_stopped(session)
            for number, item in enumerate(mine, 1):
                following = next(iter(mine[number:]), None)
                if following is None and left:
                    chosen = self.look.choose_next_host(left)
                    # fixtures of the session stay while any later host has items
                    following = next((one for host in (chosen, *left) for one in left[host]), None)
                if number == 1:
                    # the one that was announced may be another host's
                    session._setupstate.teardown_exact(item)
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                raise_if_stopped(session)
            self._end_host(name)
            name = chosen if chosen != name or not left else self.look.choose_next_host(left)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Have pytest run a check of a user's own once its host has answered; none of a host out of reach."""
        if self.look.is_out_of_reach(str(item_params(item)[TARGET])):
            # remains of the one before for this one are not the next one's
            item.session._setupstate.teardown_exact(nextitem)
            return True
        return None

    def _run_check(self, check: HostCheck) -> None:
        """Run a check of ours at one go: pytest's own way, of three parts with hooks around each, takes longer."""
        self.look.give_turn()

        call = CheckCall.run(partial(self._call_check, check))
        result = self._decide(check, call)
        if result.verdict in ("ok", "skip") and self.reporter:
            self.reporter.note_result(check.target, result, check.function.area)
        else:
            self.config.hook.pytest_runtest_logreport(report=self._make_report(check, call, result))

    def _call_check(self, check: HostCheck) -> None:
        seen = self.look.hosts[check.target]
        with pass_waived(check.function.mark["identifier"], check.part, seen.rig.waivers, self.today):
            skip_asleep(check, seen.survey)
            self.calls.run(check)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """A user's own checks, too, go on past their waived drifts."""
        check = of_item(item)
        waivers = self.look.hosts[check.target].rig.waivers
        with pass_waived(check.function.mark["identifier"], check.part, waivers, self.today):
            return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> pytest.TestReport:
        """A verdict of a user's own check."""
        check, ended = of_item(item), CheckCall.from_pytest(call)
        return self._make_report(check, ended, self._decide(check, ended))

    def _decide(self, check: HostCheck, call: CheckCall) -> Result:
        """The verdict of a check; no traceback is made, which takes longer than a check."""
        target, function = check.target, check.function
        error = call.error
        items, waivable = (error.shown_items, error.waivable_items) if isinstance(error, Drift) else ((), ())
        how = next((str(value) for name, value in reversed(check.user_properties) if name == "how"), "")
        result = build_result(function.mark, check.part, call, how, self.inventory, target, several=self.look.several)
        if result.verdict == "fail":
            result = apply_waivers(result, waivable, self.look.hosts[target].rig.waivers, self.today)
        if _is_decided(call, result):
            self.results.setdefault(target, []).append(result)
            if not function.is_ours:
                self.own_checks.add(result.id)
            if result.verdict == "fail":
                failed = items or ((result.expected, result.found),)
                self.failures.setdefault(target, []).append(CheckFailure(result.id, result.part, failed))
        return result

    @staticmethod
    def _make_report(check: HostCheck, call: CheckCall, result: Result) -> pytest.TestReport:
        report = render_report(check.function, check.target, result, call)
        if _is_decided(call, result):
            report.__dict__["decided"] = (check.target, result, check.function.area)
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
        for one in self.ended.values():
            one.result()
        self.gone = [name for name in self.look.hosts if self.look.is_out_of_reach(name)]
        if self.gone:
            session.exitstatus = STATUS["not reached"]

    def _end_host(self, name: str) -> None:
        """Reduce what is known of a host to what reports need, while others are judged; its observer gets results."""
        self.calls.forget()
        self.look.end_host(name)
        if name in self.results:
            self.ended[name] = self.ends.submit(self._reduce_host, name)

    def _reduce_host(self, name: str) -> EndedHost:
        seen, failures = self.look.hosts[name], self.failures.pop(name, [])
        if self.is_complete:
            self.advisories[name] = self.counts.count(seen.rig)
        causes = self._find_causes(name, seen, failures) if failures else []
        authors = ask_authors(seen.target, seen.rig.roots.state, failures) if failures and seen.survey else {}
        report = build_host_report(seen, self.results[name], causes, authors, self.advisories.get(name, {}))
        self.results[name] = report.checks
        if self.is_complete and (why := write_check_metrics(seen, report, time.time())):
            self.unleft[name] = why
        ended = EndedHost(report, authors, self._count_unreviewed(name))
        if is_many(self.look.hosts) and not self.look.keeps_answers and name not in self.partners:
            seen.release()
        return ended

    def _find_causes(self, name: str, seen: SurveyedHost, failures: list[CheckFailure]) -> list[FailureCause]:
        try:
            desired = seen.desired
        except (ValueError, AssertionError, OSError):
            desired = None
        survey, own = seen.survey or SurveyAnswers({}), frozenset(self.own_checks)
        place = render_place(self.look.inventory, name if self.look.several else "")
        facts = collect_cause_facts(survey, seen.rig, desired, place, self.look.began, own)
        return group_failures(facts, failures, CAUSE_RULES)

    def _count_unreviewed(self, name: str) -> int | None:
        acceptance = next((one for one in self.results[name] if one.id == ACCEPTANCE_CHECK), None)
        if acceptance is None or acceptance.verdict != "skip":
            return None
        ignored = parse_identifiers(self.config.getoption("--ignore-class"))
        return self.look.hosts[name].review.with_options(strict=False, ignored=ignored).number

    def _wait_for_end(self, name: str) -> EndedHost:
        if name not in self.ended:  # the run was interrupted
            self._end_host(name)
        return self.ended[name].result()

    def find_causes(self, target: str) -> list[FailureCause]:
        """The causes of the failures of a host whose checks are decided."""
        return self._wait_for_end(target).report.causes

    def find_authors(self, target: str) -> dict[str, str]:
        """Label of such a host's failure -> its last change: file or unit, time and author, as far as the logs show."""
        return self._wait_for_end(target).authors

    def count_unreviewed(self, target: str) -> int | None:
        """Number of unreviewed entries of a host without accepted entries; None for any other host."""
        return self._wait_for_end(target).unreviewed

    def find_unused_waivers(self, target: str) -> list[str]:
        """The waivers of a host that cover no failure of a complete run."""
        if not self.is_complete:
            return []
        used = {(one.label, value) for one in self.results.get(target, []) for value in one.observed}
        unused = (one for one in self.look.hosts[target].rig.waivers if (one.label, one.observed) not in used)
        return list(dict.fromkeys(one.label for one in unused))

    def compared(self, target: str) -> ArchiveComparison | None:
        """Packages of a host that were compared with their files in archives; None where that was not asked."""
        return self._wait_for_end(target).report.archives

    def build_report(self) -> Report:
        """All that was found."""
        look = self.look
        hosts = [HostReport(name, "not reached", look.hosts[name].rig.digest, None, "", {}) for name in self.gone]
        hosts += [one.result().report for one in self.ended.values()]
        return Report(
            SCHEMA,
            time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(look.began)),
            metadata.version("rigwright"),
            self.inventory,
            look.deep,
            worst_verdict([host.verdict for host in hosts]),
            round(time.time() - look.began, 3),
            sorted(hosts, key=lambda host: host.name),
        )


def _is_decided(call: CheckCall, result: Result) -> bool:
    """Whether a part of pytest's protocol is a check's verdict."""
    return call.when == "call" or result.verdict != "ok"


def find_only_reporter(session: pytest.Session) -> ResultReporter | None:
    """The reporter, if no other plugin gets reports of passed checks, as JUnit's does; a user's own plugin may, too."""
    heard = session.config.hook.pytest_runtest_logreport.get_hookimpls()
    others = [one.plugin for one in heard if one.plugin is not session]
    return others[0] if len(others) == 1 and hasattr(others[0], "note_result") else None


def find_links(seen: SurveyedHost) -> list[FleetLinks]:
    """The connections of a host with other boxes; none of one whose declaration is refused."""
    try:
        return fleet_links(seen.rig)
    except Invalid:
        return []


def raise_if_stopped(session: pytest.Session) -> None:
    """End the run where a plugin of pytest asks for it.

    Raises:
        pytest.Session.Failed, pytest.Session.Interrupted: it is to end.
    """
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
