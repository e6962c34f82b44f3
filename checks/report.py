"""Reports of checks: the causes of failures, other failures, and each host's verdict; or a line each; or JSON."""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from _pytest.config import create_terminal_writer
from _pytest.terminal import TerminalReporter

from checks import ItemText, strip_control_characters
from checks.change_review.accepted_comparison import REVIEW, describe_unreviewed
from checks.pytest_frame import ChecksPlugin
from checks.remedy import program_name
from checks.results import LISTED_VERDICTS, FailureCause, Result, count_changes, describe_waivers
from rigwright.problems import format_count
from rigwright.safe_text import wrap_words

VERDICT = {
    "ok": ("ok  ", "green"),
    "fail": ("FAIL", "red"),
    "waived": ("WAIVED", "yellow"),
    "changed": ("CHANGED", "purple"),
    "skip": ("skip", "yellow"),
}


LISTED = 8
"""Consequences of a cause, and changes of a class, that are named; -v lists all."""
AFTER_REVIEW = "after a review"
ARCHIVES_SHOWN = 5
"""Packages that were not compared with their archives that are named; JSON has all."""


class ChecksReporter(TerminalReporter):  # type: ignore[misc] # final, and made of the hooks that we need
    """pytest's own reporter, with what does not hold in place of dots and tracebacks; with -v a line a check.

    Failures of a host are reported once all its checks are decided: causes first.
    """

    def __init__(self, config: pytest.Config, frame: ChecksPlugin) -> None:
        super().__init__(config)
        self.frame = frame
        self.tally: dict[str, Counter[str]] = defaultdict(Counter)
        self.left_out: dict[str, Counter[str]] = defaultdict(Counter)
        """Host -> kind of check -> how many of them are about nothing there."""
        self.waiting: dict[str, list[Result]] = {}
        """Host -> its failures and changes, until all its checks are decided."""

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Without pytest's header."""
        self._session = session

    def pytest_collection(self) -> None:
        """Nothing before the first check's line."""

    def report_collect(self, final: bool = False) -> None:
        """Without the count: every check gets a line."""

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        """Nothing before a check's line."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print a check's lines once it is decided."""
        self._tests_ran = True
        if decided := report.__dict__.get("decided"):
            self.note_result(*decided)

    def note_result(self, target: str, result: Result, area: str) -> None:
        """Print the lines of a decided check, and count it."""
        self._tests_ran = True
        self.print_decided(target)
        if result.verdict == "skip":
            self.left_out[target][area] += 1
        self.waiting.setdefault(target, []).extend([result] if result.verdict in LISTED_VERDICTS else [])
        self.tally[target][result.verdict] += 1
        self.print_progress(target, result)

    def print_decided(self, target: str) -> None:
        """Print the failures of hosts other than the one whose checks run."""
        for other in [name for name in self.waiting if name != target]:
            self.print_failures(other, self.waiting.pop(other))

    def print_progress(self, target: str, result: Result) -> None:
        """Print a line for a decided check, where that is asked for."""
        if self.verbosity >= 1:
            note = f" ({result.note})" if result.note else ""
            self._print_verdict("  ", target, result, note)

    def print_failures(self, target: str, results: list[Result]) -> None:
        """Print what does not hold on a host: each cause with its consequences, all other failures, then changes."""
        authors = self.frame.find_authors(target) if any(one.verdict == "fail" for one in results) else {}
        failures = [replace(one, author=authors.get(one.label, "")) for one in results if one.verdict == "fail"]
        causes = self.frame.find_causes(target) if failures else []
        explained = {label for cause in causes for label in cause.results}
        for cause in causes:
            self.print_cause(target, cause)
            if self.verbosity >= 1:
                for result in failures:
                    if result.label in cause.results:
                        self.print_failure(target, result, "    ")
        for result in failures:
            if result.label not in explained:
                self.print_failure(target, result)
        for result in results:
            if result.verdict == "waived":
                self.print_waived(target, result)
            elif result.verdict == "changed":
                self.print_changes(target, result)

    def print_waived(self, target: str, result: Result) -> None:
        """Print a waived failure with its waivers."""
        self._print_verdict("  ", target, result)
        for value in result.observed:
            self._print_rows("        ", {"observed": value})
        self._print_rows("        ", {"waived": describe_waivers(result)})

    def print_changes(self, target: str, result: Result) -> None:
        """Print a line for each change that is not accepted, and with -v its difference."""
        shown = result.changes if self.verbosity >= 1 else result.changes[:LISTED]
        for change in shown:
            self._print_change(target, result, change.describe(), counts=change.counts)
            if self.verbosity >= 1:
                for line in change.difference:
                    self._tw.line(f"            {line}")
        if more := len(result.changes) - len(shown):
            self._print_change(target, result, f"and {more} more; -v lists {'them' if more > 1 else 'it'}")

    def _print_change(self, target: str, result: Result, text: str, *, counts: bool = True) -> None:
        word = "CHANGED" if counts else "changed"
        line = self._wrap_text(f"  {word}  {target}  {result.id}  {result.change_label}: {text}", " " * 11)
        self._tw.write(f"  {word}", **({"purple": True} if counts else {}))
        self._tw.line(line.partition(word)[2])

    def print_cause(self, target: str, cause: FailureCause) -> None:
        """Print a cause, no wider than the terminal."""
        self._tw.write("  CAUSE", red=True)
        self._tw.line(self._wrap_text(f"  CAUSE  {target}  {cause.headline}", " " * 10)[7:])
        self._print_rows(
            "        ", {"fix": cause.cure.replace("`rigwright ", f"`{program_name()} "), "evidence": cause.evidence}
        )
        count, ids = len(cause.results), list(dict.fromkeys(label.split(" ")[0] for label in cause.results))
        listed = ", ".join(ids[:LISTED]) + (", ..." if len(ids) > LISTED else "")
        tail = "" if self.verbosity >= 1 else f"; -v lists {'them' if count > 1 else 'it'}"
        text = f"        and {format_count(count, 'consequence')}: {listed}{tail}"
        self._tw.line(self._wrap_text(text, " " * 10))

    def print_failure(self, target: str, result: Result, lead: str = "  ") -> None:
        """Print a failure with what to do about it, no wider than the terminal."""
        self._print_verdict(lead, target, result)
        self._print_rows(
            f"{lead}      ",
            {name: str(getattr(result, name)) for name in ("severity", "expected", "found", "since", "author", "note")},
        )
        for value in result.observed if self.verbosity >= 1 else ():  # a line break would be copied, too
            self._tw.line(f"{lead}      {'observed':<8}  {value}")
        for step in result.steps:
            text = step.describe(target)
            if step.where == "person":
                self._print_rows(f"{lead}      ", {"fix": text})
            else:  # a line break within a command would be copied, too
                self._tw.line(f"{lead}      {'fix':<8}  {text}")
        self._print_rows(f"{lead}      ", {"why": result.why})

    def _print_rows(self, lead: str, rows: dict[str, str]) -> None:
        for name, text in rows.items():
            if text:
                self._tw.line(self._wrap_text(f"{lead}{name:<8}  {text}", f"{lead}{' ' * 10}"))

    def _print_verdict(self, lead: str, target: str, result: Result, note: str = "") -> None:
        word, colour = VERDICT[result.verdict]
        line = self._wrap_text(f"{lead}{word}  {target}  {result.id}  {result.name}{note}", f"{lead}{' ' * 8}")
        before, _, after = line.partition(word)
        self._tw.write(f"{before}{word}", **{colour: True})
        self._tw.line(after)

    def _wrap_text(self, text: str, more: str) -> str:
        """A text in lines no wider than the terminal, each but the first after `more`; as it is elsewhere."""
        if not self._tw._file.isatty():
            return text
        began = len(text) - len(text.lstrip())
        return "\n".join(wrap_words(text[began:], max(self._tw.fullwidth, 40), text[:began], more))

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None]:
        """Say what cannot be collected, and the verdicts: without pytest's empty line, and what its plugins add."""
        yield
        for target in list(self.waiting):
            self.print_failures(target, self.waiting.pop(target))
        self.summary_errors()
        self.short_test_summary()

    def summary_failures(self) -> None:
        """Each failure has had its lines."""

    def summary_errors(self) -> None:
        """Each error has had its lines; a file that cannot be collected is shown whole."""
        for report in self.stats.get("error", []):
            self._tw.line(str(report.longrepr))

    def summary_stats(self) -> None:
        """The verdict of each host stands in its place."""

    def short_test_summary(self) -> None:
        """The verdict of each host."""
        for target in sorted(self.frame.gone):
            self.print_unreached(target, self.frame.look.hosts[target].why)
        for target in self.tally:
            if (kinds := self.left_out[target]) and self.verbosity >= 1:
                listed = ", ".join(f"{kind} {number}" for kind, number in kinds.most_common())
                self._tw.line(self._wrap_text(f"{target}: do not apply: {listed}", "  "))
            self.print_host_verdict(target, *self.describe_verdict(target))
            for line in self.describe_more(target):
                self.print_more(target, line)
        for target, why in self.frame.unleft.items():
            self.print_more(target, f"monitoring did not get this result: {strip_control_characters(why)}")

    def print_unreached(self, hosts: str, why: str) -> None:
        """Print why hosts were not reached."""
        self._tw.write(f"{hosts}: ")
        self._tw.write(f"{why}\n", red=True)

    def describe_verdict(self, target: str) -> tuple[str, str]:
        """The verdict of a host, and the counts after it."""
        counted, changes = self.tally[target], count_changes(self.frame.results[target])
        changed = f"{counted['changed']} changed, " if counted["changed"] else ""
        changed += f"{counted['waived']} waived, " if counted["waived"] else ""
        unaccepted = f", {changes} change{' is' if changes == 1 else 's are'} not accepted" if changes else ""
        if counted["waived"]:
            unaccepted += f", {counted['waived']} failure{' is' if counted['waived'] == 1 else 's are'} waived"
        counts = f"({counted['ok']} ok, {counted['fail']} failed, {changed}{counted['skip']} skipped)"
        return "does not match its rig" if counted["fail"] else "conforms", f"{unaccepted} {counts}"

    def print_host_verdict(self, hosts: str, verdict: str, counts: str) -> None:
        """Print the verdict of hosts."""
        before, _, after = self._wrap_text(f"{hosts}: {verdict}{counts}", "  ").partition(verdict)
        self._tw.write(before)
        self._tw.write(verdict, **{"green" if verdict == "conforms" else "red": True})
        self._tw.line(after)

    def describe_more(self, target: str) -> Iterator[str]:
        """The lines about a host after its verdict: review, archives, advisories."""
        look, changes = self.frame.look, count_changes(self.frame.results[target])
        (step,) = REVIEW.locate(str(Path(look.inventory).absolute()), target if look.several else "")
        if changes:
            yield f"{AFTER_REVIEW}: `{step.text}`"
        elif (unreviewed := self.frame.count_unreviewed(target)) is not None:
            yield f"{describe_unreviewed(unreviewed)} (`{step.text}` lists and accepts them)"
        if unused := self.frame.find_unused_waivers(target):
            yield f"waivers without such a failure, to be removed: {', '.join(unused)}"
        if found := self.frame.compared(target):
            size = f"{found.bytes >> 20} MiB in {found.seconds:.0f} s"
            text = f"{found.packages} packages compared with the files of their archives ({size})"
            if found.left:
                text += f", {len(found.left)} not: {ItemText.from_items(found.left, '; ', ARCHIVES_SHOWN)}"
            yield strip_control_characters(text)
        if advisories := self.frame.advisories.get(target):
            states = ", ".join(f"{number} {state}" for state, number in advisories.items())
            yield f"published advisories: {states} (`{program_name()} show advisories` lists them)"

    def print_more(self, hosts: str, line: str) -> None:
        """Print a line about hosts. A command that is to be copied has no line breaks."""
        text = f"{hosts}: {line}"
        self._tw.line(text if line.startswith(AFTER_REVIEW) else self._wrap_text(text, "  "))


class JsonReporter(ChecksReporter):  # type: ignore[misc] # as that
    """Prints JSON at the end, and nothing before; errors that keep checks from running go to standard error."""

    def __init__(self, config: pytest.Config, frame: ChecksPlugin) -> None:
        super().__init__(config, frame)
        self._tw = create_terminal_writer(config, sys.stderr)

    def print_progress(self, target: str, result: Result) -> None:
        """Nothing."""

    def print_failures(self, target: str, failures: list[Result]) -> None:
        """Nothing."""

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None]:
        """Print the report, where checks have run or hosts are out of reach."""
        yield
        self.summary_errors()
        if not self.stats.get("error") and (self.frame.results or self.frame.gone):
            sys.stdout.write(json.dumps(asdict(self.frame.build_report()), indent=2) + "\n")
