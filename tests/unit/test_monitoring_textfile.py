"""The files on a box for its observers: verdicts of checks, and whether the host is being changed."""

import shutil
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from checks import result_metrics
from checks.results import HostReport, Result
from rigwright.model.monitoring_schema import Monitoring
from rigwright.monitoring.textfile import check_textfile, deploy_textfile, render_check_metrics
from roles import root_shell
from tests.unit.samples import sample_rig

PROMTOOL = shutil.which("promtool")
HOSTILE = 'a"} 1\nrigwright_check_failed{check="S01",level="critical",part="\\'
TELLS = sample_rig(monitoring=Monitoring(address="10.0.0.5"))


def test_findings_are_reported_with_time_and_subject() -> None:
    text = render_check_metrics(1790000000.9, 3, {"ok": 200, "fail": 1}, [("S01", "high", "chat")] * 2)
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        "rigwright_check_finished_seconds 1790000000",
        "rigwright_generation 3",
        'rigwright_checks{verdict="fail"} 1',
        'rigwright_checks{verdict="ok"} 200',
        'rigwright_check_failed{check="S01",level="high",part="chat"} 1',
    ]
    assert "rigwright_generation" not in render_check_metrics(1.0, None, {}, [])


def test_advisories_are_a_figure_a_state_where_they_were_counted() -> None:
    text = render_check_metrics(1.0, None, {}, [], {"open": 2, "closed": 5})
    assert text.splitlines()[-2:] == ['rigwright_advisories{state="closed"} 5', 'rigwright_advisories{state="open"} 2']
    assert "advisories" not in render_check_metrics(1.0, None, {}, [], {}) + render_check_metrics(1.0, None, {}, [])


def test_changes_are_a_figure_a_check() -> None:
    text = render_check_metrics(1.0, None, {}, [], changed={"X08": 2, "X24": 1})
    lines = text.splitlines()[-2:]
    assert lines == ['rigwright_check_changed{check="X08"} 2', 'rigwright_check_changed{check="X24"} 1']
    assert "changed" not in render_check_metrics(1.0, None, {}, [])


def test_a_part_of_any_name_is_one_label() -> None:
    text = render_check_metrics(1.0, None, {}, [("S01", "high", HOSTILE)])
    assert len([line for line in text.splitlines() if not line.startswith("#")]) == 2
    if PROMTOOL:
        done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
        assert "error while linting" not in done.stderr


def test_a_box_without_exporters_has_no_textfile() -> None:
    first_rig = sample_rig()
    box_rig = sample_rig()
    assert (
        check_textfile(first_rig.roots, first_rig.monitoring),
        deploy_textfile(box_rig.roots, box_rig.monitoring),
    ) == ("", "")
    assert check_textfile(TELLS.roots, TELLS.monitoring) == "/var/lib/rigwright/metrics/check.prom"


def left(monkeypatch: pytest.MonkeyPatch, folder: Path) -> str:
    """Leave verdicts in a folder of this machine; returns why that went wrong."""

    def run(target: Any, command: str, stdin: str, limit: float, *, whole: float) -> root_shell.RootCommandResult:
        done = subprocess.run(["sh", "-c", command], input=stdin.encode(), capture_output=True, check=False)
        return root_shell.RootCommandResult(done.returncode, done.stdout, done.stderr)

    monkeypatch.setattr(result_metrics.root_shell, "run_command", run)
    monkeypatch.setattr(result_metrics, "check_textfile", lambda *_: str(folder / "check.prom"))
    red = Result("S01", "t", "high", "w", "chat", "fail", 0.1)
    report = HostReport("box", "not as declared", "", 3, "", {}, [red])
    return result_metrics.write_check_metrics(SimpleNamespace(rig=TELLS, target=None), report, time.time())  # type: ignore[arg-type]


def test_verdicts_take_the_place_of_earlier_ones_and_others_may_read_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "check.prom"
    path.write_text("old")
    assert left(monkeypatch, tmp_path) == ""
    assert "rigwright_generation 3" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o644
    assert [one.name for one in tmp_path.iterdir()] == ["check.prom"]


def test_a_box_that_was_not_deployed_to_yet_gets_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert left(monkeypatch, tmp_path / "none") == "no deployed program reads them"
    assert list(tmp_path.iterdir()) == []
