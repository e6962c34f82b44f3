"""The lock: other schemas, halves, doubles and doubtful sources are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from rigwright.lock import Lock
from rigwright.problems import Invalid
from tests.unit.samples import LOCK, SOURCE_ROW, WEIGHT_ROW


def load(folder: Path, text: str) -> Lock:
    (folder / "a.lock.toml").write_text(text)
    return Lock.load([folder])


def refusal(folder: Path, text: str) -> list[str]:
    with pytest.raises(Invalid) as caught:
        load(folder, text)
    return str(caught.value).splitlines()


def changed(old: str, new: str) -> str:
    assert old in LOCK
    return LOCK.replace(old, new)


def test_a_lock_is_read(tmp_path: Path) -> None:
    lock = load(tmp_path, LOCK)
    assert sorted(lock.artefacts) == ["engine-source", "small"]
    assert lock.artefacts["small"].sha256 == "b" * 64
    assert lock.artefacts["small"].size == 2097152


def test_a_folder_without_locks_locks_nothing(tmp_path: Path) -> None:
    (tmp_path / "notes.toml").write_text("this is no lock")
    assert Lock.load([tmp_path, tmp_path / "gone"]).artefacts == {}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "schema: missing"),
        (changed("schema = 1", ""), "schema: missing"),
        (changed("schema = 1", "schema = 2"), "schema: 2 is refused: must be 1"),
        (changed("schema = 1", 'schema = "1"'), "schema: '1' is refused: must be the number 1"),
        (changed("schema = 1", "schema = true"), "schema: True is refused: must be the number 1"),
        (changed("schema = 1", "schema = 1.0"), "schema: 1.0 is refused: must be the number 1"),
        (LOCK[: len(LOCK) // 2], "the file: cannot be read as TOML"),
        (LOCK[:-3], "the file: cannot be read as TOML"),
        (LOCK[: LOCK.rindex("size")], "artefact[1].size: missing"),
        (changed("sha256", "sha512"), "artefact[0].sha512: unknown key"),
        (changed("[[artefact]]", "[[artifact]]"), 'artifact: unknown key; did you mean "artefact"?'),
        (changed("a" * 64, "A" * 64), "artefact[0].sha256: "),
        (changed("a" * 64, "a" * 63), "artefact[0].sha256: "),
        (changed("a" * 64, ""), "artefact[0].sha256: "),
        (changed("size = 1000", "size = 0"), "artefact[0].size: 0 is refused"),
        (changed("size = 1000", 'size = "1000"'), "artefact[0].size: '1000' is refused"),
        (changed('kind = "weight"', 'kind = "weights"'), "artefact[1].kind: 'weights' is refused"),
        (changed('"engine-1.0.tar.gz"', '"../engine"'), "artefact[0].file: '../engine' is refused"),
        (changed('"engine-1.0.tar.gz"', '"-engine"'), "artefact[0].file: '-engine' is refused"),
        (changed('version = "1.0"', 'version = "1/../.."'), "artefact[0].version: "),
        (changed('version = "1.0"', 'version = "1.0\\n"'), "artefact[0].version: "),
        (changed('name = "small"', 'name = "$(id)"'), "artefact[1].name: "),
        (changed('["store:small-q4.gguf"]', "[]"), "artefact[1].sources: "),
    ],
)
def test_what_is_no_whole_lock_is_refused_with_its_place(tmp_path: Path, text: str, place: str) -> None:
    lines = refusal(tmp_path, text)
    assert any(line.startswith(f"{tmp_path / 'a.lock.toml'}: {place}") for line in lines), lines


@pytest.mark.parametrize(
    "source",
    ["index:project", "store:a.gguf", "store:a/b/c-1.0+x.gguf", "http://127.0.0.1:80/a", "https://h/a?b=c&d=e%20f"],
)
def test_the_forms_of_a_source_are_taken(tmp_path: Path, source: str) -> None:
    lock = load(tmp_path, changed('["store:small-q4.gguf"]', f'["{source}"]'))
    assert lock.artefacts["small"].sources == (source,)


@pytest.mark.parametrize(
    "source",
    [
        "",
        "a.gguf",
        "store:",
        ":a.gguf",
        "store:../a",
        "store:a/../b",
        "http://host",
        "http://user@host/a",
        "ftp://host/a",
        "file:///a",
        "Store:a",
        "store:/a",
        "store:a/",
        "store:a//b",
        "store:./a",
        "store:-a",
        "store:a b",
        "store:a\\nb",
        "store:$(id)",
        "store:`id`",
        "store:a;id",
        "store:a'b",
        "store:a\\u0000",
        "store:a\\u2028b",
        "store:a#b",
        "st ore:a",
    ],
)
def test_any_other_source_is_refused(tmp_path: Path, source: str) -> None:
    lines = refusal(tmp_path, changed('["store:small-q4.gguf"]', f'["{source}"]'))
    assert all(line.startswith(f"{tmp_path / 'a.lock.toml'}: artefact[1].sources") for line in lines)


def test_one_name_twice_is_refused_in_a_file_and_in_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "a.lock.toml"
    assert refusal(tmp_path, LOCK + WEIGHT_ROW) == [f"{path}: artefact.small: is there twice"]
    (tmp_path / "b.lock.toml").write_text("schema = 1\n" + SOURCE_ROW)
    assert refusal(tmp_path, LOCK) == [f"{tmp_path / 'b.lock.toml'}: artefact.engine-source: is there twice"]


def test_a_later_folders_row_is_over_an_earlier_ones(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    (first / "a.lock.toml").write_text(LOCK)
    (second / "a.lock.toml").write_text("schema = 1\n" + WEIGHT_ROW.replace("b" * 64, "c" * 64))
    artefacts = Lock.load([first, second]).artefacts
    assert (artefacts["small"].sha256, artefacts["engine-source"].sha256) == ("c" * 64, "a" * 64)


def test_mistakes_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "b.lock.toml").write_text("schema = 9")
    lines = refusal(tmp_path, changed("size = 1000", "size = -1").replace("b" * 64, "x"))
    assert [line.split(": ")[1] for line in lines] == ["artefact[0].size", "artefact[1].sha256", "schema"]
