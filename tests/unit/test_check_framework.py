"""The frame of the checks: a user's own next to ours, which of them run, their messages, and the exit status."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from checks import check_catalogue, runner
from checks.results import Report, render_report_schema
from cli.reference import SCHEMA
from rigwright.project_root import ROOT

OWN = """
import pytest
from checks import Drift, check, expect
from checks.survey.accounts import ACCOUNTS

@check("Z01", "users are known", severity="critical", why="nobody knows them")
def test_accounts(survey, rig):
    survey.read(ACCOUNTS)

@check("Z02", "it is plain", severity="low", why="it is not")
def test_plain(host, rig):
    assert host.check == "a host"

@check("Z03", "a disk is there", severity="high", why="nothing is kept", blind="disks that lie about themselves")
def test_disk():
    raise Drift("two disks of 4 TB", "one\\x1b[2J", "`mount /data`", "2026-02-01")

@check("Z04", "it is left out", severity="high", why="there is none")
def test_left_out(instance):
    pytest.skip("not today")

@check("Z05", "it comes to a verdict", severity="low", why="it does not")
def test_crashes():
    {}["nothing\\n  ok  box  S01"]
"""


@dataclass(frozen=True)
class CheckRunResult:
    """The end of a run of checks."""

    status: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        """Its JSON."""
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def results(self) -> dict[str, dict[str, Any]]:
        """Of its only host, by id."""
        (host,) = self.report["hosts"]
        return {one["id"]: one for one in host["checks"]}


@dataclass(frozen=True)
class CheckRunFolder:
    """An operator's folder."""

    folder: Path

    def check(self, *options: str, hosts: str = "box", gone: str = "", generation: str = "7") -> CheckRunResult:
        """Run checks over its inventory."""
        words = runner.pytest_arguments(str(self.folder / "rig.py"), *options)
        environment = {
            "HOSTS": hosts,
            "GONE": gone,
            "GENERATION": generation,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "COLUMNS": "80",
        }
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "tests.unit.frame_plugin", *words],
            cwd=ROOT,
            env=os.environ | environment,
            capture_output=True,
            text=True,
        )
        return CheckRunResult(done.returncode, done.stdout, done.stderr)

    def write_own_checks(self, text: str, name: str = "test_own.py") -> None:
        """Write checks of its own."""
        path = self.folder / "checks" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


@pytest.fixture
def box(tmp_path: Path) -> CheckRunFolder:
    """A folder with checks of its own."""
    (tmp_path / "rig.py").touch()
    made = CheckRunFolder(tmp_path)
    made.write_own_checks(OWN)
    return made


MINE = "--only=Z01,Z02,Z03 Z04,Z05"


def test_a_report_has_what_each_check_found_and_its_schema_says_so(box: CheckRunFolder) -> None:
    ran = box.check(MINE, "--json")
    assert ran.status == 1, ran.err
    TypeAdapter(Report).validate_json(ran.out, strict=True)
    (host,) = ran.report["hosts"]
    assert (ran.report["verdict"], host["verdict"]) == ("not as declared", "not as declared")
    assert (host["generation"], host["clock"], len(host["lock"])) == (7, "2026-02-03T04:05:06Z", 64)
    assert {name: one["verdict"] for name, one in ran.results.items()} == {
        "Z01": "fail",
        "Z02": "ok",
        "Z03": "fail",
        "Z04": "skip",
        "Z05": "fail",
    }
    assert ran.results["Z01"]["found"] == "it died"
    disk = {key: ran.results["Z03"][key] for key in ("expected", "found", "cure", "since", "severity", "part")}
    assert disk == {
        "expected": "two disks of 4 TB",
        "found": "one\N{REPLACEMENT CHARACTER}[2J",
        "cure": "`mount /data`",
        "since": "2026-02-01",
        "severity": "high",
        "part": "",
    }
    assert ran.results["Z03"]["steps"] == [{"where": "person", "text": "`mount /data`"}]
    parts = {one["part"]: one["note"] for one in host["checks"] if one["id"] == "Z04"}
    assert parts == {"chat": "not today", "code": "not today"}
    assert ran.results["Z05"]["found"].startswith("KeyError: 'nothing")


def test_each_check_has_its_lines_of_eighty_columns_and_no_traceback(box: CheckRunFolder) -> None:
    ran = box.check(MINE)
    lines = ran.out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert "Traceback" not in ran.out + ran.err
    at = lines.index("  FAIL  box  Z03  a disk is there")
    assert lines[at + 1 : at + 7] == [
        "        severity  high",
        "        expected  two disks of 4 TB",
        "        found     one\N{REPLACEMENT CHARACTER}[2J",
        "        since     2026-02-01",
        "        fix       `mount /data`",
        "        why       nothing is kept",
    ]
    assert [line for line in lines if "S01" in line and line.startswith("  ok")] == []
    # those that hold are counted, as those that do not apply are
    assert [line for line in lines if line.startswith(("  ok", "  skip"))] == []
    assert lines[-1] == "box: does not match its rig (1 ok, 3 failed, 2 skipped)"
    assert "do not apply" not in ran.out


