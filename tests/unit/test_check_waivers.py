"""Waivers of failing checks: their refusals, the values and days that they cover, and each output that has them."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from checks import Drift, ItemText
from checks.automatic_repairs import DriftedCheck
from checks.check_catalogue import list_checks
from checks.post_deploy_checks import _is_waived
from checks.remedy import instruction
from checks.result_waivers import apply_waivers
from checks.results import AppliedWaiver, HostReport, Report, Result, host_verdict
from cli.html_page import describe_host, render_check_page
from cli.rollout_steps import describe_check_fault, describe_waived_checks
from rigwright.check_waivers import NEVER_WAIVED, describe_observed, find_deploy_faults, find_ended, format_day
from rigwright.inventory import load_rig
from rigwright.model.check_ids import CHECK_IDS
from rigwright.model.waiver_schema import WaiverEntry
from rigwright.plan.self_check_declaration import render_declaration
from rigwright.speed_baselines import BaselineHistory
from roles.self_check.host.observed_host import Host
from roles.self_check.host.run import build_state, describe_change, render_metrics
from tests.unit.samples import OperatorFolder, sample_entry, sample_rig
from tests.unit.test_check_framework import OWN, CheckRunFolder, CheckRunResult

LATER = "2099-01-31"
DISK = {
    "check": "Z03",
    "observed": "one\\x1b[2J (expected two disks of 4 TB)",
    "owner": "ana",
    "reason": "the second disk is ordered",
    "until": LATER,
}
SHELL = {"check": "B01", "observed": "a", "owner": "ana", "reason": "an agent needs it", "until": LATER}


@pytest.fixture
def box(tmp_path: Path) -> CheckRunFolder:
    made = CheckRunFolder(tmp_path)
    (tmp_path / "rig.py").write_text("")
    made.write_own_checks(OWN)
    return made


def run(box: CheckRunFolder, monkeypatch: pytest.MonkeyPatch, *options: str, **changes: str) -> CheckRunResult:
    monkeypatch.setenv("WAIVERS", json.dumps([DISK | changes]))
    return box.check("--only=Z03", *options)


def test_the_ids_are_those_of_all_shipped_checks() -> None:
    assert sorted(one.id for one in list_checks()) == sorted(CHECK_IDS), "update rigwright/model/check_ids.py"
    assert set(NEVER_WAIVED) <= CHECK_IDS


def test_every_mistake_of_all_waivers_is_refused_at_once(tmp_path: Path) -> None:
    lines = OperatorFolder(tmp_path).refusal_lines(
        waivers=[
            SHELL | {"check": "B91"},
            {key: value for key, value in SHELL.items() if key != "owner"} | {"check": "X02"},
            SHELL | {"until": "2020-01-31"},
            SHELL | {"until": "2027-02-30", "reason": ""},
            SHELL | {"expires": LATER},
            SHELL,
        ]
    )
    text = "\n".join(lines)
    for expected in (
        'waivers[0].check: there is no check "B91"; did you mean "B01"?',
        "waivers[1].check: X02 is refused: its entries are never accepted, so no waiver covers it",
        "waivers[1].owner: missing",
        'waivers[2].until: "2020-01-31" is refused: must be',
        "waivers[3].until: '2027-02-30' is refused: must be a day, such as 2026-06-10",
        "waivers[3].reason: '' is refused: must be 1 to 200 characters on one line",
        'waivers[4].expires: unknown key; did you mean "until"?',
        "waivers[5]: is refused: waivers[2] has the same check, part and observed value",
    ):
        assert expected in text, expected


def test_a_check_of_the_operator_may_be_waived(tmp_path: Path) -> None:
    folder = OperatorFolder(tmp_path)
    folder.write("checks/test_own.py", OWN)
    ((_, data),) = folder.load_group({"box": sample_entry(waivers=[DISK])})
    assert [one.check for one in load_rig(data["rig"]).waivers] == ["Z03"]


def test_a_waiver_that_has_ended_refuses_deploys_and_nothing_else(tmp_path: Path) -> None:
    ((_, data),) = OperatorFolder(tmp_path).load_group({"box": sample_entry(waivers=[SHELL | {"until": "2020-01-31"}])})
    rig = load_rig(data["rig"])
    (fault,) = find_deploy_faults(rig)
    assert str(fault).startswith(f'{rig.inventory}: box.waivers[0].until: "2020-01-31" is refused: must be ')
    assert find_ended(rig, 0.0) == ()


def test_a_waived_failure_is_a_result_of_its_own_in_each_output(
    box: CheckRunFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done = run(box, monkeypatch, f"--junitxml={tmp_path / 'x.xml'}")
    assert done.status == 0
    assert done.out.splitlines() == [
        "  WAIVED  box  Z03  a disk is there",
        "        observed  one\\x1b[2J (expected two disks of 4 TB)",
        f"        waived    until {LATER} by ana: the second disk is ordered",
        "box: conforms, 1 failure is waived (0 ok, 0 failed, 1 waived, 0 skipped)",
    ]
    suite = ET.parse(tmp_path / "x.xml").getroot()[0]
    assert (suite.attrib["failures"], suite.attrib["skipped"]) == ("0", "1")
    assert f"[waived] until {LATER} by ana: the second disk is ordered" in ET.tostring(suite, encoding="unicode")
    report = run(box, monkeypatch, "--json").report
    assert report["verdict"] == "as declared"
    (found,) = report["hosts"][0]["checks"]
    assert found["verdict"] == "waived"
    assert found["observed"] == [DISK["observed"]]
    assert found["waivers"] == [{key: DISK[key] for key in ("observed", "owner", "reason", "until")}]


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"observed": "two (expected two disks of 4 TB)"}, ""),
        ({"check": "Z05"}, ""),
        ({"part": "chat"}, ""),
        ({"until": "2020-01-31"}, "the waiver by ana ended on 2020-01-31"),
    ],
)
def test_another_value_check_part_or_day_fails(
    box: CheckRunFolder, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], note: str
) -> None:
    done = run(box, monkeypatch, "--json", **changes)
    assert done.status == 1
    assert (done.results["Z03"]["verdict"], done.results["Z03"]["note"]) == ("fail", note)


def test_a_check_that_reaches_no_verdict_is_never_waived(box: CheckRunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAIVERS", json.dumps([DISK | {"check": "Z05", "observed": "KeyError: 'nothing"}]))
    done = box.check("--only=Z05", "--json")
    assert (done.status, done.results["Z05"]["verdict"], done.results["Z05"]["observed"]) == (1, "fail", [])


def test_a_waiver_without_a_failure_is_named(box: CheckRunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAIVERS", json.dumps([SHELL | {"check": "Z02"}]))
    assert "box: waivers without such a failure, to be removed: Z02" in " ".join(box.check().out.split())


def test_each_of_several_values_needs_a_waiver_and_moments_are_no_part_of_them() -> None:
    drift = Drift("none", ItemText.from_items(["a", "b", "c"], shown=1), instruction("remove them"), "2027-01-01 08:00")
    failed = Result("B01", "t", "high", "w", "chat", "fail", 0.1)
    waivers = [
        WaiverEntry.model_validate(SHELL | {"part": "chat", "observed": f"{name} (expected none)"}) for name in "abcd"
    ]

    def verdict(number: int, today: str = "2027-01-01") -> Result:
        return apply_waivers(failed, drift.items, waivers[:number], today)

    assert [verdict(number).verdict for number in (0, 2, 3, 4)] == ["fail", "fail", "waived", "waived"]
    assert verdict(3).observed == ("a (expected none)", "b (expected none)", "c (expected none)")
    assert verdict(4, LATER).verdict == "waived"
    assert verdict(4, "2099-02-01").note.count("ended on 2099-01-31") == 3
    assert host_verdict([verdict(4)]) == "as declared"


def test_the_checks_after_a_deploy_apply_the_same_waivers() -> None:
    drift = Drift("none", "a", instruction("remove it"))
    waiver = WaiverEntry.model_validate(SHELL | {"observed": describe_observed("none", "a")})
    failed = DriftedCheck("B01", "t", "", "", drift)
    assert _is_waived(failed, [waiver], "2027-01-01")
    assert not _is_waived(failed, [waiver], "2099-02-01")
    drift.is_waivable = False
    assert not _is_waived(failed, [waiver], "2027-01-01")


def test_a_page_and_a_rollout_distinguish_waived_failures() -> None:
    applied = (AppliedWaiver("v", "ana", "an agent needs it", LATER),)
    waived = Result("B01", "t", "high", "w", "", "waived", 0.1, found="f", observed=("v",), waivers=applied)
    host = HostReport("box", "as declared", "a" * 64, 1, "", {}, [waived])
    report = Report(2, "2027-01-15T08:00:00Z", "1", "rig.py", False, "as declared", 1.0, [host])
    page = render_check_page(report, [describe_host("box", 1, host, None, BaselineHistory())])
    assert "fails, waived" in page
    assert f"waived until {LATER} by ana: an agent needs it" in page
    failed = {"id": "S01", "part": "chat", "title": "it runs", "found": "f", "note": "", "verdict": "fail"}
    text = json.dumps({"hosts": [{"verdict": "not as declared", "checks": [failed, failed | {"verdict": "waived"}]}]})
    assert describe_check_fault(text) == "1 check: S01 it runs: f"
    assert describe_waived_checks(text) == "S01 chat"
    assert describe_waived_checks("[]") == ""


def self_check(waivers: list[list[str]], old: dict[str, Any], *texts: str) -> dict[str, Any]:
    host = Host({"waivers": waivers})
    for text in texts:
        host.fail("U02", "critical", "", text)
    return build_state(old, host, 1_800_000_000.0, "")


def test_the_self_check_of_a_box_applies_waivers_until_their_last_day() -> None:
    waiver = ["U02", "", "drop-in /etc/x.conf", format_day(1_800_000_000.0)]
    plain = self_check([], {}, "drop-in /etc/x.conf")
    state = self_check([waiver], plain, "drop-in /etc/x.conf")
    assert (state["outcome"], state["failing"], [one["text"] for one in state["waived"]]) == ("ok", [], [waiver[2]])
    change = describe_change(plain, state)
    assert change is not None
    assert (change["failed"], change["recovered"], len(change["waived"])) == ([], [], 1)
    assert 'rigwright_self_check_waived{check="U02",level="critical",part=""} 1' in render_metrics(state)
    assert "rigwright_self_check_failed{" not in render_metrics(state)
    assert describe_change(state, self_check([waiver], state, "drop-in /etc/x.conf")) is None
    ended = self_check([[*waiver[:3], "2020-01-01"]], state, "drop-in /etc/x.conf")
    assert (ended["outcome"], len(ended["failing"]), ended["waived"]) == ("failing", 1, [])
    assert len((describe_change(state, ended) or {})["failed"]) == 1
    other = self_check([waiver], state, "drop-in /etc/x.conf", "drop-in /etc/y.conf")
    assert [one["text"] for one in other["failing"]] == ["drop-in /etc/y.conf"]
    gone = describe_change(state, self_check([waiver], state)) or {}
    assert (len(gone["recovered"]), gone["failed"]) == (1, [])


def test_the_declaration_of_a_box_has_its_waivers() -> None:
    rig = sample_rig()
    assert "waivers" not in json.loads(render_declaration(rig, "debian-12"))
    waived = replace(rig, waivers=(WaiverEntry.model_validate(SHELL),))
    assert json.loads(render_declaration(waived, "debian-12"))["waivers"] == [["B01", "", "a", LATER]]


def test_a_host_with_a_waived_failure_is_checked_by_the_next_deploy_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from checks.post_deploy_checks import HostAgreement
    from tests.unit.test_deploy_agreement import Run

    run = Run(monkeypatch, HostAgreement(passed=90, waived=("B01",)))
    run.agreement.settle([SimpleNamespace(name="box")], ["box"])
    assert run.sealed == []
    assert run.lines == ["box: waived by the inventory: B01"]
    assert run.agreement.results["box"].remains == []
