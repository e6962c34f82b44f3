"""The lock: other schemas, halves, doubles and doubtful sources are refused."""

from itertools import permutations
from pathlib import Path

import pytest

from rigwright.problems import Invalid
from rigwright.supply.lock import LOCK_HEADER, Artefact, Lock, LockFile, render_lock, rows_digest
from rigwright.toml import load_toml
from tests.lock_files import render_sealed_lock, reseal_text
from tests.unit.sample_texts import LOCK, SOURCE_ROW, WEIGHT_ROW
from tests.unit.samples import SOURCE, sample_artefact, sample_wheel


def load(folder: Path, text: str) -> Lock:
    (folder / "a.lock.toml").write_text(text)
    return Lock.load([folder])


def refusal(folder: Path, text: str) -> list[str]:
    with pytest.raises(Invalid) as caught:
        load(folder, text)
    return str(caught.value).splitlines()


def changed(old: str, new: str) -> str:
    assert old in LOCK
    return reseal_text(LOCK.replace(old, new))


def grouped(row: Artefact, key: str, value: str) -> str:
    return render_lock([row.model_copy(update={key: value})], "catalog/a.toml")


def test_a_lock_is_read(tmp_path: Path) -> None:
    lock = load(tmp_path, LOCK)
    assert sorted(lock.artefacts) == ["engine-source", "small"]
    assert (lock.artefacts["small"].sha256, lock.artefacts["small"].size) == ("b" * 64, 2097152)


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
        (changed("artefacts = 2", ""), "artefacts: missing"),
        (changed("artefacts = 2", "artefacts = 3"), "artefacts: 3 is refused: must be the number of rows, 2"),
        (changed("artefacts = 2", "artefacts = 2.0"), "artefacts: 2.0 is refused"),
        (changed("artefacts = 2", "artefacts = true"), "artefacts: True is refused"),
        (changed("artefacts = 2", "artefacts = -2"), "artefacts: -2 is refused"),
        (LOCK[: LOCK.rindex("[[artefact]]")], "artefacts: 2 is refused: must be the number of rows, 1"),
        (changed("schema = 1", "schema = 1\nschema = 1"), "the file: cannot be read as TOML"),
        (changed("schema = 1", "schma = 1"), 'schma: unknown key; did you mean "schema"?'),
        (changed('name = "small"', 'name = "small"\nname = "small"'), "the file: cannot be read as TOML"),
        (changed('name = "small"', 'name = "small"\nmarker = "python_version < \'3\'"'), "artefact[1].marker: "),
        (grouped(sample_wheel(), "marker", "pyhton_version < '3'"), "artefact[0].marker: "),
        (grouped(sample_wheel(), "marker", "python_version < '3'\n"), "artefact[0].marker: "),
        (grouped(sample_wheel(), "group", "../tools"), "artefact[0].group: '../tools' is refused"),
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
def test_an_incomplete_lock_is_refused_with_its_place(tmp_path: Path, text: str, place: str) -> None:
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
    twice = render_sealed_lock(SOURCE_ROW, WEIGHT_ROW, WEIGHT_ROW)
    assert refusal(tmp_path, twice) == [f"{path}: artefact.small: is listed twice"]
    (tmp_path / "b.lock.toml").write_text(render_sealed_lock(SOURCE_ROW))
    assert refusal(tmp_path, LOCK) == [f"{tmp_path / 'b.lock.toml'}: artefact.engine-source: is listed twice"]


def test_a_later_folders_row_is_over_an_earlier_ones(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    (first / "a.lock.toml").write_text(LOCK)
    (second / "a.lock.toml").write_text(render_sealed_lock(WEIGHT_ROW.replace("b" * 64, "c" * 64)))
    artefacts = Lock.load([first, second]).artefacts
    assert (artefacts["small"].sha256, artefacts["engine-source"].sha256) == ("c" * 64, "a" * 64)


def test_mistakes_of_all_files_are_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "b.lock.toml").write_text(f'schema = 9\nartefacts = 0\ndigest = "{rows_digest([])}"')
    lines = refusal(tmp_path, changed("size = 1000", "size = -1").replace("b" * 64, "x"))
    assert [line.split(": ")[1] for line in lines] == ["artefact[0].size", "artefact[1].sha256", "schema"]


