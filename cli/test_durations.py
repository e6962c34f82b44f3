"""How long tests took when it was last recorded: how they are shared out among processes, and what they may add up to.

The record is in the repository, and written by `rigwright test --record` on a machine that does nothing else. Nothing
judges how long anything takes on the machine that runs the tests.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

from rigwright.host.supported_systems import SYSTEMS
from rigwright.project_root import ROOT

RECORD_FILE = ROOT / "tests" / "durations.json"
# That share out a stage's tests on two cores: both cores wait for a service, a limit or a pause much of the time
PROCESSES = {"hosts": 4, "programs": 3}
DEFAULT_PROCESSES = 2
# seconds, on two cores, with base images and engines in the cache
BUDGETS = {"unit": 150, "test": 24 * 60, "all": 180 * 60}
"""Seconds on two idle cores. The goal of `test` is 12 minutes; 2026-11-29 it took 20, of them 16 for `hosts`."""
LONG_FILE = 3.0
"""Seconds over which a record has a file of unit tests in `programs`; tests of only `all` do not count."""
ALL_SUFFIX = " in all"
"""The suffix of the entry of a file of unit tests for those which run only in `rigwright test all`."""
MAX_ADDED_SECONDS = 60
"""Seconds that one change may add to `rigwright test`."""


@dataclass(frozen=True)
class RecordedDuration:
    """The record of a test, of a file of unit tests, of a fixture that tests share, or of a command."""

    seconds: float
    before: float
    """Seconds at the recording before; the same at the first one."""
    all_only: bool
    """Whether it runs in `rigwright test all` alone."""


@dataclass(frozen=True)
class DurationRecord:
    """Stage -> what runs in it -> what it took."""

    stages: Mapping[str, Mapping[str, RecordedDuration]]

    @classmethod
    def load(cls, path: Path = RECORD_FILE) -> DurationRecord:
        """Read a record; an empty one where there is none."""
        if not path.exists():
            return cls({})
        stages: dict[str, dict[str, tuple[float, float, bool]]] = json.loads(path.read_text())
        return cls({s: {name: RecordedDuration(*row) for name, row in parts.items()} for s, parts in stages.items()})

    def save(self, path: Path = RECORD_FILE) -> None:
        """Write it, a line a test, so that a change of it can be read."""
        stages = []
        for stage, parts in sorted(self.stages.items()):
            rows = [
                f"  {json.dumps(name)}: {json.dumps([round(t.seconds, 2), round(t.before, 2), t.all_only])}"
                for name, t in sorted(parts.items())
            ]
            stages.append(f"{json.dumps(stage)}: {{\n" + ",\n".join(rows) + "\n}")
        path.write_text("{\n" + ",\n".join(stages) + "\n}\n")

    def with_measured(
        self, stage: str, measured: Mapping[str, tuple[float, bool]], whole: bool, failed: bool = False
    ) -> DurationRecord:
        """The record with a stage's new figures.

        Args:
            stage: Its name.
            measured: Test -> seconds, and whether it runs in `all` alone.
            whole: Whether `all` was run, so that what was not measured is no more. Otherwise that is kept of what
                runs in `all` alone.
            failed: Whether something failed, so that all is kept that was not measured.
        """
        old = self.stages.get(stage, {})
        kept = {name: took for name, took in old.items() if failed or (took.all_only and not whole)}
        new = {
            name: RecordedDuration(seconds, old[name].seconds if name in old else 0.0 if old else seconds, all_only)
            for name, (seconds, all_only) in measured.items()
        }
        return DurationRecord({**self.stages, stage: {**kept, **new}}).with_programs_apart()

    def with_programs_apart(self) -> DurationRecord:
        """The record with each file of unit tests in the stage of its duration: `unit`, or `programs` if it is long."""
        both = {**self.stages.get("unit", {}), **self.stages.get("programs", {})}
        if not both:
            return self
        long = {name for name, took in both.items() if is_test(name) and took.seconds > LONG_FILE and not took.all_only}
        stages: dict[str, dict[str, RecordedDuration]] = {"unit": {}, "programs": {}}
        for name, took in both.items():
            programs = (
                name.removesuffix(ALL_SUFFIX) in long if is_test(name) else name in self.stages.get("programs", {})
            )
            stages["programs" if programs else "unit"][name] = took
        return DurationRecord({**self.stages, **stages})

    @property
    def programs(self) -> set[str]:
        """The files of unit tests that are the stage `programs`; all others are the stage `unit`."""
        return {name.removesuffix(ALL_SUFFIX) for name in self.stages.get("programs", {}) if is_test(name)}

    def restricted_to(self, stage: str, there: Mapping[str, bool]) -> DurationRecord:
        """The record as far as it is of what there is now: a test that was never recorded counts as a usual one.

        Args:
            stage: Its name.
            there: Test or fixture -> whether it runs in `all` alone, whatever it did when it was recorded.
        """
        old = self.stages.get(stage, {})
        new = RecordedDuration(mean_seconds(old), 0.0, False)
        known = {name: old.get(name, new) for name in there if name in old or is_test(name)}
        return DurationRecord(
            {**self.stages, stage: {n: replace(took, all_only=there[n]) for n, took in known.items()}}
        )

    def total_seconds(self, whole: bool) -> float:
        """Seconds that `rigwright test` takes, or all of it: the longer one of each stage's processes."""
        return sum(self._stage_seconds(stage, whole) for stage in self.stages)

    def budgeted(self, budget: str) -> float:
        """Seconds that a budget is held against: of `rigwright test`, of all of it, or of one stage."""
        return (
            self._stage_seconds(budget, whole=False) if budget in self.stages else self.total_seconds(budget == "all")
        )

    def _stage_seconds(self, stage: str, whole: bool) -> float:
        parts = {name: took for name, took in self.stages[stage].items() if whole or not took.all_only}
        tests = {name: took.seconds for name, took in parts.items() if is_test(name)}
        if not tests:
            return sum(took.seconds for took in parts.values())
        shares = partition_tests([(group_name(name), name) for name in tests], self.stages[stage], process_count(stage))
        longest = max(sum(tests[name] for name in one) for one in shares)
        # shared fixtures are made once, and the process that does not make them goes on with other tests
        return longest + sum(took.seconds for name, took in parts.items() if not is_test(name)) / process_count(stage)

    def added_seconds(self) -> float:
        """Seconds that the last recording has added to `rigwright test`."""
        before = {
            s: {n: RecordedDuration(t.before, t.before, t.all_only) for n, t in p.items()}
            for s, p in self.stages.items()
        }
        return self.total_seconds(whole=False) - DurationRecord(before).total_seconds(whole=False)

    def describe_growth(self, whole: bool, limit: int = 5) -> list[str]:
        """A line for each file and shared fixture that grew most since the recording before."""
        before, now = defaultdict[str, float](float), defaultdict[str, float](float)
        for parts in self.stages.values():
            for name, took in parts.items():
                if whole or not took.all_only:
                    file = name.partition("::")[0]
                    before[file] += took.before
                    now[file] += took.seconds
        rows = sorted(now, key=lambda file: (before[file] - now[file], file))
        return [f"{f}: {before[f]:.1f} s before, {now[f]:.1f} s now" for f in rows[:limit] if now[f] > before[f]]

    def budget_problems(self) -> list[str]:
        """The problems of it: a line for each budget that is exceeded, and the files that grew most."""
        said = []
        for what, budget in BUDGETS.items():
            total = self.budgeted(what)
            if total > budget:
                command = "rigwright test" + ("" if what == "test" else f" {what}")
                said.append(f"`{command}` takes {total:.0f} s, and may take {budget} s")
                of = DurationRecord({what: self.stages[what]}) if what in self.stages else self
                said += [f"  {line}" for line in of.describe_growth(what == "all")]
        return said


