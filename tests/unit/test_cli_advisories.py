"""`rigwright show advisories`: its output and exit status, SARIF, a file in a bundle, and packages of hosts."""

import io
import json
import re
import shutil
import subprocess
from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from _pytest._io import TerminalWriter
from click.testing import CliRunner, Result
from sarif_pydantic import Sarif

from checks import result_metrics as counting
from checks.report import ChecksReporter
from cli import main
from cli import show_advisories as verb
from rigwright.advisories import osv_records
from rigwright.advisories.assessment import STATES
from rigwright.advisories.audit import bundled_files
from rigwright.project_root import ROOT
from roles import root_shell
from tests.unit import shipped_inventories
from tests.unit.bundle_world import BundleFixture
from tests.unit.test_advisory_data import record, zipped
from tests.unit.test_advisory_versions import PACKAGES

FLEET = ROOT / "inventory/fleet.py"


def run_verb(*options: str | Path, inventory: Path = FLEET) -> Result:
    return CliRunner().invoke(main, ["show", "advisories", str(inventory), *map(str, options)])


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """An export in which one record is about a locked wheel, and one is unreadable."""
    members = {"a.json": json.dumps(record("PYSEC-2026-1", "torch")).encode(), "b.json": b"{"}
    return zipped(tmp_path / "PyPI.zip", members)


def test_the_shipped_fleet_is_answered_without_a_lock_of_its_weights() -> None:
    done = run_verb()
    assert done.exit_code == 0, done.output
    assert re.search("^rig3090-two: [1-9][0-9]* open, ", done.stdout, re.MULTILINE)
    assert "the model is not locked" in done.stdout
    assert "no host was asked: --installed reads them" in done.stdout
    assert "no export of PyPI's advisories was read" in done.stdout


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "inventory").glob("rig*.py")))
def test_every_shipped_inventory_is_answered(name: str) -> None:
    done = run_verb("--json", inventory=ROOT / f"inventory/{name}.py")
    assert done.exit_code == 0, done.output
    for one in json.loads(done.stdout):
        assert {found["state"] for found in one["advisories"]} <= set(STATES)
        assert one["not_covered"]


@pytest.mark.parametrize(("fail_on", "status"), [(None, 0), ("open", 1), ("unknown", 1)])
def test_the_exit_status_is_the_operators(fail_on: str | None, status: int) -> None:
    assert run_verb("--limit", "rig3090", *(["--fail-on", fail_on] if fail_on else [])).exit_code == status


@pytest.mark.parametrize(
    ("open_", "unknown", "gaps", "status"),
    [(0, 0, (), (False, False)), (0, 1, (), (False, True)), (1, 0, (), (True, True)), (0, 0, ("g",), (False, True))],
)
def test_failures(open_: int, unknown: int, gaps: tuple[str, ...], status: tuple[bool, bool]) -> None:
    counts = {"open": open_, "unknown": unknown}
    made: Any = [SimpleNamespace(count=counts.__getitem__, gaps=gaps)]
    assert tuple(verb.exceeds_threshold(made, word) for word in ("open", "unknown")) == status
    assert not verb.exceeds_threshold(made, None)


def test_an_export_is_searched_and_its_unreadable_records_are_named(export, monkeypatch):
    monkeypatch.setattr(osv_records, "EXPORT_FROM", 1)
    done = run_verb("--limit", "rig3090", "--db", export)
    assert done.exit_code == 0, done.output
    assert "PYSEC-2026-1  PyPI:torch 2.11.0" in done.stdout
    assert "no export of PyPI" not in done.stdout
    assert "1 unreadable record" in done.stdout and "b.json is no JSON" in done.stdout
    (found,) = json.loads(run_verb("--limit", "rig3090", "--db", export, "--json").stdout)
    (data,) = [one for one in found["data"] if one["origin"] == str(export)]
    assert (data["as_of"], data["records"], data["unreadable"]) == ("2026-11-01", 2, ["b.json is no JSON"])
    assert found["unknown"] == len({one["advisory"] for one in found["advisories"] if one["state"] == "unknown"})


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = run_verb("--limit", "rig3090", "--db", tmp_path / "empty")
    assert (done.exit_code, "has no records" in done.output) == (2, True)


def test_a_hostile_export_steers_no_terminal(tmp_path: Path) -> None:
    one = record("PYSEC-2026-1", "torch", summary="\x1b[2J\x1b[31mfine\r\n")
    done = run_verb("--limit", "rig3090", "--db", zipped(tmp_path / "a.zip", {"a.json": json.dumps(one).encode()}))
    assert "PYSEC-2026-1" in done.stdout and "\x1b" not in done.stdout


def test_sarif_has_a_rule_an_advisory_and_a_result_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "out.sarif"
    (found,) = json.loads(run_verb("--limit", "rig3090", "--json", "--sarif", path).stdout)
    data = json.loads(path.read_text())
    (run,) = Sarif.model_validate(data).runs
    assert data["$schema"].endswith("sarif-2.1.0.json") and data["version"] == "2.1.0"
    results = run.results or []
    rules = run.tool.driver.rules or []
    assert len(results) == len(found["advisories"])
    for result, one in zip(results, found["advisories"], strict=True):
        assert result.rule_index is not None and rules[result.rule_index].id == result.rule_id == one["advisory"]
        assert result.kind == {"open": "fail", "unknown": "review", "closed": "pass"}[one["state"]]
        # a level goes with a failure alone (SARIF 2.1.0, 3.27.10)
        assert (result.level == "error") == (one["state"] == "open")
        assert one["paths"][0]["reason"] in str(result.message.text)
    assert {one.id for one in rules} == {one["advisory"] for one in found["advisories"]}


