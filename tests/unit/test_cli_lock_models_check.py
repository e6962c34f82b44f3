"""`rigwright lock --check` of repositories: what moved on the hub, as a diff."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.hub.faults import Status
from tests.unit.ggufs import gguf
from tests.unit.hub_world import FILES, GGUF, NAME, TOKEN, HubWorld, hub_world


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubWorld]:
    with hub_world(tmp_path / "box", monkeypatch) as made:
        made.locked()
        yield made


def moved(world: HubWorld, files: dict[str, bytes | Path], **said: str | bool) -> str:
    """Move the branch; what `--check` says of that."""
    new = world.hub.repository(NAME, files, **{"licence": "apache-2.0", **said})  # type: ignore[arg-type]
    return f"model: org/name main is {new[:7]} now, locked is {world.commit[:7]}"


def test_nothing_moved(world: HubWorld) -> None:
    assert world.checked(0) == ["nothing changed"]


def test_a_new_commit_is_told_file_by_file(world: HubWorld) -> None:
    files = {**FILES, "config.json": b"{}", "q4/model.gguf": gguf(GGUF * 2), "new.json": b"[]"}
    del files["README.md"]
    said = moved(world, files)
    assert world.checked(1) == [
        said,
        "  - README.md",
        "  ~ config.json  8 bytes -> 2 bytes",
        "  + new.json  2 bytes",
        "  ~ q4/model.gguf  25.7 kB -> 51.6 kB",
    ]


def test_a_small_file_of_the_same_size_is_seen_to_be_another_one(world: HubWorld) -> None:
    said = moved(world, {**FILES, "config.json": b'{"b": 1}'})
    assert world.checked(1) == [said, "  ~ config.json  8 bytes"]


def test_a_commit_that_leaves_the_selected_files_alone_says_so(world: HubWorld) -> None:
    world.catalog('include = ["*.gguf"]')
    world.locked()
    said = moved(world, {**FILES, "README.md": b"# Another"})
    assert world.checked(1) == [f"{said}, with the same files"]


def test_a_licence_and_a_gate_are_told(world: HubWorld) -> None:
    moved(world, FILES, licence="other", gated=True, token=TOKEN)
    assert world.checked(1) == [
        "model: the licence is other now, locked is apache-2.0",
        "model: is gated now, when it was locked it was not",
    ]


def test_a_history_that_was_written_anew(world: HubWorld) -> None:
    world.hub.gone(NAME)
    said = moved(world, {**FILES, "mmproj.gguf": gguf(b"other")})
    assert world.checked(1) == [f"{said}, which no longer exists", "  ~ mmproj.gguf  137 bytes -> 133 bytes"]


def test_without_the_locked_commit_a_small_file_is_not_said_to_be_the_same(world: HubWorld) -> None:
    world.hub.gone(NAME)
    said = moved(world, {**FILES, "config.json": b'{"b": 1}'})
    assert world.checked(1) == [f"{said}, which no longer exists, with files of the same names and sizes"]


def test_a_repository_that_is_gone(world: HubWorld) -> None:
    world.hub.gone(NAME)
    (line,) = world.checked(1)
    assert line.startswith("model: the hub at URL has no repository org/name, or hides it")


def test_a_hub_that_does_not_answer_is_not_taken_for_one_where_nothing_moved(world: HubWorld) -> None:
    world.hub.fault(Status(500, where="api"))
    (line,) = world.checked(3)
    assert line.startswith("could not check: model: the hub at URL answers 500")


def test_the_locked_commit_with_another_hash(world: HubWorld) -> None:
    repository = world.hub.repositories[NAME]
    repository.commits[world.commit]["mmproj.gguf"] = repository.commits[world.commit]["q4/model.gguf"]
    assert world.checked(1) == ["  ~ mmproj.gguf  137 bytes -> 25.7 kB"]


def test_names_cannot_write_on_the_terminal(world: HubWorld) -> None:
    said = moved(world, {**FILES, "a\x1b[2J\nb": b"x"})
    assert world.checked(1) == [said, "  + a\\x1b[2J\\nb  1 bytes"]


def test_another_repository_than_the_locks_is_told(world: HubWorld) -> None:
    world.hub.repository("org/other", FILES)
    world.catalog(text='[inputs.model]\nkind = "weight"\nrepository = "org/other"\n')
    assert world.checked(1) == ["model is locked from org/name, not org/other"]


def test_other_patterns_than_the_locks_are_told(world: HubWorld) -> None:
    world.catalog('include = ["*.gguf"]')
    lines = world.checked(1)
    assert lines[0] == "model is locked with a different version, or different include and exclude patterns"
    assert lines[1:] == ["  - README.md", "  - config.json"]
