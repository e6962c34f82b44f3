"""`rigwright lock --check` against an index and a mirror on the loopback interface."""

from __future__ import annotations

import hashlib

import pytest

from tests.unit.file_server import status, whole
from tests.unit.ggufs import gguf
from tests.unit.lock_world import CATALOG, WEIGHTS, World


def test_nothing_moved(world: World) -> None:
    world.locked()
    size, last = world.checked(0)
    assert size.startswith("small 2026-11: only its size was compared, for http://")
    assert size.endswith("/store/small.gguf has no SHA-256")
    assert last == "nothing changed"
    assert world.fetched == ["store/small.gguf"]


def test_check_says_what_moved(world: World) -> None:
    world.locked()
    world.index.source("engine", "1.1")
    world.index.wheel("tool", "1.1", "part")
    world.index.wheel("part", "1.0", yanked="bad")
    world.index.wheel("part", "1.1")
    world.files.serve("store/small.gguf", whole(gguf(b"other")))
    lines = world.checked(1)
    assert "engine 1.0: the index has 1.1" in lines
    assert "part 1.0: part-1.0-py3-none-any.whl was yanked from the index: bad" in lines
    assert any(line.startswith("~ wheel env/tool 1.0 -> 1.1") for line in lines)
    assert any(line.startswith("small 2026-11: small.gguf has 133 bytes at ") for line in lines)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            lambda world: world.index.remove("engine", "engine-1.0.tar.gz"),
            "engine-1.0.tar.gz is no longer on the index",
        ),
        (lambda world: world.index.source("engine", "1.0", digest="f" * 64), "engine-1.0.tar.gz has another hash at"),
        (lambda world: world.files.serve("simple/engine/", status(404)), "engine: the index has no project engine"),
        (lambda world: world.files.serve("store/small.gguf", status(404)), "store/small.gguf answers 404"),
        (
            lambda world: world.files.serve("store/small.gguf", whole(WEIGHTS, ("ETag", f'"{"0" * 64}"'))),
            "another hash",
        ),
        (lambda world: world.catalog(CATALOG.replace("2026-11", "2026-12")), "with version 2026-11, not 2026-12"),
        (lambda world: world.catalog(CATALOG.replace("inputs.small", "inputs.large")), "large is not locked"),
        (
            lambda world: world.catalog(CATALOG.replace("inputs.small", "inputs.large")),
            "small is locked, but no longer an input",
        ),
        (lambda world: world.path.write_text(world.text[:-40]), "the file: cannot be read as TOML"),
    ],
)
def test_check_says_what_is_not_the_locked_file_any_more(world: World, change: object, text: str) -> None:
    world.locked()
    change(world)  # type: ignore[operator]
    assert any(text in line for line in world.checked(1))


def test_what_a_server_has_a_hash_of_is_compared_with_that(world: World) -> None:
    world.locked()
    world.files.serve("store/small.gguf", whole(WEIGHTS, ("ETag", f'"{hashlib.sha256(WEIGHTS).hexdigest()}"')))
    assert world.checked(0) == ["nothing changed"]


@pytest.mark.parametrize("path", ["simple/engine/", "simple/part/", "store/small.gguf"])
def test_check_that_could_not_look_says_so(world: World, path: str) -> None:
    world.locked()
    world.files.serve(path, status(403))
    assert any(line.startswith("could not check: ") for line in world.checked(3))
