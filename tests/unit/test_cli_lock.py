"""`rigwright lock` against an index and a mirror on the loopback interface."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rigwright.cli import main
from rigwright.cli.resolving import web
from rigwright.lock import Lock
from tests.unit.file_server import FileServer, cut, file_server, status, whole
from tests.unit.index_server import Package, PackageIndex

WEIGHTS = bytes(range(256)) * 20_000
TAGGED = ("ETag", '"one"')

CATALOG = """
[inputs.engine]
kind = "source"
version = "1.0"
sources = ["index:engine"]

[inputs.small]
kind = "weight"
version = "2026-11"
sources = ["store:small.gguf"]

[inputs.env]
kind = "wheel"
requirements = ["tool"]
"""

INVENTORY = """
from rigwright.inventory import hosts

rigs = hosts({{"box": {{"ssh_hostname": "127.0.0.1", "mirrors": {{"store": ["{url}/gone", "{url}/store"]}}}}}})
"""


class World:
    """A box's folder, its mirror and the index, and `rigwright lock` over them."""

    def __init__(self, folder: Path, files: FileServer, form: str) -> None:
        self.folder = folder
        self.files = files
        self.index = PackageIndex(files, form)
        self.index.source("engine", "1.0", sized=form == "json")
        self.index.wheel("tool", "1.0", "part>=1", "old ; python_full_version < '3.11'", "win ; os_name == 'nt'")
        self.index.wheel("part", "1.0")
        self.index.wheel("old", "1.0")
        self.index.wheel("win", "1.0")
        files.serve("store/small.gguf", whole(WEIGHTS, TAGGED))
        (folder / "catalog").mkdir()
        self.catalog(CATALOG)
        (folder / "rig.py").write_text(INVENTORY.format(url=files.url))

    def catalog(self, text: str, name: str = "mine") -> None:
        (self.folder / "catalog" / f"{name}.toml").write_text(text)

    def lock(self, *options: str) -> Result:
        return CliRunner().invoke(main, ["lock", str(self.folder / "rig.py"), *options])

    def locked(self) -> list[str]:
        done = self.lock()
        assert done.exit_code == 0, done.output
        return done.stdout.splitlines()

    def checked(self, code: int) -> list[str]:
        before = self.text
        done = self.lock("--check")
        assert (done.exit_code, self.text) == (code, before), done.output
        return done.output.splitlines()

    @property
    def path(self) -> Path:
        return self.folder / "locks" / "mine.lock.toml"

    @property
    def text(self) -> str:
        return self.path.read_text() if self.path.exists() else ""

    @property
    def read(self) -> Lock:
        return Lock.load([self.folder / "locks"])

    @property
    def fetched(self) -> list[str]:
        return [one.path for one in self.files.asked if one.method == "GET" and one.path.startswith("store/")]


@pytest.fixture(params=["json", "html"])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with file_server() as files:
        folder = tmp_path / "box"
        folder.mkdir()
        made = World(folder, files, request.param)
        monkeypatch.setenv("PIP_INDEX_URL", made.index.url)
        monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
        monkeypatch.setattr(web, "PAUSES", (0.0, 0.0))
        yield made


def test_everything_is_found_hashed_and_told(world: World) -> None:
    assert world.locked() == [
        "+ source engine 1.0  20 bytes",
        "+ weight small 2026-11  5.1 MB",
        *(f"+ wheel env/{name} 1.0  {len(_wheel(world, name).content)} bytes" for name in ("old", "part", "tool")),
    ]
    lock = world.read
    assert lock.artefacts["small"].sha256 == hashlib.sha256(WEIGHTS).hexdigest()
    assert lock.artefacts["small"].size == len(WEIGHTS)
    assert lock.artefacts["engine"].file == "engine-1.0.tar.gz"
    assert {(row.name, row.marker): row.sha256 for row in lock.groups["env"]} == {
        ("old", "python_full_version < '3.11'"): _wheel(world, "old").sha256,
        ("part", None): _wheel(world, "part").sha256,
        ("tool", None): _wheel(world, "tool").sha256,
    }
    assert world.files.url not in world.text
    assert list(world.path.parent.iterdir()) == [world.path]


def _wheel(world: World, name: str) -> Package:
    return world.index.projects[name][f"{name}-1.0-py3-none-any.whl"]


def test_the_same_inputs_are_the_same_bytes_and_are_not_fetched_again(world: World) -> None:
    world.locked()
    first = world.text
    assert world.locked() == ["no change"]
    assert world.text == first
    assert world.fetched == ["store/small.gguf"]
    world.path.unlink()
    world.catalog("\n".join(sorted(CATALOG.split("\n\n"), reverse=True)))
    world.locked()
    assert world.text == first


