"""What `rigwright test` runs: every test has its place, and `all` leaves none out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from cli import test
from cli.test import EVERY, PROOFS, STAGES, chosen, shares, table
from rigwright.inventory import ROOT
from tests.conftest import entry

# what several pytests would run, by one of them
PROGRAM = """
import json, sys, pytest
class Seen:
    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, session, items):
        from tests.conftest import all_only, selected
        found.append({item.nodeid: all_only(item) for item in items})
        found.extend([item.nodeid for item in selected(items, *which)] for which in json.loads(sys.argv[2]))
found = []
pytest.main([sys.argv[1], "--collect-only", "-q"], plugins=[Seen()])
print(json.dumps(found), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "stage",
    [
        # unit tests are many, and hardly any has the mark
        pytest.param(name, marks=[pytest.mark.all_only] if name == "unit" else [])
        for name, stage in STAGES.items()
        if stage.folder
    ],
)
def test_all_runs_every_test_and_the_quick_run_all_but_the_marked_ones(stage: str, tmp_path: Path) -> None:
    whole, quick = (shares(STAGES[stage], given, tmp_path, tmp_path) for given in (True, False))
    options = [
        ("--quick" in command, next(word for word in command if word.startswith("--share")).partition("=")[2])
        for command in (*whole, *quick)
    ]
    assert {command[-1] for command in (*whole, *quick)} == {STAGES[stage].folder}
    program = [sys.executable, "-c", PROGRAM, STAGES[stage].folder, json.dumps(options)]
    said = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True).stderr
    every, *rest = json.loads(said.splitlines()[-1])
    assert every
    assert sorted(name for part in rest[: len(whole)] for name in part) == sorted(every)
    assert sorted(name for part in rest[len(whole) :] for name in part) == sorted(n for n in every if not every[n])


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
    assert entry(cast(pytest.Item, item)) == recorded


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
        ((), ["lint", "types", "unit", "hosts"], False),
        (("all",), ["lint", "types", "unit", "hosts"], True),
        (("unit", "all"), ["unit"], True),
        (("lint", "types"), ["lint", "types"], False),
        (("dkms",), ["dkms"], False),
    ],
)
def test_what_is_asked_for_is_run(asked: tuple[str, ...], stages: list[str], whole: bool) -> None:
    found, all_of_it = chosen(asked)
    assert (all_of_it, [name for name in found if name in stages]) == (whole, stages)
    assert not set(found) & set(PROOFS) - set(asked)


def test_the_page_and_the_help_say_the_same() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    for name, *row in table():
        assert f"| `{name}` | {' | '.join(row)} |" in page


def test_what_both_processes_made_is_counted_where_it_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = (
        {"a.py::test": (30.0, False), "fixture first_run": (60.0, False), "fixture home": (9.0, True)},
        {"b.py::test": (40.0, True), "fixture first_run": (2.5, False), "fixture home": (1.0, False)},
    )

    def ran(commands: list[list[str]]) -> bool:
        for command, rows in zip(commands, seen, strict=True):
            (file,) = [word.partition("=")[2] for word in command if word.startswith("--measure")]
            Path(file).write_text(json.dumps(rows))
        return False

    monkeypatch.setattr(test, "_run", ran)
    assert test.measured("hosts", True, [], tmp_path) == {
        "a.py::test": (30.0, False),
        "b.py::test": (40.0, True),
        "fixture first_run": (60.0, False),
        "fixture home": (9.0, False),
    }
