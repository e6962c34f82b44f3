"""The inputs of jobs that bring files: their sources, the files that they get, and when they are done."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rigwright.fetch_job_spec import artefact_sources, fetch_unit_name, render_fetch_spec
from rigwright.model.rig import Rig
from rigwright.model.roots import Roots
from rigwright.render import render
from rigwright.supply.bundle import Bundle, BundleRow
from rigwright.supply.lock import Artefact
from rigwright.weights.verification import recorded_file, records_folder
from roles import artefact_fetch
from roles.artefact_fetch import VerifiedRecordsFact, ensure_fetched
from roles.weights.host import records
from roles.weights.host.records import LockedFile
from roles.weights.host.spec import FetchSpec, load_spec
from tests.unit import short_programs
from tests.unit.samples import sample_artefact, sample_rig, sample_wheel

PEER = "http://10.0.0.5:8090"


def package(**changes: Any) -> Artefact:
    row: dict[str, Any] = {"kind": "conda", "name": "python", "version": "3.10.20", "group": "python-3.10.20"}
    row |= {
        "build": "h1_0_cpython",
        "selection": "0" * 12,
        "file": "python-3.10.20-h1_0_cpython.conda",
        "sources": ["forge:linux-64/python-3.10.20-h1_0_cpython.conda"],
    }
    return sample_artefact(**row | changes)


def read_fetch_spec(made: Rig, row: Artefact, folder: Path, **how: Any) -> FetchSpec:
    """The program's reading of a job's input."""
    path = folder / "spec.json"
    path.write_text(render_fetch_spec(made.roots, made.accounts, made.network, made.fs_verity, [row], **how))
    return load_spec(path)


@pytest.mark.parametrize(
    ("mirrors", "row", "expected"),
    [
        ({}, sample_wheel(), [{"kind": "index", "project": "tool", "file": "tool-1.0-py3-none-any.whl", "base": ""}]),
        (
            {"index": ("http://a/simple/", "http://b/simple")},
            sample_wheel(sources=["index:tool", "http://c/tool.whl"]),
            [
                *(
                    {"kind": "index", "project": "tool", "file": sample_wheel().file, "base": f"http://{m}/simple"}
                    for m in "ab"
                ),
                {"kind": "http", "url": "http://c/tool.whl", "locked": True},
            ],
        ),
        (
            {"other": ("http://a",)},
            package(),
            [{"kind": "channel", "channel": "forge", "file": "linux-64/python-3.10.20-h1_0_cpython.conda", "base": ""}],
        ),
        (
            {"forge": ("http://a/forge/", "http://b")},
            package(),
            [
                {"kind": "http", "url": "http://a/forge/linux-64/python-3.10.20-h1_0_cpython.conda"},
                {"kind": "http", "url": "http://b/linux-64/python-3.10.20-h1_0_cpython.conda"},
            ],
        ),
        ({}, package(sources=["https://x/y.conda"]), [{"kind": "http", "url": "https://x/y.conda", "locked": True}]),
        # of weights, a name without mirrors is nowhere
        ({}, sample_artefact(), []),
    ],
)
def test_where_packages_are_had(mirrors, row, expected, tmp_path):
    made = sample_rig(mirrors=mirrors, peers=(PEER,))
    assert artefact_sources(made.network, row) == [{"kind": "peer", "base": PEER}, *expected]
    (wanted,) = read_fetch_spec(made, row, tmp_path).files
    assert [one.kind for one in wanted.sources] == ["peer", *(one["kind"] for one in expected)]


@pytest.mark.parametrize("row", [sample_wheel(), package()])
def test_packages_lie_apart_from_models_by_their_hash(row: Artefact, tmp_path: Path) -> None:
    made = read_fetch_spec(sample_rig(), row, tmp_path, python="/opt/x/bin/python")
    assert made.files[0].file.path == row.package_path == f"_packages/{'b' * 16}/{row.file}"
    assert made.package_python == "/opt/x/bin/python"
    # the host's record of it is the one that is asked for
    assert recorded_file(sample_rig().roots, row).record == records.record_name(made.files[0].file)
    assert fetch_unit_name([row]) != fetch_unit_name([sample_artefact()])


class FetchJobInputs:
    """The input of a job of this rig's, on a host with these records."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, there: frozenset[str] = frozenset()) -> None:
        self.jobs: list[dict[str, Any]] = []
        monkeypatch.setattr(artefact_fetch, "ensure_job", lambda **settings: self.jobs.append(settings))
        monkeypatch.setattr(artefact_fetch, "host", SimpleNamespace(get_fact=lambda kind, **_: there))


