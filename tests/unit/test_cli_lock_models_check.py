"""`rigwright lock --check` of repositories: moves on the hub, as a diff."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stand_ins.hub.faults import ErrorStatus
from tests.unit.gguf_files import gguf_file
from tests.unit.hub_world import FILES, GGUF, NAME, TOKEN, HubLockFixture, make_hub_fixture


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubLockFixture]:
    with make_hub_fixture(tmp_path / "box", monkeypatch) as made:
        made.lock_lines()
        yield made


def check_moved_branch(world: HubLockFixture, files: dict[str, bytes | Path], **said: str | bool) -> str:
    """Move the branch; the output of `--check` about that."""
    new = world.hub.add_commit(NAME, files, **{"licence": "apache-2.0", **said})  # type: ignore[arg-type]
    return f"model: org/name main is {new[:7]} now, locked is {world.commit[:7]}"


def test_nothing_moved(world: HubLockFixture) -> None:
    assert world.check_lines(0) == ["nothing changed"]


def test_a_new_commit_is_reported_file_by_file(world: HubLockFixture) -> None:
    files = {**FILES, "config.json": b"{}", "q4/model.gguf": gguf_file(GGUF * 2), "new.json": b"[]"}
    del files["README.md"]
    said = check_moved_branch(world, files)
    assert world.check_lines(1) == [
        said,
        "  - README.md",
        "  ~ config.json  8 bytes -> 2 bytes",
        "  + new.json  2 bytes",
        "  ~ q4/model.gguf  25.7 kB -> 51.6 kB",
    ]


def test_a_small_file_of_the_same_size_is_seen_to_be_another_one(world: HubLockFixture) -> None:
    said = check_moved_branch(world, {**FILES, "config.json": b'{"b": 1}'})
    assert world.check_lines(1) == [said, "  ~ config.json  8 bytes"]


def test_a_commit_that_leaves_the_selected_files_alone_says_so(world: HubLockFixture) -> None:
    world.write_catalog('include = ["*.gguf"]')
    world.lock_lines()
    said = check_moved_branch(world, {**FILES, "README.md": b"# Another"})
    assert world.check_lines(1) == [f"{said}, with the same files"]


def test_a_licence_and_a_gate_are_reported(world: HubLockFixture) -> None:
    check_moved_branch(world, FILES, licence="other", gated=True, token=TOKEN)
    assert world.check_lines(1) == [
        "model: the licence is other now, locked is apache-2.0",
        "model: is gated now, when it was locked it was not",
    ]


def test_a_history_that_was_written_anew(world: HubLockFixture) -> None:
    world.hub.remove_repository(NAME)
    said = check_moved_branch(world, {**FILES, "mmproj.gguf": gguf_file(b"other")})
    assert world.check_lines(1) == [f"{said}, which no longer exists", "  ~ mmproj.gguf  137 bytes -> 133 bytes"]


def test_without_the_locked_commit_a_small_file_is_not_said_to_be_the_same(world: HubLockFixture) -> None:
    world.hub.remove_repository(NAME)
    said = check_moved_branch(world, {**FILES, "config.json": b'{"b": 1}'})
    assert world.check_lines(1) == [f"{said}, which no longer exists, with files of the same names and sizes"]


def test_a_repository_that_is_gone(world: HubLockFixture) -> None:
    world.hub.remove_repository(NAME)
    (line,) = world.check_lines(1)
    assert line.startswith("model: the hub at URL has no repository org/name, or hides it")


def test_a_hub_that_does_not_answer_is_not_taken_for_one_where_nothing_moved(world: HubLockFixture) -> None:
    world.hub.add_fault(ErrorStatus(500, where="api"))
    (line,) = world.check_lines(3)
    assert line.startswith("could not check: model: the hub at URL answers 500")


def test_the_locked_commit_with_another_hash(world: HubLockFixture) -> None:
    repository = world.hub.repositories[NAME]
    repository.commits[world.commit]["mmproj.gguf"] = repository.commits[world.commit]["q4/model.gguf"]
    assert world.check_lines(1) == ["  ~ mmproj.gguf  137 bytes -> 25.7 kB"]


def test_names_cannot_write_on_the_terminal(world: HubLockFixture) -> None:
    said = check_moved_branch(world, {**FILES, "a\x1b[2J\nb": b"x"})
    assert world.check_lines(1) == [said, "  + a\\x1b[2J\\nb  1 bytes"]


def test_another_repository_than_the_locks_is_reported(world: HubLockFixture) -> None:
    world.hub.add_commit("org/other", FILES)
    world.write_catalog(text='[inputs.model]\nkind = "weight"\nrepository = "org/other"\n')
    assert world.check_lines(1) == ["model is locked from org/name, not org/other"]


def test_other_patterns_than_the_locks_are_reported(world: HubLockFixture) -> None:
    world.write_catalog('include = ["*.gguf"]')
    lines = world.check_lines(1)
    assert lines[0] == "model is locked with a different version, or different include and exclude patterns"
    assert lines[1:] == ["  - README.md", "  - config.json"]
