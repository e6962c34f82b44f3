"""Reports of checks in formats of others: CTRF and ARF, each valid by its schema and read by an importer."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
from click.testing import CliRunner
from lxml import etree
from openscap_report import scap_results_parser
from openscap_report.scap_results_parser import SCAPResultsParser

from checks import runner
from checks.change_review.fingerprint_diff import HostChange
from checks.results import HostReport, Report, Result, Verdict
from cli import arf_report, ctrf_report, main
from cli.arf_report import write_arf_reports
from cli.check_reports import write_check_reports
from cli.ctrf_report import render_ctrf

CTRF_SCHEMA = json.loads((Path(__file__).parent / "data/ctrf/ctrf-schema-0.0.json").read_text())
SCHEMAS = Path(scap_results_parser.__file__).parent / "schemas"
HOSTILE = "</xccdf:message>\x1b[31m\x00\ud800\uffff&amp;\"'"
COUNTED = HostChange("sudo", "/etc/sudoers.d/ops", "new")
LISTED = HostChange("logging", "/etc/rsyslog.conf", "changed", counts=False)


def result(identifier: str, verdict: Verdict, part: str = "", **more: Any) -> Result:
    return Result(identifier, f"title of {identifier}", "high", "why", part, verdict, 0.0125, **more)


CHECKS = [
    result("S01", "ok", "chat"),
    result("S01", "fail", "code", expected="ready", found=HOSTILE, cure="deploy", cause="stopped:code"),
    result("B01", "skip", note="not declared"),
    result("X08", "changed", changes=(COUNTED,), change_label="sudo rules"),
    result("X09", "changed", changes=(LISTED,), change_label="logging"),
    result("K01", "ok"),
]
REPORT = Report(
    *(2, "2026-11-29T10:00:00Z", "0.1.0", "/home/ana/boxes/rig.py", False, "not reached", 1.5),  # type: ignore[arg-type]
    [
        HostReport("box1", "not as declared", "a" * 64, 3, "2026-11-29T10:00:00Z", {"kernel": "6.1"}, CHECKS),
        HostReport("box2", "not reached", "a" * 64, None, "", {}),
    ],
)


def test_every_verdict_has_a_status() -> None:
    assert {*get_args(Verdict)} <= ctrf_report.STATUSES.keys()
    assert {*get_args(Verdict)} <= arf_report.RESULTS.keys()
    assert {*arf_report.RESULTS.values()} <= {*arf_report.WORST_FIRST}


def test_ctrf_is_valid_and_counts_each_result() -> None:
    found = json.loads(render_ctrf(REPORT))
    jsonschema.Draft7Validator(CTRF_SCHEMA, format_checker=jsonschema.FormatChecker()).validate(found)
    summary, tests = found["results"]["summary"], found["results"]["tests"]
    assert {name: summary[name] for name in ("tests", "passed", "failed", "skipped", "pending", "other")} == {
        **{"tests": 7, "passed": 2, "failed": 3, "skipped": 1, "pending": 0, "other": 1},
    }
    assert summary["stop"] - summary["start"] == 1500
    assert len({one["id"] for one in tests}) == len(tests)
    raw = {(one["suite"][0], one["labels"]["check"]): one for one in tests if "labels" in one}
    assert raw["box1", "X09"]["status"] == "other"
    assert raw["box1", "X08"]["message"] == f"changed: sudo rules: {COUNTED.describe()}"
    assert raw["box1", "B01"]["message"] == "not declared"
    assert raw["box1", "S01"]["extra"]["cause"] == "stopped:code"
    (gone,) = [one for one in tests if one["suite"] == ["box2"]]
    assert (gone["status"], gone["rawStatus"]) == ("failed", "not reached")


def test_a_test_keeps_its_id_in_the_next_report() -> None:
    ids = [[one["id"] for one in json.loads(render_ctrf(REPORT))["results"]["tests"]] for _ in range(2)]
    assert ids[0] == ids[1]


def test_half_a_character_in_a_part_ends_no_report(tmp_path: Path) -> None:
    host = replace(REPORT.hosts[0], checks=[result("S01", "fail", part) for part in ("\ud800", "\udfff")])
    report = replace(REPORT, hosts=[host])
    one, other = json.loads(render_ctrf(report))["results"]["tests"]
    assert one["id"] != other["id"]
    write_arf_reports(tmp_path / "arf", report)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The ARF reports of both hosts."""
    write_arf_reports(tmp_path / "arf", REPORT)
    return tmp_path / "arf"


