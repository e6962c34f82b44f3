"""Files of advisories: OSV exports and Debian's tracker, well-formed and hostile, and the data that are shipped."""

import json
import os
import zipfile
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rigwright.advisories import osv_records
from rigwright.advisories.advisory_catalog import PredicateKeys, load_maintained
from rigwright.advisories.debian_tracker import read_tracker
from rigwright.advisories.osv_records import UnreadableExport, parse_record, read_export
from rigwright.advisories.predicates import PREDICATES
from rigwright.advisories.versions import is_affected
from rigwright.problems import Invalid
from rigwright.project_root import ROOT
from tests.unit.example_counts import example_count

TORCH = {("PyPI", "torch")}


def record(identifier: str = "X-1", package: str = "torch", ecosystem: str = "PyPI", **more: Any) -> dict[str, Any]:
    ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2.12"}]}]
    affected = [{"package": {"ecosystem": ecosystem, "name": package}, "ranges": ranges}]
    return {
        "schema_version": "1.7.3",
        "id": identifier,
        "modified": "2026-11-01T00:00:00Z",
        "affected": affected,
    } | more


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("form", ["zip", "folder", "jsonl", "json"])
def test_every_form_of_an_export_is_read(tmp_path: Path, form: str) -> None:
    texts = {f"{one['id']}.json": json.dumps(one).encode() for one in (record("X-1"), record("X-2", "other"))}
    path = tmp_path / f"db.{form}"
    if form == "zip":
        zipped(path, texts)
    elif form == "folder":
        path.mkdir()
        for name, content in texts.items():
            (path / name).write_bytes(content)
    else:
        path.write_bytes(texts["X-1.json"] + (b"\n" + texts["X-2.json"] if form == "jsonl" else b""))
    export = read_export(path, TORCH)
    assert [one.id for one in export.records] == ["X-1"]
    assert (export.as_of, export.unreadable) == (date(2026, 11, 1), [])
    assert export.total == (1 if form == "json" else 2)
    # a few records are no proof that there are no others, in whatever form
    assert export.ecosystems == {"PyPI": export.total}
    assert export.covered_ecosystems == frozenset()


def test_an_export_covers_ecosystems_of_which_it_has_many_records(tmp_path, monkeypatch):
    monkeypatch.setattr(osv_records, "EXPORT_FROM", 3)
    rows = [record(f"X-{number}") for number in range(3)]
    # an advisory of one ecosystem names a package of another one, too
    rows[0]["affected"] += record("X", "torch.js", "npm")["affected"]
    rows += [record(f"N-{number}", "torch.js", "npm") for number in range(1)]
    path = tmp_path / "db.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert read_export(path, TORCH).covered_ecosystems == {"PyPI"}


def test_unreadable_records_are_counted_and_hide_no_others(tmp_path: Path) -> None:
    bad = {
        "a.json": b"{",
        "b.json": b"[]",
        "c.json": b'{"id": "\\u001b[31m"}',
        "d.json": b"[" * 100_000,
        "e.json": json.dumps({"id": "X-9", "affected": "all"}).encode(),
        "f.json": b'{"id": "X-8", "modified": ' + b"9" * 10_000 + b"}",
        "\x1b[31mg.json": b"\xff\xfe",
    }
    good = {f"x{number}.json": json.dumps(record(f"X-{number}")).encode() for number in range(3)}
    export = read_export(zipped(tmp_path / "db.zip", bad | good), TORCH)
    assert [one.id for one in export.records] == ["X-0", "X-1", "X-2"]
    assert (export.total, len(export.unreadable)) == (10, 7)
    assert all(line.isprintable() for line in export.unreadable)


def test_records_and_exports_have_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(osv_records, "LARGEST_RECORD", 1000)
    # unpacked it is a thousand times as large as in the archive
    members = {
        "bomb.json": b'{"id": "X-7", "details": "' + b" " * 1_000_000 + b'"}',
        "x.json": json.dumps(record()).encode(),
    }
    export = read_export(zipped(tmp_path / "db.zip", members), TORCH)
    assert (len(export.records), len(export.unreadable)) == (1, 1)
    assert "has more than" in export.unreadable[0]
    assert max(len(raw) for _, raw in osv_records._pieces(tmp_path / "db.zip", export)) == 1001
    lines = tmp_path / "db.jsonl"
    lines.write_bytes(b" " * 5000 + b"\n" + json.dumps(record()).encode())
    assert [one.id for one in read_export(lines, TORCH).records] == ["X-1"]
    monkeypatch.setattr(osv_records, "MOST_RECORDS", 1)
    with pytest.raises(UnreadableExport, match="more than 1 records"):
        read_export(tmp_path / "db.zip", TORCH)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"\x00" * 100])