ROWS = [
    SOURCE,
    sample_artefact(),
    sample_wheel("tool", marker="python_full_version < '3.11' and sys_platform == 'linux'", version="2.9.0+cu130"),
    sample_wheel("tool", file="tool-1.0-cp311-cp311-manylinux_2_17_x86_64.whl"),
    sample_wheel("other", group="more", marker='os_name == "posix"'),
]
WHOLE = render_lock(ROWS, "catalog/a.toml")


def test_a_written_table_is_read_unchanged(tmp_path: Path) -> None:
    lock = load(tmp_path, WHOLE)
    assert {row.name: row for row in ROWS if not row.group} == lock.artefacts
    assert lock.groups == {"tools": (ROWS[3], ROWS[2]), "more": (ROWS[4],)}


def test_the_same_rows_are_the_same_bytes_in_whatever_order_they_come() -> None:
    assert {render_lock(order, "catalog/a.toml") for order in permutations(ROWS)} == {WHOLE}
    assert WHOLE.startswith(f"{LOCK_HEADER} from catalog/a.toml")


def test_a_file_twice_in_a_group_is_refused_and_a_name_is_not(tmp_path: Path) -> None:
    path = tmp_path / "a.lock.toml"
    twice = render_lock([sample_wheel("tool"), sample_wheel("tool")], "x")
    assert refusal(tmp_path, twice) == [f"{path}: artefact.tools.tool-1.0-py3-none-any.whl: is listed twice"]
    both = [sample_wheel("tool"), sample_wheel("tool", group="more"), sample_wheel("tool", group=None)]
    assert load(tmp_path, render_lock(both, "x")).artefacts == {"tool": both[2]}


def test_a_later_folders_group_replaces_an_earlier_ones_whole(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    (first / "a.lock.toml").write_text(
        render_lock([sample_wheel("a"), sample_wheel("b"), sample_wheel("c", group="more")], "x")
    )
    (second / "a.lock.toml").write_text(render_lock([sample_wheel("b", version="2")], "x"))
    assert Lock.load([first, second]).groups == {
        "tools": (sample_wheel("b", version="2"),),
        "more": (sample_wheel("c", group="more"),),
    }


def test_a_lock_that_was_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.lock.toml"
    taken = []
    for length in range(len(WHOLE)):
        path.write_text(WHOLE[:length])
        try:
            load_toml(path, LockFile)
        except Invalid:
            continue
        taken.append(WHOLE[length:])
    assert taken == ["\n"]


# neighbours, what TOML gives a meaning, and what hides inside numbers
SPOILERS = ("_", '"', "'", "#", ".", "0", "1", "e", "\\", "\n", " ", "]", "+", "-")


@pytest.mark.parametrize(
    "spoiler",
    [None, *(pytest.param(one, marks=[] if one in "'\n0" else [pytest.mark.all_only]) for one in SPOILERS)],
    ids=ascii,
)
def test_another_character_anywhere_is_refused(tmp_path: Path, spoiler: str | None) -> None:
    path = tmp_path / "a.lock.toml"
    path.write_text(WHOLE)
    whole = load_toml(path, LockFile)
    begin = WHOLE.index("schema")
    for place in range(begin, len(WHOLE)):
        old = WHOLE[place]
        new = spoiler or chr(ord(old) ^ 1)
        if old.isspace() or old == new:
            continue
        path.write_text(WHOLE[:place] + new + WHOLE[place + 1 :])
        try:
            taken = load_toml(path, LockFile)
        except Invalid:
            continue
        # a comment, a space or another spelling of the same character is no other value
        assert taken == whole, WHOLE[max(begin, place - 40) : place + 1]
