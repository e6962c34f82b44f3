"""`rigwright lock --from-dir` of an operator's own weights of many files."""

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.file_server import LoopbackFileServer, complete_file
from tests.unit.hub_world import HubLockFixture, make_hub_fixture

CATALOG = """
[inputs.model]
kind = "weight"
version = "3"
include = ["*.bin", "*.json"]
exclude = ["skipped/"]
sources = ["office:models/mine"]
"""
FILES = {"one.bin": b"one" * 9, "sub/config.json": b"{}", "notes.txt": b"no", "skipped/x.json": b"{}"}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubLockFixture]:
    with make_hub_fixture(tmp_path / "box", monkeypatch) as made:
        made.write_catalog(text=CATALOG)
        for path, content in FILES.items():
            there = tmp_path / "box" / "own" / path
            there.parent.mkdir(parents=True, exist_ok=True)
            there.write_bytes(content)
        yield made


def own_folder(world: HubLockFixture) -> Path:
    return world.folder / "own"


def test_selected_files_are_hashed(world: HubLockFixture) -> None:
    assert world.lock_lines("--from-dir", str(own_folder(world))) == ["+ model model 3 29 bytes in 2 files"]
    rows = world.locked_rows
    assert {path: (row.sha256, row.size) for path, row in rows.items()} == {
        path: (hashlib.sha256(FILES[path]).hexdigest(), len(FILES[path])) for path in ("one.bin", "sub/config.json")
    }
    row = rows["sub/config.json"]
    assert (row.version, row.folder, row.repository) == ("3", "sub", None)
    assert row.sources == ("office:models/mine/sub/config.json",)
    assert not world.hub.asked


def test_the_folder_may_lie_in_the_one_that_is_given(world: HubLockFixture) -> None:
    (world.folder / "all").mkdir()
    own_folder(world).rename(world.folder / "all" / "mine")
    world.lock_lines("--from-dir", str(world.folder / "all"))
    assert sorted(world.locked_rows) == ["one.bin", "sub/config.json"]


def test_locked_rows_stay_without_the_files(world: HubLockFixture) -> None:
    world.lock_lines("--from-dir", str(own_folder(world)))
    text = world.lock_text
    for options in ((), ("--refresh",), ("--from-dir", str(world.folder / "catalog"))):
        assert world.lock_lines(*options) == ["no change"]
    assert world.lock_text == text


def test_a_changed_file_is_seen_where_the_folder_is_called_so_or_all_is_asked_anew(world: HubLockFixture) -> None:
    world.lock_lines("--from-dir", str(own_folder(world)))
    (own_folder(world) / "one.bin").write_bytes(b"two")
    changed = ["~ model model 3 5 bytes in 2 files, 0 new, 1 changed, 0 gone"]
    assert world.lock_lines("--refresh", "--from-dir", str(own_folder(world))) == changed
    (own_folder(world) / "one.bin").write_bytes(b"3")
    mine = own_folder(world).rename(world.folder / "mine")
    assert world.lock_lines("--from-dir", str(mine)) == ["~ model model 3 3 bytes in 2 files, 0 new, 1 changed, 0 gone"]


OTHER = CATALOG.replace("inputs.model", "inputs.other").replace("models/mine", "models/theirs")


@pytest.mark.parametrize("called", ["own", "theirs"])
def test_one_checkpoints_folder_is_not_taken_for_anothers(world: HubLockFixture, called: str) -> None:
    world.write_catalog(OTHER, text=CATALOG)
    given = own_folder(world).rename(world.folder / called)
    done = world.run_lock("--from-dir", str(given))
    assert (done.exit_code, world.lock_text) == (1, "")
    said = f"inputs.model: cannot be locked: they are your own files, and {given} may be another input's: give a folder"
    assert f"{said} with mine in it, a link to it will do" in done.stderr
    (world.folder / "all").mkdir()
    for name in ("mine", "theirs"):
        (world.folder / "all" / name).symlink_to(given)
    world.lock_lines("--from-dir", str(world.folder / "all"))


