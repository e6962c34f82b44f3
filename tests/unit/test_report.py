"""The page for strangers: its contents are on a list, with any hosts, inventories, books and logs."""

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from checks.connections import ConnectedHost
from checks.results import HostReport, Report
from checks.results import Result as Checked
from cli import host_evidence, main, show_report
from rigwright import speed_baselines
from rigwright.engines.vllm import log_patterns
from rigwright.operate import instance_health
from rigwright.operate.instance_health import HealthFacts
from rigwright.public_report import (
    KERNEL,
    SYSTEM,
    ReportedBox,
    ReportedInstance,
    render_report,
    safe_prefix,
    safe_version,
)
from rigwright.speed_baselines import Series
from roles.root_shell import RootCommandResult
from tests.unit.samples import changed_rig, sample_card
from tests.unit.test_baseline import FINGERPRINT, run
from tests.unit.vllm_samples import vllm_instance, vllm_rig

CANARY = "CANARY-sk-5f2e"
ADDRESS = "192.0.2.77"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0.21.0", "0.21.0"),
        ("v0.12.0", "v0.12.0"),
        ("2.11.0+cu130", "2.11.0+cu130"),
        ("0.20.1rc1.dev16", "withheld"),
        ("1.0.post1", "1.0.post1"),
        ("1.0+abcdef", "withheld"),
        (f"1.0-{CANARY}", "withheld"),
        ("1.0\n2.0", "withheld"),
        ("", "withheld"),
        (ADDRESS, "withheld"),
    ],
)
def test_a_version_has_the_shape_of_one(text: str, said: str) -> None:
    assert safe_version(text) == said


@pytest.mark.parametrize(
    ("pattern", "text", "said"),
    [
        (SYSTEM, "Debian GNU/Linux 12 (bookworm)", "Debian GNU/Linux 12"),
        (SYSTEM, "Ubuntu 22.04.5 LTS", "Ubuntu 22.04.5"),
        (SYSTEM, f"Debian GNU/Linux 12 {CANARY}", "Debian GNU/Linux 12"),
        (SYSTEM, f"{CANARY} 12", "withheld"),
        (SYSTEM, f"Ubuntu 22.04{CANARY}", "withheld"),
        (KERNEL, "6.1.0-49-amd64", "6.1.0-49"),
        (KERNEL, f"6.1.0-{CANARY}", "6.1.0"),
        (KERNEL, f"6.1.0{CANARY}", "withheld"),
    ],
)
def test_of_other_texts_only_what_is_allowed_is_reported(pattern: re.Pattern[str], text: str, said: str) -> None:
    assert safe_prefix(pattern, text) == said


def result(identifier: str, verdict: Any, **more: Any) -> Checked:
    words = {name: f"{name} {CANARY}" for name in ("title", "why", "part", "note", "expected", "found", "cure")}
    return Checked(id=identifier, severity="high", verdict=verdict, took_s=0.1, **(words | more))


REPORT = Report(
    1,
    "2026-11-23T10:00:00Z",
    "0.1.0",
    f"/home/{CANARY}/rig.py",
    False,
    "not as declared",
    1.0,
    [
        HostReport(
            "box1",
            "not as declared",
            "ab" * 32,
            7,
            CANARY,
            {
                "system": f"Debian GNU/Linux 12 ({CANARY})",
                "kernel": f"6.1.0-49-{CANARY}",
                "driver": CANARY,
                "python": "3.11.2",
                CANARY: CANARY,
            },
            [result("N21", "fail"), result("S06", "ok"), result("Z01", "fail"), result("N24", "skip")],
        )
    ],
)
RunReport = Callable[..., Result]