def test_arf_is_valid_with_its_benchmark_and_result(folder: Path) -> None:
    arf, xccdf = (
        etree.XMLSchema(etree.parse(SCHEMAS / path))
        for path in ("arf/1.1/asset-reporting-format_1.1.0.xsd", "xccdf/1.2/xccdf_1.2.xsd")
    )
    assert sorted(path.name for path in folder.iterdir()) == ["box1.arf.xml", "box2.arf.xml"]
    for path in folder.iterdir():
        document = etree.parse(path)
        arf.assertValid(document)
        for name in ("Benchmark", "TestResult"):
            xccdf.assertValid(etree.ElementTree(document.find(f".//{{{arf_report.SPACES['xccdf']}}}{name}")))


def read_arf(path: Path) -> dict[str, str]:
    """Check -> result, as an importer reads it."""
    rules = SCAPResultsParser(path.read_bytes()).parse_report().rules
    return {name.removeprefix("xccdf_org.rigwright_rule_"): rule.result for name, rule in rules.items()}


def test_an_importer_reads_the_worst_result_of_each_check(folder: Path) -> None:
    assert read_arf(folder / "box1.arf.xml") == {
        **{"reached": "pass", "S01": "fail", "B01": "notapplicable", "X08": "fail", "X09": "informational"},
        "K01": "pass",
    }
    # a host that was not reached passes nothing
    assert {*read_arf(folder / "box2.arf.xml").values()} == {"unknown"}
    text = (folder / "box1.arf.xml").read_text()
    assert ">50.00</xccdf:score>" in text
    assert "expected: ready\nfound: &lt;/xccdf:message&gt;\ufffd[31m\ufffd\ufffd\ufffd&amp;amp;" in text


class StandInFrame:
    """Stands in for the plugin of a run: it has a report."""

    def build_report(self) -> Report:
        return REPORT


def test_one_run_writes_all_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame: Any = StandInFrame()
    write_check_reports(frame, page=None, ctrf=str(tmp_path / "c.json"), arf=tmp_path / "arf")
    assert json.loads((tmp_path / "c.json").read_text())["reportFormat"] == "CTRF"
    assert len([*(tmp_path / "arf").iterdir()]) == 2


def test_the_verb_hands_the_results_of_its_run_to_each_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_inventory: str, *_options: str, writers: list[Callable[[Any], None]], **_more: object) -> int:
        for write in writers:
            write(StandInFrame())
        return 1

    monkeypatch.setattr(runner, "run_checks", run)
    (tmp_path / "rig.py").touch()
    words = ["check", str(tmp_path / "rig.py"), "--ctrf", str(tmp_path / "c.json"), "--arf", str(tmp_path / "arf")]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 1, done.output
    assert (tmp_path / "c.json").exists()
    assert (tmp_path / "arf/box2.arf.xml").exists()


@pytest.mark.parametrize("other", ["--accept", "--history", "--serving"])
@pytest.mark.parametrize("report", ["--ctrf", "--arf"])
def test_reports_need_a_run_of_checks(other: str, report: str, tmp_path: Path) -> None:
    (tmp_path / "rig.py").touch()
    refused = CliRunner().invoke(main, ["check", str(tmp_path / "rig.py"), other, report, str(tmp_path / "out")])
    assert (refused.exit_code, f"{other} allows only" in refused.output) == (2, True)