def test_refresh_fetches_again_and_moves_versions(world: World) -> None:
    world.locked()
    world.files.serve("store/small.gguf", whole(b"other"))
    world.index.wheel("tool", "1.1")
    assert world.locked() == ["no change"]
    done = world.lock("--refresh")
    old, new = hashlib.sha256(WEIGHTS).hexdigest()[:8], hashlib.sha256(b"other").hexdigest()[:8]
    assert f"~ weight small 2026-11  sha256 {old}… -> {new}…  5.1 MB -> 5 bytes" in done.output.splitlines()
    assert "~ wheel env/tool 1.0 -> 1.1" in done.output
    assert "- wheel env/part 1.0" in done.output.splitlines()


def test_a_changed_input_alone_is_fetched(world: World) -> None:
    world.locked()
    world.index.source("engine", "1.1")
    world.catalog(CATALOG.replace('"1.0"', '"1.1"').replace("[inputs.env]", "[inputs.other]"))
    lines = world.locked()
    assert lines[0].startswith("~ source engine 1.0 -> 1.1  sha256 ")
    assert [line[:20] for line in lines if "/tool" in line] == ["- wheel env/tool 1.0", "+ wheel other/tool 1"]
    assert world.fetched == ["store/small.gguf"]


def test_a_file_of_this_machine_is_hashed_in_place_of_being_fetched(world: World, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "small.gguf").write_bytes(b"mine")
    assert world.lock("--from-dir", str(given)).exit_code == 0
    assert world.read.artefacts["small"].sha256 == hashlib.sha256(b"mine").hexdigest()
    assert world.fetched == []


def test_a_fetch_that_is_cut_goes_on_where_it_was(world: World) -> None:
    half = len(WEIGHTS) // 2
    world.files.serve("store/small.gguf", cut(WEIGHTS, half, TAGGED), status(503), whole(WEIGHTS, TAGGED))
    world.locked()
    assert world.read.artefacts["small"].sha256 == hashlib.sha256(WEIGHTS).hexdigest()
    asked = [one.range for one in world.files.asked if one.path == "store/small.gguf"]
    assert asked[0] is None
    assert asked[-1] is not None


def test_a_file_that_changes_while_it_is_fetched_is_never_half_of_each(world: World) -> None:
    other = WEIGHTS[::-1]
    for answers in (
        (cut(WEIGHTS, 1000), whole(other)),  # nothing says that it is the same file
        (cut(WEIGHTS, 1000, TAGGED), lambda handler, start: whole(other)(handler, 0)),  # If-Range does not hold
    ):
        world.files.serve("store/small.gguf", *answers)
        assert world.lock("--refresh").exit_code == 0
        assert world.read.artefacts["small"].sha256 == hashlib.sha256(other).hexdigest()


@pytest.mark.parametrize(
    ("path", "answer", "text"),
    [
        ("store/small.gguf", status(404), "inputs.small: cannot be locked: "),
        ("store/small.gguf", status(403), "store/small.gguf answers 403 Forbidden"),
        ("store/small.gguf", whole(b""), "answers with an empty file"),
        ("store/small.gguf", whole(b"<html>", ("Content-Type", "text/html")), "answers with a web page"),
        ("store/small.gguf", cut(WEIGHTS, 1000), "breaks off"),
        ("simple/engine/", status(404), "inputs.engine: cannot be locked: the index has no project engine"),
        ("simple/engine/", status(403), "inputs.engine: cannot be locked: the index answers 403 Forbidden"),
        ("simple/engine/", whole(b"{", ("Content-Type", "image/png")), "with what is no list of files"),
        ("simple/engine/", whole(b"{", ("Content-Type", "application/vnd.pypi.simple.v1+json")), "no list of files"),
        ("simple/tool/", status(404), "inputs.env: has no versions that fit together; uv says: "),
        ("simple/part/", status(404), "inputs.env: has no versions that fit together; uv says: "),
    ],
)
def test_what_is_not_to_be_had_is_told_and_nothing_is_written(
    world: World, path: str, answer: object, text: str
) -> None:
    world.files.serve(path, answer)  # type: ignore[arg-type]
    done = world.lock()
    assert done.exit_code == 1
    assert str(world.folder / "catalog" / "mine.toml") in done.output
    assert text in done.output
    assert not (world.folder / "locks").exists()