def test_an_invalid_export_is_refused_or_has_no_records(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "db.zip"
    path.write_bytes(content)
    try:
        export = read_export(path, TORCH)
    except UnreadableExport:
        return
    assert (export.records, len(export.unreadable)) == ([], 1)


def test_a_pipe_or_an_empty_folder_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").mkdir()
    for name in ("pipe", "empty", "nothing"):
        with pytest.raises(UnreadableExport):
            read_export(tmp_path / name, TORCH)


@pytest.mark.parametrize(
    "change",
    [
        {"aliases": 5, "references": "x", "summary": ["x"], "modified": 7},
        {"schema_version": "9.0.0", "severity": {"of": "another form"}, "new_field": [1]},
        {"references": [None, {"url": 5}, {"url": "https://example.org/a"}]},
    ],
)
def test_fields_of_an_unknown_form_are_left_out_one_by_one(change: dict[str, Any]) -> None:
    assert is_affected("pep440", "2.11.0", parse_record(record(**change)).affected[0].ranges) is True


@pytest.mark.parametrize(
    "affected",
    [
        {"ranges": [{"type": "NEW", "events": [{"introduced": "0"}]}]},
        {"ranges": [{"type": "ECOSYSTEM", "events": "none"}]},
        {"ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": 5}]}]},
        {"ranges": [{"type": "ECOSYSTEM", "events": [{"begun": "1"}]}]},
        {"ranges": "all of them"},
        {"versions": {"1": "2"}},
        # longer than is read
        {"versions": ["1.0"] * (osv_records.MOST_PARTS + 1)},
        # commits alone
        {"ranges": [{"type": "GIT", "repo": "https://example.org/a/b", "events": [{"introduced": "0"}]}]},
    ],
)
def test_an_unreadable_range_is_unknown_never_unaffected(affected: dict[str, Any]) -> None:
    package = {"package": {"ecosystem": "PyPI", "name": "Torch"}}
    read = parse_record(record(affected=[package | affected])).affected[0]
    assert read.name == "torch"
    assert is_affected("pep440", "2.11.0", read.ranges, read.listed) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["id", "affected", "ranges", "events", "package", "ecosystem", "name", "versions", "type", "introduced"]
            )
            | st.text(max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=25,
)


@given(JSON)
@settings(max_examples=example_count(200), deadline=None)
def test_any_json_is_a_record_or_is_refused(data: Any) -> None:
    for one in (
        data,
        {"id": "X-1", "affected": data},
        {"id": "X-1", "affected": [data]},
        record(affected=[record(), data]),
    ):
        try:
            read = parse_record(one)
        except ValueError:
            continue
        for package in read.affected:
            assert is_affected("pep440", "1.0", package.ranges, package.listed) in (True, False, None)


def test_withdrawn_records_are_left_out_and_ubuntu_matches_by_release(tmp_path: Path) -> None:
    path = tmp_path / "db"
    path.mkdir()
    rows = [
        record("W-1", withdrawn="2026-01-01T00:00:00Z"),
        record("U-1", "openssl", "Ubuntu:24.04:LTS"),
        record("U-2", "openssl", "Ubuntu:Pro:24.04:LTS"),
        record("U-3", "openssl", "Ubuntu:22.04:LTS"),
    ]
    for one in rows:
        (path / f"{one['id']}.json").write_text(json.dumps(one))
    export = read_export(path, TORCH | {("Ubuntu:24.04", "openssl")})
    assert [one.id for one in export.records] == ["U-1", "U-2"]


