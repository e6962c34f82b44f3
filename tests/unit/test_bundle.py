"""A bundle's index: all faults of a bundle are refused before anything is sent from it."""

import hashlib
import json
import os
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from rigwright.problems import Invalid
from rigwright.supply import bundle
from rigwright.supply.apt_release import ArchiveSuite
from rigwright.supply.bundle import AGAIN, INDEX, BundledPackages, BundleRow, LocalFile
from tests.unit.samples import sample_artefact

MADE = "2026-11-21 12:00:00 UTC"
LIST = "main/binary-amd64/Packages"


def suite(system: str, name: str) -> ArchiveSuite:
    return ArchiveSuite(system=system, archive=0, suite=name, components=("main",), signed=MADE, valid_until=None)


def released(name: str, listed: bytes, date: str = "Sat, 21 Nov 2026 12:00:00 UTC", more: str = "") -> bytes:
    """The signed text of a suite with one list."""
    row = f" {hashlib.sha256(listed).hexdigest()} {len(listed)} {LIST}"
    body = f"Suite: stable\nCodename: {name}\nDate: {date}\n{more}SHA256:\n{row}"
    signature = "-----BEGIN PGP SIGNATURE-----\n\nabc=\n-----END PGP SIGNATURE-----\n"
    return f"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n{body}\n{signature}".encode()


OLDER, NEWER = suite("debian-12", "bookworm"), suite("debian-13", "trixie")
FILES = {
    f"{OLDER.folder}/InRelease": released("bookworm", b"Package: curl\n"),
    f"{OLDER.folder}/{LIST}": b"Package: curl\n",
    "packages/debian-12/0/pool/curl_8.14+deb12_amd64.deb": b"a package",
    f"{NEWER.folder}/InRelease": released("trixie", b"Package: cmake\n"),
    f"{NEWER.folder}/{LIST}": b"Package: cmake\n",
    "sources/engine-1.0.tar.gz": b"a source",
    "weights/small/1/small-q4.gguf": b"weights",
}


def row(path: str, content: bytes) -> BundleRow:
    return BundleRow(path=path, sha256=hashlib.sha256(content).hexdigest(), size=len(content))


ROWS = [row(path, content) for path, content in FILES.items()]


def whole_bundle(tmp_path: Path) -> Path:
    """A bundle with nothing wrong, in a folder whose name is not one word."""
    folder = tmp_path / "a bundle"
    for path, content in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    (folder / INDEX).write_text(bundle.render_index(MADE, ["debian-13", "debian-12"], [NEWER, OLDER], ROWS))
    return folder


folder = pytest.fixture(whole_bundle)


def refusal(folder: Path) -> list[str]:
    """The refusal of a bundle, without the index's path that each line begins with."""
    with pytest.raises(Invalid) as refused:
        bundle.load_bundle(folder)
    lines = str(refused.value).splitlines()
    assert [line.startswith(f"{folder / INDEX}: ") for line in lines] == [True] * len(lines), lines
    return [line.removeprefix(f"{folder / INDEX}: ") for line in lines]


def test_a_bundle_is_what_its_index_says(folder: Path) -> None:
    found = bundle.load_bundle(folder)
    assert (found.folder, found.systems) == (folder, ("debian-12", "debian-13"))
    assert sorted(row.path for row in found.rows) == sorted(FILES)


def test_a_file_is_found_by_its_hash_and_goes_by_the_locks_name(folder: Path) -> None:
    found = bundle.load_bundle(folder)
    digest = hashlib.sha256(b"weights").hexdigest()
    wanted, other = sample_artefact(file="other-name.gguf", sha256=digest), sample_artefact()
    file = LocalFile(folder / "weights/small/1/small-q4.gguf", "other-name.gguf", digest, 7)
    assert (found.find(wanted), found.find(other)) == (file, None)
    assert found.files([other, wanted]) == (file,)


def test_each_system_has_its_own_packages(folder: Path) -> None:
    found = bundle.load_bundle(folder)
    older = found.packages("debian-12")
    names = {f"packages/debian-12/{path}": name for name, path in older.places}
    assert names == {one.path: one.sha256 for one in ROWS if "debian-12" in one.path}
    assert ({file.name for file in older.files}, older.suites) == (set(names.values()), (OLDER,))
    assert {file.path for file in found.packages("debian-13").files} == {folder / p for p in FILES if "debian-13" in p}
    assert found.packages("debian-1") == found.packages("ubuntu-24.04") == BundledPackages()


def test_of_packages_the_files_of_some_are_sent_and_all_that_is_signed(folder: Path) -> None:
    found = bundle.load_bundle(folder).packages("debian-12")
    assert found.versions == {"curl": "8.14+deb12"}
    assert found.keyring == "/usr/share/keyrings/debian-archive-keyring.gpg"
    assert found.with_files_of(["curl"]) == found
    fewer = found.with_files_of(["cmake"])
    assert (fewer.places, fewer.suites) == (found.places, found.suites)
    names = {"InRelease", "Packages"}
    assert {file.path.name for file in fewer.files} == names
    assert {file.path.name for file in found.files} == {*names, "curl_8.14+deb12_amd64.deb"}