def test_all_that_is_wrong_is_told_at_once(world: World) -> None:
    world.index.source("engine", "1.0", yanked="broken build")
    world.index.projects["part"].clear()
    world.index.wheel("part", "1.0", tag="cp311-cp311-manylinux_2_17_x86_64")
    world.files.serve("store/small.gguf", status(404))
    lines = world.lock().stderr.partition("Error: ")[2].splitlines()
    assert [line.partition("inputs.")[2].partition(":")[0] for line in lines] == ["engine", "env", "small"]
    assert "engine-1.0.tar.gz was withdrawn from the index: broken build" in lines[0]
    assert "part==1.0 has no wheel for Linux on x86_64 with Python 3.10, 3.12, 3.13, 3.14" in lines[1]
    assert f"{world.files.url}/gone/small.gguf answers 404 Not Found; {world.files.url}/store" in lines[2]
    assert lines[2].endswith("--from-dir")


def test_wheels_of_other_systems_are_left_out(world: World) -> None:
    world.index.projects["part"].clear()
    tags = [f"cp3{minor}-cp3{minor}-manylinux_2_17_x86_64.manylinux2014_x86_64" for minor in range(9, 16)]
    others = ["cp313-cp313t-manylinux_2_17_x86_64", "cp311-cp311-win_amd64", "cp311-cp311-musllinux_1_2_x86_64"]
    others += ["cp311-cp311-manylinux_2_17_aarch64", "cp311-cp311-manylinux_2_39_x86_64"]
    for tag in [*tags, *others, "cp39-abi3-manylinux_2_28_x86_64"]:
        world.index.wheel("part", "1.0", tag=tag)
    world.locked()
    files = [row.file for row in world.read.groups["env"] if row.name == "part"]
    assert files == [f"part-1.0-{tag}.whl" for tag in [*tags[1:6], "cp39-abi3-manylinux_2_28_x86_64"]]


def test_an_index_that_names_no_hash_is_not_believed_but_hashed(world: World) -> None:
    package = world.index.source("engine", "1.0", digest="")
    world.locked()
    assert world.read.artefacts["engine"].sha256 == hashlib.sha256(package.content).hexdigest()


def test_a_source_is_asked_for_by_its_exact_version(world: World) -> None:
    world.index.source("engine", "1.2")
    world.index.source("engine", "2.0rc1")
    world.catalog(CATALOG.replace('"1.0"', '"1.1"'))
    assert "the index has no source of engine 1.1; the newest is 1.2" in world.lock().output


def test_nothing_moved(world: World) -> None:
    world.locked()
    assert world.checked(0) == ["nothing moved"]
    assert world.fetched == ["store/small.gguf"]


def test_check_says_what_moved(world: World) -> None:
    world.locked()
    world.index.source("engine", "1.1")
    world.index.wheel("tool", "1.1", "part")
    world.index.wheel("part", "1.0", yanked="bad")
    world.index.wheel("part", "1.1")
    world.files.serve("store/small.gguf", whole(b"other"))
    lines = world.checked(1)
    assert "engine 1.0: the index has 1.1" in lines
    assert "part 1.0: part-1.0-py3-none-any.whl was withdrawn from the index: bad" in lines
    assert any(line.startswith("~ wheel env/tool 1.0 -> 1.1") for line in lines)
    assert any(line.startswith("small 2026-11: small.gguf has 5 bytes at ") for line in lines)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda world: world.index.remove("engine", "engine-1.0.tar.gz"), "engine-1.0.tar.gz is gone from the index"),
        (lambda world: world.index.source("engine", "1.0", digest="f" * 64), "engine-1.0.tar.gz has another hash at"),
        (lambda world: world.files.serve("simple/engine/", status(404)), "engine: the index has no project engine"),
        (lambda world: world.files.serve("store/small.gguf", status(404)), "store/small.gguf answers 404"),
        (
            lambda world: world.files.serve("store/small.gguf", whole(WEIGHTS, ("ETag", f'"{"0" * 64}"'))),
            "another hash",
        ),
        (lambda world: world.catalog(CATALOG.replace("2026-11", "2026-12")), "with version 2026-11, not 2026-12"),
        (lambda world: world.catalog(CATALOG.replace("inputs.small", "inputs.large")), "large is not locked"),
        (lambda world: world.catalog(CATALOG.replace("inputs.small", "inputs.large")), "small is locked, and no input"),
        (lambda world: world.path.write_text(world.text[:-40]), "the file: cannot be read as TOML"),
    ],
)
def test_check_says_what_is_not_the_locked_file_any_more(world: World, change: object, text: str) -> None:
    # an address that was never there is no news
    (world.folder / "rig.py").write_text(
        INVENTORY.format(url=world.files.url).replace(f'"{world.files.url}/gone", ', "")
    )
    world.locked()
    change(world)  # type: ignore[operator]
    assert any(text in line for line in world.checked(1))


@pytest.mark.parametrize("path", ["simple/engine/", "simple/part/", "store/small.gguf"])
def test_check_that_could_not_look_says_so(world: World, path: str) -> None:
    world.locked()
    world.files.serve(path, status(403))
    assert any(line.startswith("could not look: ") for line in world.checked(2))