def tracker(folder: Path, **releases: object) -> Path:
    path = folder / "tracker.json"
    found = {"releases": releases, "description": "a fault"}
    path.write_text(json.dumps({"openssl": {"CVE-2026-1": found, "CVE-2026-2": {"releases": 5}}, "other": 3}))
    return path


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"status": "open", "urgency": "unimportant"}, True),
        ({"status": "resolved", "fixed_version": "3.0.18-1"}, True),
        ({"status": "resolved", "fixed_version": "3.0.17-1"}, False),
        ({"status": "undetermined"}, None),
        ({"status": "resolved"}, None),
        ("resolved", None),
    ],
)
def test_states_of_debians_tracker(tmp_path: Path, state: object, expected: bool | None) -> None:
    export = read_tracker(tracker(tmp_path, bookworm=state), {("Debian:12", "openssl"), ("Debian:13", "openssl")})
    assert export is not None and len(export.unreadable) == 2
    (found,) = export.records
    package = found.affected[0]
    assert package.ecosystem == "Debian:12"
    assert is_affected("dpkg", "3.0.17-1~deb12u2", package.ranges) is (expected if expected is not False else True)
    assert is_affected("dpkg", "3.0.17-1", package.ranges) is expected


def test_debians_tracker_covers_a_release_by_its_number_of_entries_and_has_bounds(tmp_path, monkeypatch):
    path = tracker(tmp_path, bookworm={"status": "open"})
    read = read_tracker(path, {("Debian:12", "openssl")})
    assert read is not None and read.covered_ecosystems == frozenset()
    monkeypatch.setattr(osv_records, "EXPORT_FROM", 1)
    assert read.covered_ecosystems == {"Debian:12"}
    monkeypatch.setattr(osv_records, "MOST_UNREADABLE", 1)
    with pytest.raises(UnreadableExport, match="more than 1 unreadable"):
        read_tracker(path, set())


def test_a_version_that_was_never_affected_has_no_record(tmp_path: Path) -> None:
    export = read_tracker(
        tracker(tmp_path, trixie={"status": "resolved", "fixed_version": "0"}), {("Debian:13", "openssl")}
    )
    assert export is not None and export.records == []


def test_an_osv_record_is_no_tracker(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text(json.dumps(record()))
    assert read_tracker(path, TORCH) is None


def test_each_predicate_of_the_data_is_a_function_and_the_other_way_round() -> None:
    assert set(PredicateKeys.model_fields) == set(PREDICATES)


def test_the_shipped_data_bind_every_locked_vllm_and_llama_cpp() -> None:
    data = load_maintained(ROOT / "catalog")
    assert data.as_of
    assert {one.component for one in data.advisories.values()} >= {"PyPI:vllm", "llama.cpp"}
    assert {one.component for one in data.bulletins.values()} == {"nvidia-driver", "nvidia-container-toolkit"}
    names = [name for identifier, one in data.advisories.items() for name in (identifier, *one.aliases)]
    assert len(names) == len(set(names))
    # an advisory whose text was not read is bound to nothing
    assert all(one.assessed or not one.closed_by for one in data.advisories.values())


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('[[flag_absent = "x"]]', "cannot be read as TOML"),
        ('[[{flag_absent = "x", flag_set = "y"}]]', "one predicate"),
        ('[[{flag_abscent = "x"}]]', "unknown key"),
        ("[[{no_network = false}]]", "no_network"),
    ],
)
def test_a_mistake_in_the_data_is_refused(tmp_path: Path, text: str, wrong: str) -> None:
    (tmp_path / "advisories").mkdir()
    head = 'as_of = "2026-11-28"\n[advisories.X-1]\ncomponent = "PyPI:vllm"\nsummary = "s"\nsource = "s"\n'
    (tmp_path / "advisories/a.toml").write_text(f"{head}closed_by = {text}\n")
    with pytest.raises(Invalid, match=wrong):
        load_maintained(tmp_path)


def test_members_of_odd_codecs_and_too_many_unreadable_records_are_refused(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "odd.zip", "w") as archive:
        archive.writestr("a.json", "{}", zipfile.ZIP_LZMA)
        archive.writestr("b.json", "{}", zipfile.ZIP_BZIP2)
    read = osv_records.read_export(tmp_path / "odd.zip", [])
    assert read.unreadable == [f"{name}.json is neither stored nor deflated" for name in "ab"]
    monkeypatch.setattr(osv_records, "MOST_UNREADABLE", 1)
    with pytest.raises(osv_records.UnreadableExport, match="more than 1 unreadable"):
        osv_records.read_export(tmp_path / "odd.zip", [])