def process_count(stage: str) -> int:
    """How many run a stage's tests."""
    return PROCESSES.get(stage, DEFAULT_PROCESSES)


def is_test(name: str) -> bool:
    """Whether an entry is of a test, and not of a fixture or a command."""
    return ".py" in name


def mean_seconds(took: Mapping[str, RecordedDuration]) -> float:
    """Seconds that a test counts for which is not in a record: the mean of those that are."""
    return mean([row.seconds for name, row in took.items() if is_test(name)] or [1.0])


def group_name(name: str) -> str:
    """The smallest share: tests of one file on one release, which have fixtures in common."""
    file, _, test = name.removesuffix(ALL_SUFFIX).partition("::")
    release = next((one for one in SYSTEMS if one.startswith("debian-") and one in test), "")
    return f"{file} {release}"


def partition_tests(
    items: Iterable[tuple[str, str]], took: Mapping[str, RecordedDuration], number: int = DEFAULT_PROCESSES
) -> list[set[str]]:
    """Share tests out among processes, so that all take about as long: the longest group first, where least is to do.

    Args:
        items: Group and entry of each test; several tests may have one entry.
        took: The recorded durations; an unrecorded test counts as a usual one.
        number: How many processes there are.

    Returns:
        The groups' entries, a set a process. The same for the same arguments, so that each process finds its own.
    """
    new = mean_seconds(took)
    groups: dict[str, set[str]] = defaultdict(set)
    for name, entry in items:
        groups[name].add(entry)
    long = {
        name: sum(took[entry].seconds if entry in took else new for entry in sorted(entries))
        for name, entries in groups.items()
    }
    shares: list[set[str]] = [set() for _ in range(number)]
    work = [0.0] * number
    for name in sorted(groups, key=lambda name: (-long[name], name)):
        least = work.index(min(work))
        work[least] += long[name]
        shares[least] |= groups[name]
    return shares