def test_the_same_files_are_the_same_text_in_whatever_order_they_come() -> None:
    systems, suites, rows = ["debian-12", "debian-13"], [OLDER, NEWER], ROWS[:4]
    texts = {
        bundle.render_index(MADE, two, both, order)
        for order in permutations(rows)
        for two in permutations(systems)
        for both in permutations(suites)
    }
    assert len(texts) == 1
    (text,) = texts
    assert (
        len(
            {
                *texts,
                bundle.render_index(MADE, systems, suites, rows[1:]),
                bundle.render_index(MADE, systems, [OLDER], rows),
            }
        )
        == 3
    )
    # of the time, only the one line
    other = bundle.render_index("2026-11-21 12:00:01 UTC", systems, suites, rows)
    assert [a for a, b in zip(text.splitlines(), other.splitlines(), strict=True) if a != b] == [f' "made": "{MADE}",']


def changed(**changes: object) -> Callable[[dict[str, Any]], object]:
    return lambda index: index.update(changes)


def first(sealed: bool = True, **changes: object) -> Callable[[dict[str, Any]], object]:
    """The first row changed, with a digest that says so or the old one."""

    def change(index: dict[str, Any]) -> None:
        index["files"][0].update(changes)
        if sealed:
            rows = [BundleRow.model_construct(**one) for one in index["files"]]
            index["digest"] = bundle.index_digest([OLDER, NEWER], rows)

    return change


def of_suite(**changes: object) -> Callable[[dict[str, Any]], object]:
    return lambda index: index["suites"][0].update(changes)


RESEALED = "must be the SHA-256 of the rows: one was changed"
INSIDE = "is refused: must be a path inside the folder: letters, digits and ._+~-"
CHANGES: list[tuple[str, Callable[[dict[str, Any]], object], list[str]]] = [
    ("a later format", changed(schema=3), ["schema: 3 is refused: must be 2"]),
    (
        "an earlier format",
        changed(schema=1),
        ["schema: 1 is refused: must be 2: earlier bundles were not signed; recreate"],
    ),
    ("no format", lambda index: index.pop("schema"), ["schema: missing"]),
    ("no digest", lambda index: index.pop("digest"), ["digest: missing"]),
    ("no rows", lambda index: index.pop("files"), ["files: missing"]),
    (
        "a digest that is invalid",
        changed(digest="x"),
        ["digest: 'x' is refused: must be 64 lowercase hexadecimal digits"],
    ),
    ("a key nobody knows", changed(file=[]), ['file: unknown key; did you mean "files"?; allowed: ']),
    ("systems nobody has", changed(systems=["arch-1"]), ["systems[0]: 'arch-1' is refused: must be a system, such as"]),
    ("another hash in a row", first(sealed=False, sha256="0" * 64), [RESEALED]),
    ("a row less", lambda index: index["files"].pop(), [RESEALED]),
    ("a hash that is invalid", first(sha256="0"), ["files[0].sha256: '0' is refused: must be 64 lowercase"]),
    ("a size below nothing", first(size=-1), ["files[0].size: -1 is refused: must be"]),
    ("a size in words", first(sealed=False, size="9"), ["files[0].size: '9' is refused: must be a"]),
    ("up and out", first(path="../secret"), [f"files[0].path: '../secret' {INSIDE}"]),
    ("out from inside", first(path="packages/../../secret"), [INSIDE]),
    ("up at the end", first(path="packages/.."), [INSIDE]),
    ("from the root", first(path="/etc/passwd"), [INSIDE]),
    ("of two words", first(path="weights/a b"), [INSIDE]),
    ("with a new line", first(path="weights/a\n"), [INSIDE]),
    ("with another system's slash", first(path="..\\secret"), [INSIDE]),
    ("two things", changed(schema="2", made=""), ["made: '' is refused", "schema: '2' is refused: must be 2"]),
    ("a key nobody knows in a row", first(sealed=False, mode="755"), ["files[0].mode: unknown key; allowed: "]),
    ("a key nobody knows in a suite", of_suite(key="mine.gpg"), ["suites[0].key: unknown key"]),
    ("a suite less", lambda index: index["suites"].pop(), [RESEALED]),
    ("a suite of one's own", of_suite(suite="../../x"), ["suites[0].suite: '../../x' is refused: must be letters"]),
    ("an archive below none", of_suite(archive=-1), ["suites[0].archive: -1 is refused: must be at least 0"]),
    ("a component with a space", of_suite(components=["main x"]), ["suites[0].components[0]: 'main x' is refused"]),
    ("no component", of_suite(components=[]), ["suites[0].components: "]),
    (
        "a file twice",
        lambda index: index["files"].append(index["files"][0]),
        ["is refused: must be one row per file: "],
    ),
]


