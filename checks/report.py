"""How checks are told: a line each, and the verdict of every host in a table."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest
from _pytest.terminal import TerminalReporter

from checks import plain

VERDICT = {"passed": ("ok  ", "green"), "failed": ("FAIL", "red"), "skipped": ("skip", "yellow")}


class Reporter(TerminalReporter):  # type: ignore[misc] # final, and made of the hooks that we need
    """pytest's own reporter, with one line a check in place of dots and tracebacks."""

    def __init__(self, config: pytest.Config, gone: list[str]) -> None:
        super().__init__(config)
        self.gone = gone
        self.marks: dict[str, dict[str, Any]] = {}
        self.tally: dict[str, Counter[str]] = defaultdict(Counter)

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Without pytest's header."""
        self._session = session

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Host by host, and within one in the order of the roles."""
        parts = (
            "preflight",
            "nvidia_driver",
            "nvidia_modules",
            "nvidia_packages",
            "nvidia_cards",
            "base",
            "tools",
            "cuda_toolkit",
            "engines",
            "sharing",
            "weights",
            "generation",
            "serving",
        )
        order = {part: place for place, part in enumerate((*parts, "serving"))}
        items[:] = [item for item in items if _target(item)]
        items.sort(key=lambda item: (_target(item), order.get(item.path.stem.removeprefix("test_"), 99)))
        for item in items:
            mark = item.get_closest_marker("check")
            if mark is None:
                raise pytest.UsageError(f"{item.nodeid} has no @check: every check has an id, a title and a why")
            self.marks[item.nodeid] = {**mark.kwargs, "target": _target(item), "part": _part(item)}

    def report_collect(self, final: bool = False) -> None:
        """Without the count: every check gets a line."""

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        """Nothing before a check's line."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print a check's line once it is decided."""
        self._tests_ran = True
        decided = report.when == "call" or (report.when == "setup" and report.outcome != "passed")
        if not decided:
            return
        self.stats.setdefault(report.outcome, []).append(report)
        mark = self.marks[report.nodeid]
        word, colour = VERDICT[report.outcome]
        self.tally[mark["target"]][report.outcome] += 1
        self._tw.write(f"  {word}", **{colour: True})
        part = f"{mark['part']}: " if mark["part"] else ""
        self._tw.write(f"  {mark['target']}  {mark['identifier']}  {part}{mark['title']}")
        if report.outcome == "failed":
            self._tw.write(f"\n        [{mark['severity']}] {_reason(report)}\n        why it matters: {mark['why']}")
        elif how := dict(report.user_properties).get("how"):
            self._tw.write(f" ({how})")
        elif report.outcome == "skipped" and isinstance(report.longrepr, tuple):
            self._tw.write(f" ({report.longrepr[2].removeprefix('Skipped: ')})")
        self._tw.write("\n")

    def summary_failures(self) -> None:
        """Each failure has had its line."""

    def summary_errors(self) -> None:
        """Each error has had its line; a file that cannot be collected is shown whole."""
        for report in self.stats.get("error", []):
            self._tw.line(str(report.longrepr))

    def summary_stats(self) -> None:
        """The verdict of each host stands in its place."""

    def short_test_summary(self) -> None:
        """The verdict of each host."""
        for target in self.gone:
            self._tw.write(f"{target}: ")
            self._tw.write("cannot be reached\n", red=True)
        for target, counted in self.tally.items():
            bad = counted["failed"]
            self._tw.write(f"{target}: ")
            self._tw.write("not what its rig says" if bad else "conforms", **{"red" if bad else "green": True})
            self._tw.write(f" ({counted['passed']} ok, {bad} failed, {counted['skipped']} skipped)\n")


def _target(item: pytest.Item) -> str:
    return str(getattr(item, "callspec").params["target_name"])  # noqa: B009 (pytest sets it on parametrised items)


def _part(item: pytest.Item) -> str:
    params = getattr(item, "callspec").params  # noqa: B009
    for name in ("instance", "engine_name", "env", "weight"):
        if name in params:
            return label(params[name])
    return ""


def label(part: Any) -> str:
    """What an instance, engine or weight is called; one of a model's files as the catalogue names it."""
    name = str(part[0] if isinstance(part, tuple) else getattr(part, "name", part))
    return f"{name}:{part.path}" if getattr(part, "group", None) else name


def _reason(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    message = crash.message if crash else str(report.longrepr)
    return plain(message.removeprefix("checks.Drift: ").splitlines()[0])