@pytest.mark.parametrize(
    ("row", "bundled", "secret"),
    [
        (sample_artefact(sources=["hub:org/name"], repository="org/name"), False, True),
        (sample_artefact(sources=["hub:org/name"], repository="org/name"), True, False),
        (sample_artefact(), False, False),
        (sample_wheel(), False, False),
    ],
)
def test_only_a_job_that_asks_a_hub_is_given_its_token(monkeypatch, row, bundled, secret):
    given = FetchJobInputs(monkeypatch)
    bundle = Bundle(Path("/bundle"), (), ()) if bundled else None
    ensure_fetched(sample_rig(hub_token_file="/home/ops/token", bundle=bundle), [row], "Fetch")
    assert given.jobs[0]["secrets"] == ({"hub-token": "/home/ops/token"} if secret else {})


def test_many_packages_of_a_bundle_are_one_job_that_is_sent_what_is_not_verified_yet(monkeypatch):
    rows = [sample_wheel(name, sha256=digit * 64) for name, digit in (("a", "1"), ("b", "2"), ("c", "3"))]
    made = sample_rig(
        bundle=Bundle(Path("/x"), (), tuple(BundleRow(path=one.file, sha256=one.sha256, size=1) for one in rows))
    )
    given = FetchJobInputs(monkeypatch, frozenset({recorded_file(made.roots, rows[1]).record}))
    ensure_fetched(made, rows, "Fetch 3 packages")
    (job,) = given.jobs
    assert [file.name for file in job["files"]] == [rows[0].file, rows[2].file]
    assert '"sources": []' in job["script"]


@pytest.mark.parametrize(("there", "holds"), [(False, False), (True, True)])
def test_nothing_is_fetched_for_what_is_there_already(monkeypatch, tmp_path, there, holds):
    given = FetchJobInputs(monkeypatch)
    marker = tmp_path / "an env of two words"
    if there:
        marker.touch()
    ensure_fetched(sample_rig(), [sample_wheel()], "Fetch", unless=f"[ -e '{marker}' ]")
    assert (short_programs.run_program(["sh", "-c", given.jobs[0]["test"]]).returncode == 0) == holds


def test_which_files_are_verified_is_found_on_a_host(tmp_path: Path) -> None:
    roots = Roots.model_construct(models=str(tmp_path / "two words"), state=str(tmp_path), config="", software="")
    made = sample_rig(roots=roots)
    rows = [sample_wheel(name, sha256=digit * 64) for name, digit in (("a", "1"), ("b", "2"), ("c", "3"), ("d", "4"))]
    for row in rows[:3]:
        path = Path(recorded_file(made.roots, row).absolute)
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x")
        file = LockedFile(row.package_path, row.sha256, 1)
        records.write_record(Path(records_folder(made.roots)), Path(roots.models), file)
        assert records.record_name(file) == recorded_file(made.roots, row).record
    Path(recorded_file(made.roots, rows[0]).absolute).touch()
    Path(recorded_file(made.roots, rows[1]).absolute).unlink()
    names = [recorded_file(made.roots, row).record for row in rows]
    script = render("weights/verified.sh.j2", folder=records_folder(made.roots), records=names)
    output = short_programs.run_program(["sh", "-c", script]).stdout.splitlines()
    assert VerifiedRecordsFact().read(output) == frozenset({names[2]})
    empty = render("weights/verified.sh.j2", folder=str(tmp_path / "none"), records=names)
    assert (
        VerifiedRecordsFact().read(short_programs.run_program(["sh", "-c", empty]).stdout.splitlines()) == frozenset()
    )