@pytest.fixture
def report_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunReport:
    """Run the verb over a box of which everything that has a name is called the canary."""
    inventory = tmp_path / "rig.py"
    inventory.write_text("")
    one = vllm_instance(CANARY.lower(), variant_name=f"vllm/{CANARY}", model_name=CANARY)
    mine = sample_card("8.6", name=f"{CANARY} GPU")
    made = changed_rig(
        vllm_rig(one), name="box1", inventory=str(inventory), cards=(mine, mine), proxy=f"http://{CANARY}@{ADDRESS}"
    )
    lines = [f"{CANARY} prompt {ADDRESS}", f"Cannot use FA version 2 because {CANARY}", "harmless"] * 2
    lines += [f"{log_patterns.CAUSES[0].pattern} {CANARY}"]
    lines += [f"NVRM: Xid (PCI:0000:65:00): {code}, {CANARY} {ADDRESS}" for code in (79, 987)]
    fingerprint = FINGERPRINT.model_copy(
        update={"cards": (CANARY,), "driver": "580.95.05", "variant": f"vllm/{CANARY}", "lock": "cd" * 32}
    )
    rates = {"narrative decode": Series(values=(70.5,)), "a rate of my own": Series(values=(1.0,))}
    measured = run(1, fingerprint=fingerprint).model_copy(update={"rates": rates})
    pages = speed_baselines.InstanceHistory().with_run(measured).with_last_accepted()
    speed_baselines.save_history(
        speed_baselines.history_path(str(inventory), "box1"),
        speed_baselines.BaselineHistory().with_instance(CANARY.lower(), pages),
    )

    def tell(*words: str, told: Report = REPORT, gone: tuple[str, ...] = (), **more: Any) -> Result:
        done = subprocess.CompletedProcess([], 1, json.dumps(asdict(told)), CANARY)
        monkeypatch.setattr(show_report, "subprocess", type("P", (), {"run": lambda *_, **__: done}))
        monkeypatch.setattr(
            show_report, "connect_boxes", lambda *_: ([ConnectedHost("box1", made, None)], dict.fromkeys(gone, "gone"))
        )
        monkeypatch.setattr(
            host_evidence,
            "root_shell",
            type(
                "R",
                (),
                {
                    "run_command": lambda *_, **__: RootCommandResult(0, "\n".join(lines).encode(), b""),
                    "ConnectionGone": OSError,
                },
            ),
        )
        seen = HealthFacts(
            {}, {}, {}, {}, instance_health.CommandResult(9, CANARY, CANARY), (CANARY,), CANARY, reboot=True
        )
        monkeypatch.setattr(host_evidence, "read_health", lambda *_: seen)
        return CliRunner().invoke(main, ["show", "report", str(inventory), *words], **more)

    return tell


def test_no_name_secret_or_address_is_on_the_page(report_of: RunReport) -> None:
    done = report_of()
    assert done.exit_code == 0, done.output
    known = (CANARY, CANARY.lower(), ADDRESS, "sk-5f2e", "cdcd", "box1", "/home", "a rate of my own", "Z01")
    for word in (*known, "65:00", "987"):
        assert word not in done.output


def test_remedies_are_on_the_page(report_of: RunReport) -> None:
    said = report_of().output
    for line in (
        "Rigwright 0.1.0, 20",
        "| system | Debian GNU/Linux 12 |",
        "| kernel | 6.1.0-49 |",
        "| driver | withheld |",
        "| python | 3.11.2 |",
        "| cards | 2 x the operator's own |",
        "| generation | 7 |",
        "Checks: 1 hold, 2 fail, 1 do not apply.",
        "| N21 | high | each card's power limit is the declared one |",
        "1 of the operator's own fail.",
        "vllm 0.21.0, variant the operator's own, 1 card.",
        "driver 580.95.05, power limit 280 W, 16 lanes.",
        "| narrative decode | 70.5 | 70.5 | unjudged |",
        "- log, 2 times: harmless: cards below compute capability 8.0 need another backend",
        f"- log, 1 time: likely cause: {log_patterns.CAUSES[0].means}",
        "- xid-79: the box, 1 time",
        "- cards-silent: the box, 1 time",
        f"- {log_patterns.CAUSES[0].id}: instance 1, 1 time",
    ):
        assert line in said, line


