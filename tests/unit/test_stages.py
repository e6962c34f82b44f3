"""What `rigwright test` runs: every test has its place, and `all` leaves none out."""

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from click.testing import CliRunner

from cli import test
from cli.test import EVERY, PROOFS, STAGES, select_stages, stage_commands, stage_rows
from cli.test_durations import ALL_SUFFIX, BUDGETS, DurationRecord, RecordedDuration, is_test, process_count
from rigwright.paths import ROOT
from tests.conftest import record_name

# what several pytests would run, by one of them
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
    """What there is of a stage."""

    recorded: dict[str, bool]
    """Test or fixture, as it is recorded -> whether it runs in `all` alone."""
    every: dict[str, bool]
    whole: list[list[str]]
    """What each process of `all` runs."""
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


def test_what_there_is_now_keeps_within_the_budgets() -> None:
    """Files that grew, or that nobody has recorded yet, are named where it does not."""
    record = DurationRecord.load()
    files = {str(path.relative_to(ROOT)): False for path in (ROOT / "tests/unit").glob("test_*.py")}
    there: dict[str, dict[str, bool]] = {"unit": {name: False for name in files if name not in record.programs}}
    for stage in ("unit", "programs"):
        there.setdefault(stage, {}).update(
            (name, took.all_only)
            for name, took in record.stages[stage].items()
            if not is_test(name) or name.removesuffix(ALL_SUFFIX) in files
        )
    # what `all` alone runs counts once `test all --record` has seen it
    hosts = {n: only for n, only in collected("hosts").recorded.items() if not only or n in record.stages["hosts"]}
    now = (
        record.restricted_to("hosts", hosts)
        .restricted_to("unit", there["unit"])
        .restricted_to("programs", there["programs"])
    )
    print(", ".join(f"{budget}: {now.budgeted(budget) / 60:.1f} min" for budget in BUDGETS))
    assert now.budget_problems() == []


@pytest.mark.parametrize(
    ("nodeid", "only", "recorded"),
    [
        ("tests/unit/test_a.py::test_x[1]", False, "tests/unit/test_a.py"),
        ("tests/unit/test_a.py::test_y", True, "tests/unit/test_a.py in all"),
        ("tests/hosts/test_a.py::test_x[debian-13]", True, "tests/hosts/test_a.py::test_x[debian-13]"),
    ],
)
def test_what_a_test_is_recorded_as(nodeid: str, only: bool, recorded: str) -> None:
    item = SimpleNamespace(nodeid=nodeid, get_closest_marker=lambda name: only or None)
    assert record_name(cast("pytest.Item", item)) == recorded


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
def test_what_is_asked_for_is_run(asked: tuple[str, ...], stages: list[str], whole: bool) -> None:
    found, all_of_it = select_stages(asked)
    assert (all_of_it, [name for name in found if name in stages]) == (whole, stages)
    assert not set(found) & set(PROOFS) - set(asked)


def test_the_page_and_the_help_say_the_same() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    for name, *row in stage_rows():
        assert f"| `{name}` | {' | '.join(row)} |" in page


def test_what_processes_made_is_counted_where_it_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = (
        {"a.py::test": (30.0, False), "fixture first_run": (60.0, False), "fixture home": (9.0, True)},
        {"b.py::test": (40.0, True), "fixture first_run": (2.5, False), "fixture home": (1.0, False)},
        {"fixture home": (2.0, True)},
        {},
    )

    def ran(commands: list[list[str]]) -> bool:
        for command, rows in zip(commands, seen, strict=True):
            (file,) = [word.partition("=")[2] for word in command if word.startswith("--measure")]
            Path(file).write_text(json.dumps(rows))
        return False

    monkeypatch.setattr(test, "_run_commands", ran)
    took = {
        "a.py::test": (30.0, False),
        "b.py::test": (40.0, True),
        "fixture first_run": (60.0, False),
        "fixture home": (9.0, False),
    }
    assert test.run_stage("hosts", True, [], tmp_path) == (took, False)


def test_what_passed_is_recorded_though_something_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def ran(commands: list[list[str]]) -> bool:
        asked.append(commands[0][-1])
        for command in commands:
            for word in command:
                if word.startswith("--measure="):
                    name = f"{command[-1]}/test_a.py::test{len(asked)}"
                    Path(word.partition("=")[2]).write_text(json.dumps({name: (1.5, False)}))
        return asked[-1] == "tests/unit"

    monkeypatch.setattr(test, "_run_commands", ran)
    file = tmp_path / "durations.json"
    old = DurationRecord({"unit": {"tests/unit/test_red.py": RecordedDuration(1, 1, False)}})
    old.save(file)
    monkeypatch.setattr(DurationRecord.load.__func__, "__defaults__", (file,))  # type: ignore[attr-defined]
    monkeypatch.setattr(DurationRecord.save, "__defaults__", (file,))
    done = CliRunner().invoke(test.test, ["unit", "hosts", "--record"])
    assert (done.exit_code, asked) == (1, ["tests/unit", "tests/hosts"])
    assert "unit: failed" in done.output
    found = DurationRecord.load(file).stages
    assert set(found["unit"]) == {"tests/unit/test_red.py", "tests/unit/test_a.py::test1"}
    assert set(found["hosts"]) == {"tests/hosts/test_a.py::test2"}
    asked.clear()
    assert CliRunner().invoke(test.test, ["unit", "hosts"]).exit_code == 1
    assert asked == ["tests/unit"]
    asked.clear()
    assert CliRunner().invoke(test.test, ["all", "unit", "hosts"]).exit_code == 1
    assert asked == ["tests/unit", "tests/hosts"]


MIXED = """
import time
import pytest
@pytest.mark.parametrize("red", [True, False])
def test_both(red):
    time.sleep(0.02)
    assert not red
def test_parts(subtests):
    with subtests.test("one"):
        assert 0
def test_good():
    pass
"""


def test_a_test_that_fails_is_not_measured(tmp_path: Path) -> None:
    tests = tmp_path / "tests" / "hosts"
    tests.mkdir(parents=True)
    (tests / "test_mixed.py").write_text(MIXED)
    file = tmp_path / "took"
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.conftest",
        f"--measure={file}",
        "--rootdir",
        tmp_path,
        tests,
    ]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert {name.partition("::")[2] for name in json.loads(file.read_text())} == {"test_both[False]", "test_good"}
