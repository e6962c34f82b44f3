"""`rigwright lock --check` against an index and a mirror on the loopback interface."""

import hashlib

import pytest

from tests.unit.file_server import complete_file, error_status
from tests.unit.gguf_files import gguf_file
from tests.unit.lock_world import CATALOG, WEIGHTS, LockFixture


def test_nothing_moved(world: LockFixture) -> None:
    world.lock_lines()
    size, last = world.check_lines(0)
    assert size.startswith("small 2026-11: only its size was compared, for http://")
    assert size.endswith("/store/small.gguf has no SHA-256")
    assert (last, world.fetched_paths) == ("nothing changed", ["store/small.gguf"])


def test_check_says_what_moved(world: LockFixture) -> None:
    world.lock_lines()
    world.index.publish_source("engine", "1.1")
    world.index.publish_wheel("tool", "1.1", "part")
    world.index.publish_wheel("part", "1.0", yanked="bad")
    world.index.publish_wheel("part", "1.1")
    world.files.serve("store/small.gguf", complete_file(gguf_file(b"other")))
    lines = world.check_lines(1)
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
        (
            lambda world: world.index.publish_source("engine", "1.0", digest="f" * 64),
            "engine-1.0.tar.gz has another hash at",
        ),
        (
            lambda world: world.files.serve("simple/engine/", error_status(404)),
            "engine: the index has no project engine",
        ),
        (lambda world: world.files.serve("store/small.gguf", error_status(404)), "store/small.gguf answers 404"),
        (
            lambda world: world.files.serve("store/small.gguf", complete_file(WEIGHTS, ("ETag", f'"{"0" * 64}"'))),
            "another hash",
        ),
        (lambda world: world.write_catalog(CATALOG.replace("2026-11", "2026-12")), "with version 2026-11, not 2026-12"),
        (lambda world: world.write_catalog(CATALOG.replace("inputs.small", "inputs.large")), "large is not locked"),
        (
            lambda world: world.write_catalog(CATALOG.replace("inputs.small", "inputs.large")),
            "small is locked, but no longer an input",
        ),
        (lambda world: world.lock_path.write_text(world.lock_text[:-40]), "the file: cannot be read as TOML"),
    ],
)
def test_check_says_what_is_not_the_locked_file_any_more(world: LockFixture, change: object, text: str) -> None:
    world.lock_lines()
    change(world)  # type: ignore[operator]
    assert any(text in line for line in world.check_lines(1))


def test_a_file_is_compared_with_the_servers_hash(world: LockFixture) -> None:
    world.lock_lines()
    world.files.serve("store/small.gguf", complete_file(WEIGHTS, ("ETag", f'"{hashlib.sha256(WEIGHTS).hexdigest()}"')))
    assert world.check_lines(0) == ["nothing changed"]


@pytest.mark.parametrize("path", ["simple/engine/", "simple/part/", "store/small.gguf"])
def test_check_that_could_not_look_says_so(world: LockFixture, path: str) -> None:
    world.lock_lines()
    world.files.serve(path, error_status(403))
    assert any(line.startswith("could not check: ") for line in world.check_lines(3))
