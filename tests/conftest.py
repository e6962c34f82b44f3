"""Common parts of all tests: which of them run, in which of several processes, and how long each took."""

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from cli.prog_name import PROG_NAME_VARIABLE
from cli.test_durations import ALL_SUFFIX, DurationRecord, group_name, is_test, partition_tests
from rigwright.project_root import ROOT

# Where this is set, as in many containers, pytest would rewrite the assertions of all tests again in each process, and
# each interpreter that a test starts compile all that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of `rigwright test`."""
    parser.addoption("--quick", action="store_true", help="leave out what runs in `rigwright test all` alone")
    parser.addoption("--share", metavar="N/M", help="the Nth of M shares of the tests, by recorded durations")
    parser.addoption("--stage", choices=["unit", "programs"], help="unit tests of this stage alone, by the same record")
    parser.addoption("--measure", type=Path, metavar="FILE", help="write how long each test took")


def pytest_configure(config: pytest.Config) -> None:
    # tests name the command as it is documented, whatever has called them
    os.environ.pop(PROG_NAME_VARIABLE, None)
    # how long an example takes says nothing on a machine that does something else, too
    settings.register_profile("whole", settings.get_profile("default"), deadline=None)
    settings.register_profile("quick", settings.get_profile("whole"), max_examples=50)
    settings.load_profile("quick" if config.getoption("--quick") else "whole")
    if file := config.getoption("--measure"):
        config.pluginmanager.register(DurationRecorder(file))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept = select_tests(items, config.getoption("--quick"), config.getoption("--share"), config.getoption("--stage"))
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


def select_tests(
    items: list[pytest.Item], quick: bool, which: str | None, of_stage: str | None = None
) -> list[pytest.Item]:
    """The tests that a process runs, in its order."""
    kept = [item for item in items if not (quick and is_all_only(item))]
    if not kept or not (which or of_stage):
        return kept
    if stage_name(kept[0]) == "unit":
        mine = unit_files(which, quick, of_stage)
        return [item for item in kept if item.nodeid.partition("::")[0] in mine]
    number, _, of = (which or "1/1").partition("/")
    record = DurationRecord.load().stages.get(stage_name(kept[0]), {})
    entries = partition_tests([(group_name(record_name(item)), record_name(item)) for item in kept], record, int(of))[
        int(number) - 1
    ]
    # shared fixtures are made once: those that need a converged host come first in one process, last in the others
    return sorted(
        (item for item in kept if record_name(item) in entries),
        key=lambda item: ("first_run" in getattr(item, "fixturenames", ())) == (number != "1"),
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    # to import all unit tests takes a process as long as to run a thousand of them
    which, of_stage = config.getoption("--share"), config.getoption("--stage")
    if not (which or of_stage):
        return None
    if collection_path.parent != ROOT / "tests/unit" or not collection_path.match("test_*.py"):
        return None
    return (
        str(collection_path.relative_to(ROOT)) not in unit_files(which, config.getoption("--quick"), of_stage) or None
    )


@cache
def unit_files(which: str | None, quick: bool, of_stage: str | None) -> set[str]:
    """The files of unit tests that a process runs, by recorded durations: of a stage's a share, or all."""
    number, _, of = (which or "1/1").partition("/")
    record = DurationRecord.load()
    took = {**record.stages.get("unit", {}), **record.stages.get("programs", {})}
    files = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests/unit").glob("test_*.py"))
    files = [file for file in files if of_stage in (None, "programs" if file in record.programs else "unit")]
    more = [] if quick else [file + ALL_SUFFIX for file in files if file + ALL_SUFFIX in took]
    return partition_tests([(group_name(name), name) for name in (*files, *more)], took, int(of))[int(number) - 1]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    # there are fewer groups of tests than processes: another one has them
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.getoption("--share"):
        session.exitstatus = pytest.ExitCode.OK


def is_all_only(item: pytest.Item) -> bool:
    """Whether a test runs in `rigwright test all` alone."""
    return item.get_closest_marker("all_only") is not None


def stage_name(item: pytest.Item) -> str:
    """The stage of `rigwright test` that a test is of."""
    return item.nodeid.split("/")[1]


def record_name(item: pytest.Item) -> str:
    """The record's name of a test: unit tests, which are many and short, by file; tests of `all` only, apart."""
    if stage_name(item) != "unit":
        return item.nodeid
    return item.nodeid.partition("::")[0] + (ALL_SUFFIX if is_all_only(item) else "")


def recorded_names(items: Iterable[pytest.Item]) -> dict[str, bool]:
    """The record's names of tests and their fixtures, and whether all of one's tests run only in `all`."""
    found: dict[str, bool] = {}
    for item in items:
        release = getattr(item, "callspec", None) and item.callspec.params.get("release")  # type: ignore[attr-defined]
        for name in (
            record_name(item),
            *(_shared_fixture_name(name, release) for name in getattr(item, "fixturenames", ())),
        ):
            found[name] = found.get(name, True) and is_all_only(item)
    return found


class DurationRecorder:
    """Measures tests that pass, and beside them the fixtures that several share."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.took: dict[str, float] = defaultdict(float)
        self.only: dict[str, bool] = {}
        self.failed: set[str] = set()
        self.inner = [0.0]
        """Seconds in fixtures that are shared, of the test or of the fixture around them."""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.only = recorded_names(session.items)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        begun, red = time.monotonic(), item.session.testsfailed
        self.inner = [0.0]
        try:
            return (yield)
        finally:
            self.took[record_name(item)] += time.monotonic() - begun - self.inner[0]
            if item.session.testsfailed > red:
                self.failed.add(record_name(item))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, Any, Any]:
        if fixturedef.scope == "function":
            return (yield)
        begun = time.monotonic()
        self.inner.append(0.0)
        try:
            return (yield)
        finally:
            took = time.monotonic() - begun
            within = self.inner.pop()
            self.inner[-1] += took
            callspec = getattr(request._pyfuncitem, "callspec", None)
            name = _shared_fixture_name(fixturedef.argname, callspec and callspec.params.get("release"))
            self.took[name] = max(self.took[name], took - within)

    def pytest_sessionfinish(self) -> None:
        rows = {
            name: (seconds, self.only.get(name, True))
            for name, seconds in self.took.items()
            if name not in self.failed and (seconds >= 0.01 or is_test(name))
        }
        self.file.write_text(json.dumps(rows))


def _shared_fixture_name(fixture: str, release: object) -> str:
    return f"fixture {fixture} {release or ''}".rstrip()
