"""Drifts as data: each is one that can be had, and each check has one, or says what else turns it red."""

import re
from pathlib import Path

import pytest

from checks.automatic_repairs import REPAIRS
from checks.check_catalogue import list_checks
from checks.required_check_ids import OWNED
from checks.survey.sections import list_sections
from rigwright.project_root import ROOT
from tests.hosts import drift_tables
from tests.hosts.drift_tables import CHANGED_ONLY, DriftRow, load_undrifted_checks

KNOWN = {one.id for one in list_checks()}
RED = {identifier for row in drift_tables.load_drifts().values() for identifier in row.red}


def test_every_check_has_a_drift_or_something_else_that_turns_it_red() -> None:
    assert KNOWN - RED - CHANGED_ONLY - set(load_undrifted_checks()) == set()


def test_red_ids_are_checks() -> None:
    assert (RED | set(load_undrifted_checks())) - KNOWN == set()


def test_verified_and_repaired_ids_are_checks() -> None:
    assert (OWNED | set(REPAIRS)) - KNOWN == set()


def test_a_check_that_a_drift_turns_red_is_not_said_to_have_none() -> None:
    assert set(load_undrifted_checks()) & RED == set()


@pytest.mark.parametrize("identifier", sorted(load_undrifted_checks()))
def test_the_file_that_shows_a_check_red_instead_names_it(identifier: str) -> None:
    named = ROOT / load_undrifted_checks()[identifier].shown.partition(":")[0]
    files = [named] if named.is_file() else sorted(named.glob("*.py"))
    assert any(re.search(rf"\b{identifier}\b", file.read_text()) for file in files), named


@pytest.mark.parametrize("area", drift_tables.area_names())
def test_shell_of_drifts_can_be_read(area: str, tmp_path: Path) -> None:
    import subprocess

    for name, row in drift_tables.load_drifts(area).items():
        for script in (row.do, row.cure):
            done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{name}: {done.stderr}"


def drift(red: str, deploy: str = "heals", **more: object) -> DriftRow:
    cure = "" if deploy == "heals" else "true"
    return DriftRow.model_validate(
        {"box": "serving", "do": "true", "red": red.split(), "deploy": deploy, "cure": cure} | more
    )


def test_each_part_of_the_survey_says_what_it_cannot_see() -> None:
    assert all(section.blind for section in list_sections())
