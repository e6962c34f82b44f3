"""What the survey's module of units finds of ours in others' unit files."""

from pathlib import Path

import pytest

from checks.survey.host import units
from checks.survey.section import TRY

NAMED = "[Service]\nUser=rigwright-chat\n"


@pytest.fixture
def transient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(units, "FOLDERS", (str(tmp_path),))
    monkeypatch.setattr(units, "TRANSIENT", str(tmp_path))
    monkeypatch.setattr(units, "USERS", ())
    monkeypatch.setattr(units, "SCRIPTS", ())
    return tmp_path


@pytest.mark.parametrize(
    ("name", "found"),
    [(f"{TRY}00000000-rigwright-chat.service", 0), ("another.service", 1), ("another-rw-check-0.service", 1)],
)
def test_another_run_of_checks_is_nobodys_unit(transient: Path, name: str, found: int) -> None:
    (transient / name).write_text(NAMED)
    lines = [{"path": str(transient / name), "line": "User=rigwright-chat"}] * found
    assert units._mentions(["rigwright-chat.service"], "rigwright", TRY) == lines


def test_what_is_no_transient_unit_is_no_run_of_checks(transient: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "TRANSIENT", "/run/systemd/transient")
    (transient / f"{TRY}0.service").write_text(NAMED)
    assert len(units._mentions(["rigwright-chat.service"], "rigwright", TRY)) == 1