@pytest.mark.parametrize(("change", "essence"), [c[1:] for c in CHANGES], ids=[c[0] for c in CHANGES])
def test_an_index_that_is_wrong_is_refused_with_a_line_a_mistake(folder, change, essence):
    index = json.loads((folder / INDEX).read_text())
    change(index)
    (folder / INDEX).write_text(json.dumps(index))
    lines = refusal(folder)
    assert [part in line for part, line in zip(essence, lines, strict=True)] == [True] * len(lines), lines


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"schema": 1' + b"}" * 2],
    ids=["empty", "cut", "no text", "deep", "two ends"],
)
def test_invalid_json_is_refused_in_one_line(folder: Path, content: bytes) -> None:
    (folder / INDEX).write_bytes(content)
    assert refusal(folder) == [f"the bundle: is not JSON: {AGAIN}"]


@pytest.mark.parametrize("content", [b"[]", b"1", b"null", b'"x"'])
def test_json_that_is_no_index_is_refused_in_one_line(folder: Path, content: bytes) -> None:
    (folder / INDEX).write_bytes(content)
    (line,) = refusal(folder)
    assert line.endswith("is refused: must be a table of keys")


def test_a_folder_that_is_no_bundle_is_refused_in_one_line(tmp_path: Path) -> None:
    assert refusal(tmp_path / "gone") == [f"the bundle: No such file or directory: {AGAIN}"]
    (tmp_path / "file").touch()
    assert refusal(tmp_path / "file") == [f"the bundle: Not a directory: {AGAIN}"]


def test_every_file_that_is_missing_or_has_another_size_is_named(folder: Path) -> None:
    (folder / "sources/engine-1.0.tar.gz").unlink()
    (folder / "weights/small/1/small-q4.gguf").write_bytes(b"weigh")
    (folder / NEWER.folder / LIST).unlink()
    (folder / NEWER.folder / LIST).mkdir()
    assert refusal(folder) == [
        f"{NEWER.folder}/{LIST}: is not a file: {AGAIN}",
        f"sources/engine-1.0.tar.gz: No such file or directory: {AGAIN}",
        f"weights/small/1/small-q4.gguf: has 5 bytes, but 7 are listed: {AGAIN}",
    ]


def test_a_link_that_leads_nowhere_is_missing_and_one_to_the_file_is_the_file(folder: Path) -> None:
    weight = folder / "weights/small/1/small-q4.gguf"
    weight.rename(folder / "elsewhere")
    weight.symlink_to(folder / "elsewhere")
    assert bundle.load_bundle(folder).rows
    weight.unlink()
    weight.symlink_to(weight)
    assert refusal(folder) == [f"weights/small/1/small-q4.gguf: Too many levels of symbolic links: {AGAIN}"]


def test_files_of_an_index_are_known_without_fetching_them(folder: Path) -> None:
    (folder / "sources/engine-1.0.tar.gz").unlink()
    assert bundle.listed_paths(folder) == set(FILES)
    text = (folder / INDEX).read_text()
    for broken in (text.replace("sources/engine", "sources/other"), text[:-10], ""):
        (folder / INDEX).write_text(broken)
        assert bundle.listed_paths(folder) == set()
    (folder / INDEX).unlink()
    assert bundle.listed_paths(folder) == set()


def test_a_files_bytes_are_looked_at_before_it_is_sent(folder: Path) -> None:
    files = bundle.load_bundle(folder).packages("debian-12").files
    (found,) = (file for file in files if file.path == folder / OLDER.folder / LIST)
    assert found.refusal() == ""
    found.path.write_bytes(b"Package: cUrl\n")
    digest = hashlib.sha256(b"Package: cUrl\n").hexdigest()
    assert found.refusal() == f"{found.path} has SHA-256 {digest}, but its bundle says {found.sha256}: {AGAIN}"
    found.path.unlink()
    assert found.refusal() == f"{found.path}: No such file or directory"
    found.path.mkdir()
    assert found.refusal() == f"{found.path}: Is a directory"


def test_a_file_that_cannot_be_read_is_reported() -> None:
    unreadable = LocalFile(Path("/proc/self/mem"), "mem", "0" * 64, 1)
    assert unreadable.refusal() == "/proc/self/mem: Input/output error"


@pytest.mark.parametrize("sealed", [INDEX, "sources/engine-1.0.tar.gz", f"{OLDER.folder}/InRelease"])
def test_a_pipe_or_device_in_a_files_place_is_not_read(folder: Path, sealed: str) -> None:
    for target in ("/dev/zero", "/dev/full"):
        (folder / sealed).unlink()
        (folder / sealed).symlink_to(target)
        assert "is not a file" in "\n".join(refusal(folder))
    (folder / sealed).unlink()
    os.mkfifo(folder / sealed)
    assert "is not a file" in "\n".join(refusal(folder))


def test_an_index_of_no_likely_size_is_not_read(folder: Path) -> None:
    with (folder / INDEX).open("r+b") as file:
        file.truncate(1 << 40)
    assert refusal(folder) == [f"the bundle: is larger than 64 MiB: {AGAIN}"]
    assert bundle.listed_paths(folder) == set()
