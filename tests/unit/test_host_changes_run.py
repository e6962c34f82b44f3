"""Changes of a host in a run of checks: lines, exit status, and reports."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from checks import runner
from checks.change_review.accepted_entries import accept_entries, accepted_path, save_accepted
from checks.results import Report
from checks.survey.fingerprint import FingerprintEntry, HostFingerprint
from rigwright.project_root import ROOT

SUDO = FingerprintEntry(
    "sudo",
    "/etc/sudoers.d/ops",
    f"file 440 root root {'a' * 32}",
    "r1",
    since=1795846320.0,
    author="while alice was logged in",
    difference=["+%ops ALL = (ALL) ALL"],
)
ROOTS = FingerprintEntry("accounts", "user toor", "uid 0", "r2", problem="a second account with uid 0")
RULES = tuple(replace(SUDO, key=f"/etc/sudoers.d/{number:02}") for number in range(12))
ONLY = "--only=X01,X02,X03,X04,X05,X08,X09"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def answer(*entries: FingerprintEntry, serial: int = 0, digest: str = "") -> HostFingerprint:
    return HostFingerprint([*entries], [], {}, {}, serial, digest)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run checks over one host that has `entries` and, unless None, has accepted `accepted`."""
    inventory = tmp_path / "rig.py"
    inventory.touch()

    def run_checks(
        *options: str,
        entries: tuple[FingerprintEntry, ...],
        accepted: tuple[FingerprintEntry, ...] | None = (),
        keep: bool = True,
    ) -> "subprocess.CompletedProcess[str]":
        told = answer(*entries)
        if accepted is not None:
            made = accept_entries(answer(*accepted), "box", 0, "ana", "2026-11-28T06:12:00Z")
            told = answer(*entries, serial=made.serial, digest=made.digest)
            if keep:
                save_accepted(accepted_path(str(inventory), "box"), made)
        names = {
            "HOSTS": "box",
            "GONE": "",
            "GENERATION": "7",
            "COLUMNS": "80",
            "FINGERPRINT": json.dumps(asdict(told)),
        }
        words = runner.pytest_arguments(str(inventory), ONLY, *options)
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "tests.unit.frame_plugin", *words],
            cwd=ROOT,
            env=os.environ | names | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            check=False,
        )

    return run_checks


def test_a_change_has_a_line_and_its_difference_where_it_is_asked_for(run: Run) -> None:
    ran = run(entries=(SUDO,))
    assert ran.returncode == 1, ran.stderr
    lines = ran.stdout.splitlines()
    assert lines[:2] == [
        "  CHANGED  box  X08  sudo rules: /etc/sudoers.d/ops: new (file 440 root root, since 2026-11-28 06:12, "
        "while alice was logged in)",
        "box: conforms, 1 change is not accepted (6 ok, 0 failed, 1 changed, 0 skipped)",
    ]
    assert lines[2].startswith("box: after a review: `rigwright check /")
    assert lines[2].endswith("/rig.py --accept`")
    assert len(lines) == 3
    assert "            +%ops ALL = (ALL) ALL" in run("-v", entries=(SUDO,)).stdout.splitlines()


def test_changes_of_a_class_are_counted_beyond_eight_and_come_after_failures(run: Run) -> None:
    ran = run(entries=(ROOTS, *RULES)).stdout
    lines = ran.splitlines()
    heads = [line.split()[0] for line in lines if line.startswith(("  FAIL  ", "  CHANGED  "))]
    assert heads == ["FAIL", *["CHANGED"] * 9]
    assert "  CHANGED  box  X08  sudo rules: and 4 more; -v lists them" in lines
    verdict = "box: does not match its rig, 12 changes are not accepted (5 ok, 1 failed, 1 changed"
    assert verdict in " ".join(ran.split())


@pytest.mark.parametrize(
    ("options", "entries", "accepted", "keep", "status", "last"),
    [
        ([], (SUDO,), (SUDO,), True, 0, "box: conforms (7 ok, 0 failed, 0 skipped)"),
        ([], (SUDO,), (), True, 1, "--accept`"),
        (["--ignore-class=sudo"], (SUDO,), (), True, 0, "box: conforms (6 ok, 0 failed, 1 skipped)"),
        ([], (SUDO,), None, True, 0, "--accept` lists and accepts them)"),
        (["--strict-changes"], (SUDO,), None, True, 1, "--accept`"),
        ([], (ROOTS,), None, True, 1, "--accept` lists and accepts them)"),
        (["--ignore-class=accounts"], (ROOTS,), (), True, 1, "box: does not match its rig (5 ok, 1 failed, 1 skipped)"),
        # the host knows an acceptance, and the file is gone
        ([], (SUDO,), (), False, 1, "box: does not match its rig (1 ok, 1 failed, 5 skipped)"),
    ],
)
def test_the_exit_status_follows_what_is_accepted(
    run: Run, options: list[str], entries: Any, accepted: Any, keep: bool, status: int, last: str
) -> None:
    ran = run(*options, entries=entries, accepted=accepted, keep=keep)
    assert ran.returncode == status, ran.stdout
    assert " ".join(ran.stdout.split()).endswith(" ".join(last.split()))


def test_a_host_that_was_never_reviewed_has_one_line(run: Run) -> None:
    ran = run(entries=RULES, accepted=None)
    assert " ".join(ran.stdout.split()).startswith(
        "box: conforms (5 ok, 0 failed, 2 skipped) box: not reviewed: 12 entries of the host are explained by no "
        "package and no deploy (`rigwright check /"
    )


def test_reports_have_changes(run: Run, tmp_path: Path) -> None:
    ran = run("--json", f"--junitxml={tmp_path / 'report.xml'}", entries=(SUDO,))
    report = TypeAdapter(Report).validate_json(ran.stdout, strict=True)
    (host,) = report.hosts
    assert (report.schema, report.verdict, host.verdict) == (2, "changed", "changed")
    assert host.acceptance is not None
    assert (host.acceptance.state, host.acceptance.serial, host.acceptance.author) == ("reviewed", 1, "ana")
    (result,) = (one for one in host.checks if one.verdict == "changed")
    (change,) = result.changes
    assert (change.key, change.change, change.since) == ("/etc/sudoers.d/ops", "new", "2026-11-28 06:12")
    assert result.steps[0].text.endswith("rig.py --accept")
    (failure,) = ET.parse(tmp_path / "report.xml").iter("failure")
    assert "not accepted: /etc/sudoers.d/ops: new" in str(failure.get("message"))


def test_an_edited_file_is_refused_before_a_host_is_reached(run: Run, tmp_path: Path) -> None:
    assert run(entries=(SUDO,), accepted=(SUDO,)).returncode == 0
    place = tmp_path / "accepted" / "box.json"
    place.write_text(place.read_text().replace("440", "400"))
    ran = run(entries=(SUDO,), accepted=None)
    assert ran.returncode not in (0, 1, 3)
    assert f"{place}: digest: is not that of this file" in ran.stderr