def test_a_bundle_takes_a_file_along_and_it_is_read_there(maker, export, monkeypatch):
    found = maker.make_bundle("--advisories", str(export))
    (row,) = [one for one in found.rows if one.path.startswith("advisories/")]
    assert row.path == "advisories/PyPI.zip"
    (kept,) = found.folder_files("advisories")
    assert kept.path.read_bytes() == export.read_bytes() and not kept.refusal()
    rig: Any = SimpleNamespace(bundle=found)
    assert bundled_files(rig.bundle) == [kept.path]
    # other bytes of the same size are refused
    kept.path.write_bytes(bytes(len(export.read_bytes())))
    with pytest.raises(verb.UnreadableData, match="SHA-256"):
        bundled_files(rig.bundle)


def test_two_files_of_one_name_are_refused(maker: BundleFixture, export: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / export.name
    other.write_bytes(b"{}")
    lines = maker.error_lines("--advisories", str(export), "--advisories", str(other))
    assert lines == [f"{maker.box.inventory}: --advisories: two files are named PyPI.zip"]


def test_a_bundle_without_it_lets_it_go(maker: BundleFixture, export: Path) -> None:
    maker.make_bundle("--advisories", str(export))
    assert not maker.make_bundle().folder_files("advisories")
    assert not (maker.bundle_folder / "advisories/PyPI.zip").exists()


@pytest.mark.parametrize(
    ("out", "status", "expected"),
    [
        (b"debian-12\n" + PACKAGES.replace("a line of another form\n", "").encode(), 0, 3),
        (b"debian-12\n" + PACKAGES.encode(), 0, None),
        (b"gentoo-1\n" + PACKAGES.encode(), 0, None),
        (b"debian-12\n", 0, None),
        (b"\xff\x00", 0, None),
        (b"debian-12\ninstalled\topenssl\topenssl\t3\t3\n", 1, None),
    ],
)
def test_packages_of_a_host_are_read_whole_or_not_at_all(monkeypatch, capsys, out, status, expected):
    monkeypatch.setattr(
        root_shell, "run_command", lambda target, command, **limits: root_shell.RootCommandResult(status, out, b"")
    )
    box: Any = SimpleNamespace(name="box", target=None)
    found = verb._read_packages(box)
    assert (len(found[1]) if found else None) == expected
    assert bool(capsys.readouterr().err) == (expected is None)


def test_a_host_that_lists_no_packages_is_a_gap(tmp_path: Path) -> None:
    rigs = shipped_inventories.load_rigs("rig5090solo", tmp_path)
    name = next(iter(rigs))
    (found,) = verb.audit(rigs, (), {})
    assert ("packages of the host", "the host did not list them") in {(one.what, one.why) for one in found.gaps}
    packages, _ = verb.parse_packages(PACKAGES)
    (found,) = verb.audit(rigs, (), {name: ("debian-12", packages)})
    assert {one.advisory for one in found.findings if one.component == "nvidia-driver"} >= {"NVIDIA-5861"}
    assert not [one for one in found.gaps if one.what in ("packages of the host", "NVIDIA driver")]
    assert [one for one in found.gaps if "Debian:12" in one.what]


def test_check_ends_with_their_numbers() -> None:
    written = TerminalWriter(io.StringIO())
    written.fullwidth = 80
    reporter = ChecksReporter.__new__(ChecksReporter)
    counts = {"open": 2, "unknown": 0, "closed": 5}
    frame = SimpleNamespace(
        gone=[],
        unleft={},
        advisories={"box1": counts},
        deployed=lambda target: True,
        compared=lambda target: None,
        results=defaultdict(list),
        look=SimpleNamespace(inventory="rig.py", several=True),
        count_unreviewed=lambda target: None,
        find_unused_waivers=lambda target: [],
    )
    config = SimpleNamespace(option=SimpleNamespace(verbose=0))
    tally = {"box1": Counter(ok=3), "box2": Counter(ok=3)}
    reporter.__dict__.update(_tw=written, config=config, frame=frame, tally=tally, left_out={"box1": {}, "box2": {}})
    reporter.short_test_summary()
    assert written._file.getvalue().splitlines() == [
        "box1: conforms (3 ok, 0 failed, 0 skipped)",
        "box1: published advisories: 2 open, 0 unknown, 5 closed (`rigwright show advisories` lists them)",
        "box2: conforms (3 ok, 0 failed, 0 skipped)",
    ]


def test_check_counts_them_and_fails_for_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (rig, *_) = shipped_inventories.load_rigs("rig3090", tmp_path).values()
    counts = counting.AdvisoryCounts().count(rig)
    assert set(counts) == set(STATES) and counts["open"] > 0

    def refuse(rigs: object) -> None:
        raise verb.UnreadableData("odd")

    monkeypatch.setattr(counting, "audit", refuse)
    assert counting.AdvisoryCounts().count(rig) == {}


@pytest.mark.skipif(not shutil.which("dpkg-query"), reason="dpkg-query is not here")
def test_output_of_dpkg_query_here_is_read_whole() -> None:
    done = subprocess.run(["sh", "-c", verb.PACKAGE_LIST_SCRIPT], capture_output=True, text=True, check=True)
    release, _, rest = done.stdout.partition("\n")
    packages, unreadable = verb.parse_packages(rest)
    assert re.fullmatch(r"[a-z]+-[0-9.]+", release)
    assert unreadable == 0 and {"dpkg", "libc6"} <= {one.name for one in packages}
    assert {one.source for one in packages if one.name == "libc6"} == {"glibc"}