def test_another_version_is_hashed_anew(world: HubLockFixture) -> None:
    world.lock_lines("--from-dir", str(own_folder(world)))
    (own_folder(world) / "one.bin").write_bytes(b"two")
    world.write_catalog(text=CATALOG.replace('"3"', '"4"'))
    assert world.lock_error() == ("cannot be locked: these are your own files: provide their folder with --from-dir")
    assert world.lock_lines("--from-dir", str(own_folder(world))) == [
        "~ model model 3 -> 4 5 bytes in 2 files, 0 new, 1 changed, 0 gone"
    ]


def test_a_rig_that_uses_it_learns_which_mirror_it_lacks(world: HubLockFixture) -> None:
    more = (
        '[models.one]\nfile = "model"\n[variants."llamacpp/one"]\nengine = "llama.cpp"\nmodel = "one"\ncontext = 4096'
    )
    world.write_catalog(more, text=CATALOG)
    world.write_rig(instances={"chat": {"variant": "llamacpp/one", "port": 8020}})
    done = world.run_lock("--from-dir", str(own_folder(world)))
    assert done.stderr == (
        f"Error: {world.folder}/rig.py: box.mirrors: model 3 has no address: the lock places it in the mirror office "
        '(office:models/mine); add "mirrors": {"office": ["https://..."]}\n'
    )


def test_without_a_folder_it_is_asked_for(world: HubLockFixture) -> None:
    assert world.lock_error() == ("cannot be locked: these are your own files: provide their folder with --from-dir")


def test_check_looks_at_the_mirrors(world: HubLockFixture, files: LoopbackFileServer) -> None:
    world.lock_lines("--from-dir", str(own_folder(world)))
    assert world.check_lines(0)[:-1] == [
        f"not checked: model 3 has no address here: office:models/mine/{path}"
        for path in ("one.bin", "sub/config.json")
    ]
    files.serve("office/models/mine/one.bin", complete_file(FILES["one.bin"]))
    files.serve("office/models/mine/sub/config.json", complete_file(b"other"))
    world.write_rig(mirrors={"office": [f"{files.url}/office"]})
    assert any(line.startswith("model 3: config.json has 5 bytes at ") for line in world.check_lines(1))


def linked_file(folder: Path) -> None:
    (folder / "notes.txt").rename(folder / "real")
    (folder / "two.json").symlink_to("real")


def linked_folder(folder: Path) -> None:
    (folder / "link").symlink_to("sub")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (linked_file, "OWN/two.json is a link or not a file: provide a folder with the files themselves"),
        (linked_folder, "OWN/link is a link: provide a folder with the files themselves, or exclude it"),
        (lambda own: os.mkfifo(own / "two.json"), "OWN/two.json is a link or not a file: provide a folder"),
        (lambda own: (own / "two.json").touch(), "OWN/two.json is empty: exclude it"),
        (lambda own: (own / "a b.json").write_text("x"), "OWN: 'a b.json' is not a valid name"),
        (
            lambda own: [(own / name).unlink() for name in ("one.bin", "sub/config.json")],
            "include and exclude select no file of OWN, which has notes.txt, skipped/x.json",
        ),
    ],
)
def test_special_files_are_refused(world: HubLockFixture, change: Callable[[Path], object], text: str) -> None:
    change(own_folder(world))
    said = world.lock_error("--from-dir", str(own_folder(world)))
    assert said.startswith(f"cannot be locked: {text.replace('OWN', 'FOLDER/own')}")


def test_files_of_git_and_of_the_hubs_client_are_no_part_of_it(world: HubLockFixture) -> None:
    for path in (".git/config.json", ".cache/huggingface/x.json", "sub/.gitattributes"):
        (own_folder(world) / path).parent.mkdir(parents=True, exist_ok=True)
        (own_folder(world) / path).write_text("x")
    world.write_catalog(text=CATALOG.replace('"*.bin", "*.json"', '"*"'))
    world.lock_lines("--from-dir", str(own_folder(world)))
    assert sorted(world.locked_rows) == ["notes.txt", "one.bin", "sub/config.json"]


def test_an_excluded_link_is_no_matter(world: HubLockFixture) -> None:
    linked_folder(own_folder(world))
    world.write_catalog(text=CATALOG.replace('"skipped/"', '"skipped/", "link/"'))
    world.lock_lines("--from-dir", str(own_folder(world)))
    assert sorted(world.locked_rows) == ["one.bin", "sub/config.json"]
