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
    find_disagreements,
)

NOW = 1_800_000_000.0
OK = SelfCheckSurvey(NOW, NOW - 9e5, NOW - 9e4, SelfCheckResult(NOW - 60, "ok", []), "", {})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, ""),
        ({"result": SelfCheckResult(NOW - 3000, "ok", [])}, "the last run 50 minutes ago"),
        ({"result": SelfCheckResult(NOW - 3000, "ok", []), "booted": NOW - 100}, ""),
        ({"result": None}, "no run since the deploy"),
        ({"result": None, "deployed": NOW - 100}, ""),
        ({"unreadable": "ValueError"}, "a result that is not readable: ValueError"),
    ],
)
def test_a_result_is_stale_after_twenty_minutes(changes: dict[str, Any], says: str) -> None:
    assert describe_stale(replace(OK, **changes)) == says


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
        "declaration": str(tmp_path / "none"),
        "files": [str(tmp_path / "run.py")],
        "folder": str(tmp_path),
    }
    assert survey_program.look(asked)["others"] == [str(tmp_path / "__pycache__/run.cpython-313.pyc")]
