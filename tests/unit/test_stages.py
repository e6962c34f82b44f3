"""The stages of `rigwright test`: every test has its place, and `all` leaves none out."""

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache

import pytest

from cli.test import EVERY, PROOFS, STAGES, select_stages, stage_commands, stage_rows
from cli.test_durations import ALL_SUFFIX, BUDGETS, DurationRecord, is_test, process_count
from rigwright.project_root import ROOT

# the tests of several pytests, by one of them
PROGRAM = """
import json, sys, pytest
class Seen:
    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, session, items):
        from tests.conftest import is_all_only, recorded_names, select_tests
        found.append(recorded_names(items))
        found.append({item.nodeid: is_all_only(item) for item in items})
        found.extend([item.nodeid for item in select_tests(items, *which)] for which in json.loads(sys.argv[2]))
found = []
pytest.main([sys.argv[1], "--collect-only", "-q"], plugins=[Seen()])
print(json.dumps(found), file=sys.stderr)
"""


@dataclass(frozen=True)
class CollectedStage:
    """The contents of a stage."""

    recorded: dict[str, bool]
    """Test or fixture, as it is recorded -> whether it runs in `all` alone."""
    every: dict[str, bool]
    whole: list[list[str]]
    """The tests of each process of `all`."""
    quick: list[list[str]]


@lru_cache
def collected(stage: str) -> CollectedStage:
    """Collect a stage's tests as its processes do, in one process for all of them."""
    folder = STAGES[stage].folder
    commands = [command for given in (True, False) for command in stage_commands(stage, given, ROOT, ROOT)]
    assert {command[-1] for command in commands} == {folder}
    options = [("--quick" in command, _option(command, "--share"), _option(command, "--stage")) for command in commands]
    program = [sys.executable, "-c", PROGRAM, folder, json.dumps(options)]
    said = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True).stderr
    recorded, every, *parts = json.loads(said.splitlines()[-1])
    return CollectedStage(recorded, every, parts[: process_count(stage)], parts[process_count(stage) :])


def _option(command: list[str], name: str) -> str | None:
    return next((word.partition("=")[2] for word in command if word.startswith(f"{name}=")), None)


@pytest.mark.parametrize(
    "stage",
    [
        # unit tests are many, and hardly any has the mark
        pytest.param(name, marks=[] if name == "hosts" else [pytest.mark.all_only])
        for name, stage in STAGES.items()
        if stage.folder
    ],
)
def test_all_runs_every_test_and_the_quick_run_all_but_the_marked_ones(stage: str) -> None:
    there = collected(stage)
    programs = DurationRecord.load().programs
    every = {
        name: all_only
        for name, all_only in there.every.items()
        if stage == "hosts" or (name.partition("::")[0] in programs) == (stage == "programs")
    }
    assert every
    assert sorted(name for part in there.whole for name in part) == sorted(every)
    quick = sorted(name for name, all_only in every.items() if not all_only)
    assert sorted(name for part in there.quick for name in part) == quick


def test_present_durations_keep_within_the_budgets() -> None:
    """Files that grew, or that have no record yet, are named where it does not."""
    record = DurationRecord.load()
    files = {str(path.relative_to(ROOT)): False for path in (ROOT / "tests/unit").glob("test_*.py")}
    there: dict[str, dict[str, bool]] = {"unit": {name: False for name in files if name not in record.programs}}
    for stage in ("unit", "programs"):
        there.setdefault(stage, {}).update(
            (name, took.all_only)
            for name, took in record.stages[stage].items()
            if not is_test(name) or name.removesuffix(ALL_SUFFIX) in files
        )
    # tests of only `all` count once `test all --record` has seen them
    hosts = {n: only for n, only in collected("hosts").recorded.items() if not only or n in record.stages["hosts"]}
    now = (
        record.restricted_to("hosts", hosts)
        .restricted_to("unit", there["unit"])
        .restricted_to("programs", there["programs"])
    )
    print(", ".join(f"{budget}: {now.budgeted(budget) / 60:.1f} min" for budget in BUDGETS))
    assert now.budget_problems() == []


def test_each_file_of_unit_tests_is_in_the_stage_of_its_recorded_duration() -> None:
    record = DurationRecord.load()
    assert record == record.with_programs_apart()
    assert record.programs


def test_every_file_of_tests_is_in_a_stage_or_a_proof() -> None:
    folders = {stage.folder for stage in STAGES.values()}
    folders |= {
        word for stage in EVERY.values() for commands in stage.commands for command in commands for word in command
    }
    files = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")]
    assert [path for path in files if not folders & {str(parent) for parent in path.parents}] == []


@pytest.mark.parametrize(
    ("asked", "stages", "whole"),
    [
        ((), ["lint", "types", "unit", "programs", "hosts"], False),
        (("all",), ["lint", "types", "unit", "programs", "hosts"], True),
        (("unit", "all"), ["unit"], True),
        (("lint", "types"), ["lint", "types"], False),
        (("dkms",), ["dkms"], False),
    ],
)
def test_requested_stages_run(asked: tuple[str, ...], stages: list[str], whole: bool) -> None:
    found, all_of_it = select_stages(asked)
    assert (all_of_it, [name for name in found if name in stages]) == (whole, stages)
    assert not set(found) & set(PROOFS) - set(asked)


def test_the_page_and_the_help_say_the_same() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    for name, *row in stage_rows():
        assert f"| `{name}` | {' | '.join(row)} |" in page


def test_the_page_for_contributors_is_short() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_text().splitlines()) <= 80
