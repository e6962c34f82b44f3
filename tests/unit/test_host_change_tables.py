"""Changes of a host: rows that can be run, reports that are compared, and totals that count them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.host_changes.change_results import ChangeResult, judge_case, render_drifts, render_totals
from tests.hosts.host_changes.change_tables import (
    FOLDER,
    HARMLESS_FILE,
    ChangeCase,
    Expectation,
    harmless_path,
    load_changes,
    new_change_paths,
    parse_change,
)
from tests.hosts.host_changes.report_findings import HostFinding, Outcome, new_findings, parse_findings

ROW = {"do": "true", "undo": "true", "area": "cron", "reaches": "yes"}


def finding(outcome: Outcome = "changed", check: str = "X01", text: str = "x: new", author: str = "") -> HostFinding:
    return HostFinding(check, "cron", outcome, text, author)


@pytest.mark.parametrize("path", [harmless_path(), *new_change_paths()], ids=lambda path: path.stem)
def test_rows_of_changes_are_shell(path: Path) -> None:
    scripts = [text for case in load_changes(path).values() for text in (case.prepare, case.do, case.undo)]
    done = [subprocess.run(["sh", "-n"], input=text, capture_output=True, text=True, check=False) for text in scripts]
    assert [one.stderr for one in done if one.returncode] == []


def test_numbers_of_changes() -> None:
    assert {path.stem: len(load_changes(path)) for path in new_change_paths()} == dict.fromkeys(
        ("first", "second", "third"), 100
    )
    assert len(load_changes(harmless_path())) >= 40
    assert {path.stem for path in FOLDER.glob("*.toml")} == {"first", "second", "third", HARMLESS_FILE}


@pytest.mark.parametrize(
    ("table", "named"),
    [
        (ROW | {"reaches": "maybe"}, "reaches"),
        (ROW | {"undo": ""}, "undo"),
        (ROW | {"area": "Cron jobs"}, "area"),
        (ROW | {"red": "X01"}, "red"),
        ({"do": "true", "expect": "nothing"}, "expect"),
        ({"do": "true", "expect": "listed", "prepare": "true", "undo": "true"}, "undo"),
        ("true", "dictionary"),
    ],
)
def test_an_invalid_row_is_refused_with_its_key(table: object, named: str) -> None:
    with pytest.raises(ValueError, match=rf"(?s)first\.toml: \['words'\]: .*{named}"):
        parse_change("first", "words", table)


def report(*checks: dict[str, Any], verdict: str = "changed") -> dict[str, Any]:
    return {"hosts": [{"verdict": verdict, "checks": list(checks)}]}


def test_findings_of_a_report() -> None:
    change = {"key": "/etc/cron.d/x", "change": "new", "now": "file 644", "entry_class": "cron", "author": "root, ssh"}
    found = parse_findings(
        report(
            {"id": "U01", "part": "", "verdict": "ok", "found": ""},
            {"id": "S16", "part": "chat", "verdict": "fail", "found": "process 4711"},
            {
                "id": "X01",
                "part": "",
                "verdict": "changed",
                "found": "",
                "changes": [change | {"counts": True}, change | {"counts": False, "author": ""}],
            },
        )
    )
    assert found == [
        HostFinding("S16", "chat", "fails", "process #"),
        HostFinding("X01", "cron", "changed", "/etc/cron.d/x: new: file 644", "root, ssh"),
        HostFinding("X01", "cron", "listed", "/etc/cron.d/x: new: file 644"),
    ]


def test_a_host_out_of_reach_is_a_finding() -> None:
    (found,) = parse_findings(report(verdict="not reached"))
    assert (found.outcome, found.label) == ("fails", "not reached")


def test_findings_of_two_looks() -> None:
    first, second = finding(text="/a: new"), finding(text="/b: new")
    assert new_findings([first], [finding(text="/a: new", author="later"), second]) == [second]


@pytest.mark.parametrize(
    ("reaches", "outcome", "verdict"),
    [
        (True, "nothing", "MISSED"),
        (False, "nothing", "MISSED"),
        (True, "listed", "listed"),
        (False, "listed", "detected"),
        (True, "changed", "detected"),
        (True, "fails", "detected"),
    ],
)
def test_verdict_for_a_new_change(reaches: bool, outcome: Outcome, verdict: str) -> None:
    findings = [] if outcome == "nothing" else [finding("listed"), finding(outcome)]
    assert judge_case(ChangeCase("x", "true", reaches=reaches), findings) == verdict


@pytest.mark.parametrize(
    ("expect", "outcome", "verdict"),
    [
        ("explained", "nothing", "as expected"),
        ("explained", "listed", "ALARMS"),
        ("listed", "listed", "as expected"),
        ("listed", "changed", "ALARMS"),
        ("changed", "nothing", "as expected"),
        ("changed", "changed", "as expected"),
        ("changed", "fails", "FAILS"),
        ("explained", "fails", "FAILS"),
    ],
)
def test_verdict_for_a_harmless_change(expect: Expectation, outcome: Outcome, verdict: str) -> None:
    findings = [] if outcome == "nothing" else [finding(outcome)]
    assert judge_case(ChangeCase("x", "true", expect=expect), findings) == verdict


def test_totals_count_valid_changes_and_list_the_others() -> None:
    results = [
        ChangeResult("first: a", "cron", True, "detected", [finding(author="root")]),
        ChangeResult("first: b", "cron", True, "detected", [finding("fails", "S16")]),
        ChangeResult("first: c", "pam", False, "MISSED"),
        ChangeResult("first: d", "pam", True, "invalid", error="exit status 1"),
        ChangeResult("harmless: e", "harmless", True, "FAILS", [finding("fails")]),
    ]
    lines = render_totals(results)
    assert [line for line in lines if line and not line.startswith("median")] == [
        "detected: 2 of 3 (66.7 %)",
        "of those that reach the served models: 2 of 2 (100.0 %)",
        "by the fingerprint: 1 of 3 (33.3 %)",
        "author named: 1 of 2 (50.0 %) of the detected",
        "cron  2 of 2",
        "pam   0 of 1",
        "not detected: 1",
        "    pam: first: c",
        "harmless: 1; 1 fail, 0 are reported more strongly than expected, 1 alarm",
        "not as expected: 1",
        "    harmless: harmless: e",
        "invalid: 1",
        "    pam: first: d",
    ]


def test_drifts_by_the_checks_that_fail_without_a_fingerprint() -> None:
    results = [
        ChangeResult("rights: a", "rights", True, "detected", [finding()], red=("M16",)),
        ChangeResult("rights: b", "rights", True, "detected", [finding("fails", "M14")], red=("M14", "M16")),
        ChangeResult("rights: c", "rights", True, "detected", [finding("fails", "X02")], red=("M13",)),
    ]
    lines = render_drifts(results)
    assert lines[0] == "drifts that the fingerprint reports: 2 of 3 (66.7 %)"
    assert [line.split() for line in lines[3:6]] == [["M13", "1", "1", "all"], ["M14", "1", "0"], ["M16", "2", "1"]]
    assert "    rights: rights: b M14 M16" in lines
