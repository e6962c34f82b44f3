"""Self-check results as a survey reads them: stale, missing, or in disagreement with checks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checks.survey.host import self_check as survey_program
from checks.survey.self_check import (
    SelfCheckFinding,
    SelfCheckResult,
    SelfCheckSurvey,
    describe_stale,
    describe_stale_full_read,
    find_disagreements,
)

NOW = 1_800_000_000.0
OK = SelfCheckSurvey(NOW, NOW - 9e5, NOW - 9e5, SelfCheckResult(NOW - 60, "ok", []), NOW - 9e4, "", {})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, ""),
        ({"result": SelfCheckResult(NOW - 3000, "ok", [])}, "the last run 50 minutes ago"),
        ({"result": SelfCheckResult(NOW - 3000, "ok", []), "booted": NOW - 100}, ""),
        ({"result": None}, "no run since the deploy"),
        ({"result": None, "booted": NOW - 9e6, "deployed": NOW - 100}, ""),
        ({"unreadable": "ValueError"}, "a result that is not readable: ValueError"),
    ],
)
def test_a_result_is_stale_after_twenty_minutes(changes: dict[str, Any], says: str) -> None:
    assert describe_stale(replace(OK, **changes)) == says


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, ""),
        ({"full_read": NOW - 40 * 3600}, "the last read 40 hours ago"),
        ({"full_read": NOW - 40 * 3600, "booted": NOW - 3600}, ""),
        ({"full_read": 0.0}, "no read since the deploy"),
        ({"full_read": 0.0, "deployed": NOW - 30 * 3600}, ""),
        ({"full_read": NOW + 40 * 3600}, "a record of a read 40 hours from now"),
        ({"full_read": float("nan")}, "the last read nan hours ago"),
    ],
)
def test_a_nightly_read_is_stale_after_a_day_and_a_half(changes: dict[str, Any], says: str) -> None:
    assert describe_stale_full_read(replace(OK, **changes)) == says


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ('{"complete": 5, "files": 1}', 5.0),
        ('{"changed": [], "next": "/usr/bin/x"}', 0.0),
        ("[", 0.0),
        ('{"complete": []}', 0.0),
    ],
)
def test_the_survey_reads_when_the_last_nightly_read_was_complete(tmp_path: Path, text: str, complete: float) -> None:
    (tmp_path / "full_read.json").write_text(text)
    none = str(tmp_path / "none")
    asked = {"result": none, "declaration": none, "files": [], "folder": none}
    assert survey_program.look({**asked, "full_read": str(tmp_path / "full_read.json")})["full_read"] == complete


@pytest.mark.parametrize(
    ("age", "verdicts", "active", "disagrees"),
    [
        (900, {"U02": "ok"}, "inactive", True),
        (900, {"U02": "fail"}, "inactive", False),
        (900, {}, "inactive", False),
        (900, {"U02": "ok"}, "activating", False),
        (100, {"U02": "ok"}, "inactive", False),
    ],
    ids=["another verdict", "the same verdict", "not run from here", "a run has begun", "a young failure"],
)
def test_a_failure_that_lasts_and_is_not_seen_from_here_is_a_disagreement(
    age: int, verdicts: dict[str, str], active: str, disagrees: bool
) -> None:
    failing = [SelfCheckFinding("U02", "drop-in /x", NOW - age)]
    found = replace(OK, result=SelfCheckResult(NOW - 60, "failing", failing))
    assert [one.check for one in find_disagreements(found, verdicts, active)] == ["U02"] * disagrees


def test_files_beside_the_program_are_listed(tmp_path: Path) -> None:
    """Compiled modules among them: Python takes one in place of its source."""
    for name in ("run.py", "__pycache__/run.cpython-313.pyc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    asked = {
        "result": str(tmp_path / "none"),
        "full_read": str(tmp_path / "none"),
        "declaration": str(tmp_path / "none"),
        "files": [str(tmp_path / "run.py")],
        "folder": str(tmp_path),
    }
    assert survey_program.look(asked)["others"] == [str(tmp_path / "__pycache__/run.cpython-313.pyc")]