def test_a_host_that_takes_long_is_named_with_what_it_has_not_answered(box: CheckRunFolder) -> None:
    ran = box.check(MINE, "--json", gone="box slow")
    assert "box: waiting for requests, weights\n" in ran.err
    assert ran.results["Z02"]["verdict"] == "ok"
    assert "waiting" not in box.check(MINE).err


def test_a_line_each_comes_where_it_is_asked_for(box: CheckRunFolder) -> None:
    lines = box.check(MINE, "-v").out.splitlines()
    words = [line.split()[0] for line in lines if "  box  Z" in line]
    # a line each as they are decided, and those that do not hold once more with what to do
    assert words == ["FAIL", "ok", "FAIL", "skip", "skip", "FAIL", *["FAIL"] * 3]
    assert lines[-2] == "box: do not apply: own 2"


def test_failures_of_a_cause_are_counted_below_it_and_others_stay(box: CheckRunFolder) -> None:
    ran = box.check("--only=B01,S01,Z03,Z05", generation="")
    assert ran.status == 1
    lines = ran.out.splitlines()
    assert " ".join(ran.out.split()).startswith(
        f"CAUSE box not deployed: no generation is current fix `rigwright deploy {box.folder}/rig.py` "
        "and 3 consequences: B01, S01; -v lists them FAIL box Z03"
    )
    # the operator's own checks are about more than a deploy
    assert [line.split()[2] for line in lines if line.startswith("  FAIL")] == ["Z03", "Z05"]
    assert lines[-1] == "box: does not match its rig (0 ok, 5 failed, 0 skipped)"
    told = box.check("--only=B01,S01,Z03,Z05", "-v", generation="").out
    assert "    FAIL  box  S01  chat: the instance is running" in told
    assert "          expected  an answer about " in told


def test_a_report_has_causes_and_all_results(box: CheckRunFolder) -> None:
    ran = box.check("--only=B01,S01,Z03", "--json", generation="")
    TypeAdapter(Report).validate_json(ran.out, strict=True)
    (host,) = ran.report["hosts"]
    (cause,) = host["causes"]
    assert (cause["id"], cause["results"]) == ("not-deployed", ["B01", "S01 chat", "S01 code"])
    assert {(one["id"], one["part"], one["cause"]) for one in host["checks"]} == {
        ("B01", "", "not-deployed"),
        ("S01", "chat", "not-deployed"),
        ("S01", "code", "not-deployed"),
        ("Z03", "", ""),
    }


def test_a_junit_report_names_hosts_and_ids(box: CheckRunFolder) -> None:
    ran = box.check(MINE, f"--junitxml={box.folder / 'report.xml'}")
    assert ran.out.strip()
    assert "report.xml" not in ran.out
    cases = {case.get("name", "")[:3]: case for case in ET.parse(box.folder / "report.xml").iter("testcase")}
    assert sorted(cases) == ["Z01", "Z02", "Z03", "Z04", "Z05"]
    # the family's schema
    assert {key for case in cases.values() for key in case.attrib} == {"classname", "name", "time"}
    assert {child.tag for case in cases.values() for child in case} == {"failure", "skipped"}
    failure = cases["Z03"].find("failure")
    assert cases["Z03"].get("classname") == "box"
    assert failure is not None
    assert failure.text == failure.get("message")
    assert "expected two disks of 4 TB, found one" in str(failure.text)


def test_checks_of_ours_are_in_a_junit_report_each_once(box: CheckRunFolder) -> None:
    box.check("--only=B01,S01", f"--junitxml={box.folder / 'report.xml'}")
    cases = [case.get("name", "") for case in ET.parse(box.folder / "report.xml").iter("testcase")]
    assert [name[:10] for name in sorted(cases)] == ["B01 each s", "S01 chat: ", "S01 code: "]


def test_the_gravest_alone_are_run_where_that_is_asked_for(box: CheckRunFolder) -> None:
    ran = box.check(MINE, "--severity=high", "--json")
    assert {"Z01", "Z03", "Z04"} == set(ran.results)


@pytest.mark.parametrize("gone", ["two before", "two meanwhile"])
def test_a_host_out_of_reach_is_distinguished_from_one_that_does_not_conform(box: CheckRunFolder, gone: str) -> None:
    ran = box.check("--only=Z02", "--json", hosts="one two", gone=gone)
    assert ran.status == 3
    assert {host["name"]: host["verdict"] for host in ran.report["hosts"]} == {
        "one": "as declared",
        "two": "not reached",
    }
    assert ran.report["verdict"] == "not reached"