def test_shipped_names_may_be_reported() -> None:
    shipped = show_report.shipped_names()
    made = ReportedBox({}, "", None, ["NVIDIA GeForce RTX 3090"], [ReportedInstance("vllm", "0.21.0", "vllm/dual", 2)])
    said = render_report([made], shipped, "0.1.0", "2026-11-23")
    assert "| cards | 1 x NVIDIA GeForce RTX 3090 |" in said
    assert "vllm 0.21.0, variant vllm/dual, 2 cards." in said


def test_it_is_shown_before_it_is_written_and_only_with_consent(report_of: RunReport, tmp_path: Path) -> None:
    file = tmp_path / "show_report.md"
    refused = report_of(f"--output={file}", input="n\n")
    assert refused.exit_code == 0
    assert refused.output.startswith("# Rigwright report")
    assert not file.exists()
    report_of(f"--output={file}", input="y\n")
    assert file.read_text().startswith("# Rigwright report")
    assert CANARY not in file.read_text()
    file.unlink()
    report_of(f"--output={file}", "--yes")
    assert file.exists()


def test_it_is_written_through_no_link_and_where_it_cannot_be_it_is_reported(
    report_of: RunReport, tmp_path: Path
) -> None:
    (tmp_path / "keys").write_text("mine")
    file = tmp_path / "show_report.md"
    file.symlink_to(tmp_path / "keys")
    assert report_of(f"--output={file}", "--yes").exit_code == 0
    assert file.read_text().startswith("# Rigwright report")
    assert (tmp_path / "keys").read_text() == "mine"
    done = report_of(f"--output={tmp_path / 'no' / 'show_report.md'}", "--yes")
    assert (done.exit_code, type(done.exception)) == (2, SystemExit)
    assert f"cannot be written: there is no folder {tmp_path / 'no'}" in done.output


HOSTILE = (f"{CANARY}\n## Box 9\n", f"6.1.0-49 {CANARY}|x|", f"\x1b[2J{CANARY}", f"| {CANARY} |", "1" * 100_000)


@pytest.mark.parametrize("said", HOSTILE, ids=["a line", "a cell", "escapes", "a row", "long"])
def test_no_word_of_a_host_forges_a_line_of_it(report_of: RunReport, said: str) -> None:
    """Whatever a host says it is, checks found on it and its runs were called: lines and cells are ours."""
    plain = report_of().output.splitlines()
    (first,) = REPORT.hosts
    versions = dict.fromkeys((*first.versions, "system", "kernel", "driver", "python"), said)
    red = [replace(one, id=said, verdict="fail", found=said, part=said) for one in first.checks]
    forged = replace(REPORT, hosts=[replace(first, versions=versions, checks=[*first.checks, *red])])
    told = report_of(told=forged).output
    assert CANARY not in told
    assert "\x1b" not in told
    assert len(told) < 20_000
    assert [line for line in told.splitlines() if line.startswith("#")] == [one for one in plain if one.startswith("#")]


def test_a_host_out_of_reach_is_on_it_and_in_the_exit_status(report_of: RunReport) -> None:
    done = report_of(gone=(CANARY,))
    assert done.exit_code == 3
    assert "## Box 2\n\nIt cannot be reached." in done.output
    assert CANARY not in done.output


@pytest.mark.parametrize(
    ("status", "complaint", "why"),
    [
        (2, "Error: rig.py: no hosts\n", "rig.py: no hosts"),
        (1, "", "they ended with status 1 without a message"),
        (-9, "\n", "they ended by signal 9 without a message"),
    ],
)
def test_checks_that_do_not_run_are_refused_with_the_reason(
    report_of: RunReport, monkeypatch: pytest.MonkeyPatch, status: int, complaint: str, why: str
) -> None:
    report_of()
    done = subprocess.CompletedProcess([], status, "", complaint)
    monkeypatch.setattr(show_report, "subprocess", type("P", (), {"run": lambda *_, **__: done}))
    said = CliRunner().invoke(main, ["show", "report", __file__])
    assert said.exit_code == 2
    more = f"`rigwright check {__file__}` says more"
    assert said.output.endswith(f"Error: the checks did not run: {why}\n{more}\n")