REMEDIED = """
from checks import DEPLOY, check, expect
from checks.remedy import host_command, instruction

@check("Z01", "it is deployed", severity="low", why="it is not")
def test_deployed(rig):
    expect(1, 2, host_command("rm -- {}", "/srv/a file") + DEPLOY + instruction("look"))
"""


def test_a_remedy_is_printed_as_it_runs_and_names_its_host_where_there_are_several(box: CheckRunFolder) -> None:
    box.write_own_checks(REMEDIED)
    inventory = box.folder / "rig.py"
    lines = box.check("--only=Z01").out.splitlines()
    first = lines.index("        fix       as root on box: rm -- '/srv/a file'")
    # no line break of ours is in a command
    assert len(lines[first + 1]) > 80
    assert lines[first + 1 : first + 3] == [f"        fix       rigwright deploy {inventory}", "        fix       look"]
    hosts = box.check("--only=Z01", "--json", hosts="one two").report["hosts"]
    assert [host["checks"][0]["steps"][1] for host in hosts] == [
        {"where": "here", "text": f"rigwright deploy --limit {name} {inventory}"} for name in ("one", "two")
    ]


def test_all_checks_of_a_host_are_judged_while_another_one_is_out_of_reach(box: CheckRunFolder) -> None:
    ran = box.check("--json", hosts="one two", gone="two before")
    assert ran.status == 3
    found = {one["found"] for host in ran.report["hosts"] for one in host["checks"]}
    assert [one for one in found if "torn down" in one] == []


def test_a_host_is_judged_while_others_have_not_answered(box: CheckRunFolder) -> None:
    ran = box.check("--only=Z02", "--json", hosts="one two", gone="two later")
    assert (ran.status, [host["verdict"] for host in ran.report["hosts"]]) == (0, ["as declared"] * 2)


def test_hosts_that_are_all_out_of_reach_are_named(box: CheckRunFolder) -> None:
    ran = box.check("--only=Z02", gone="box before")
    assert (ran.status, ran.out) == (3, "box: cannot be reached\n")


@pytest.mark.parametrize(
    ("options", "own", "said"),
    [
        (["--only=X99"], "", 'there is no check "X99"'),
        pytest.param(["--severity=worse"], "", "worse", marks=pytest.mark.all_only),
        pytest.param([], OWN.replace("Z05", "S01"), "S01 is taken by", marks=pytest.mark.all_only),
        ([], OWN.replace("Z05", "Z01"), "Z01 is taken by test_accounts"),
        pytest.param(
            [], OWN.replace("Z05", "x 5"), "must be 1 to 4 capitals and 2 or 3 digits", marks=pytest.mark.all_only
        ),
        ([], "def test_bare(): pass\n", "has no @check"),
        pytest.param([], "import nothing_of_this_name\n", "nothing_of_this_name", marks=pytest.mark.all_only),
    ],
)
def test_an_impossible_run_is_refused_before_anything_is_judged(box, options, own, said):
    if own:
        box.write_own_checks(own)
    ran = box.check(*options)
    assert ran.status not in runner.STATUS.values()
    assert said in ran.out + ran.err
    assert "conforms" not in ran.out


def test_a_package_of_own_checks_is_refused_for_it_would_be_taken_for_ours(box: CheckRunFolder) -> None:
    box.write_own_checks("", "__init__.py")
    with pytest.raises(ValueError, match="is refused: remove it"):
        runner.pytest_arguments(str(box.folder / "rig.py"))


def test_a_check_is_explained_with_what_it_looks_at_and_cannot_see(box: CheckRunFolder) -> None:
    said = check_catalogue.explain_check("Z01", box.folder / "rig.py")
    assert "the survey's accounts: Users and groups" in said
    assert "disks that lie about themselves" in check_catalogue.explain_check("Z03", box.folder / "rig.py")
    with pytest.raises(check_catalogue.UnknownCheck, match='there is no check "X77"'):
        check_catalogue.explain_check("X77", box.folder / "rig.py")
    box.write_own_checks("import nothing_of_that_name\n")
    with pytest.raises(check_catalogue.UnknownCheck, match=r"checks/test_.*\.py: .*nothing_of_that_name"):
        check_catalogue.explain_check("Z01", box.folder / "rig.py")


def test_every_check_of_ours_says_what_it_looks_at() -> None:
    found = check_catalogue.list_checks()
    assert len({one.id for one in found}) == len(found)
    for one in found:
        assert all(check_catalogue.describe_section(section) for section in one.sections), one.id


def test_the_schema_that_is_shipped_is_the_reports() -> None:
    assert json.loads(SCHEMA.read_text()) == render_report_schema()
