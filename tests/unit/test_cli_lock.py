"""`rigwright lock` against an index and a mirror on the loopback interface."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest
from pypi_simple import PYPI_SIMPLE_ENDPOINT

from cli.lock_resolver.package_index import index_url
from rigwright.inventory import load_rig
from rigwright.model.instance import loaded_weights
from rigwright.supply.artefact import GgufMetadata
from rigwright.supply.lock import LOCK_HEADER
from tests.lock_files import render_sealed_lock
from tests.unit.file_server import FileServerHandler, complete_file, error_status, truncated_file
from tests.unit.gguf_files import gguf_file
from tests.unit.index_server import ProjectFile
from tests.unit.lock_world import CATALOG, TAGGED, WEIGHTS, LockFixture
from tests.unit.sample_texts import WEIGHT_ROW

OTHER = gguf_file(b"other")
of_either_form = pytest.mark.parametrize("world", ["json", "html"], indirect=True)


@of_either_form
def test_everything_is_found_hashed_and_told(world: LockFixture) -> None:
    assert world.lock_lines() == [
        "+ source engine 1.0  20 bytes",
        "+ weight small 2026-11  5.1 MB",
        *(f"+ wheel env/{name} 1.0  {len(_wheel(world, name).content)} bytes" for name in ("old", "part", "tool")),
    ]
    lock = world.read_lock
    assert lock.artefacts["small"].sha256 == hashlib.sha256(WEIGHTS).hexdigest()
    assert lock.artefacts["small"].size == len(WEIGHTS)
    assert lock.artefacts["engine"].file == "engine-1.0.tar.gz"
    assert {(row.name, row.marker): row.sha256 for row in lock.groups["env"]} == {
        ("old", "python_full_version < '3.11'"): _wheel(world, "old").sha256,
        ("part", None): _wheel(world, "part").sha256,
        ("tool", None): _wheel(world, "tool").sha256,
    }
    assert world.files.url not in world.lock_text
    assert list(world.lock_path.parent.iterdir()) == [world.lock_path]


def _wheel(world: LockFixture, name: str) -> ProjectFile:
    return world.index.projects[name][f"{name}-1.0-py3-none-any.whl"]


def test_the_same_inputs_are_the_same_bytes_and_are_not_fetched_again(world: LockFixture) -> None:
    world.lock_lines()
    first = world.lock_text
    assert (world.lock_lines(), world.lock_text) == (["no change"], first)
    assert world.fetched_paths == ["store/small.gguf"]
    world.lock_path.unlink()
    world.write_catalog("\n".join(sorted(CATALOG.split("\n\n"), reverse=True)))
    world.lock_lines()
    assert world.lock_text == first


def test_refresh_fetches_again_and_moves_versions(world: LockFixture) -> None:
    world.lock_lines()
    world.files.serve("store/small.gguf", complete_file(OTHER))
    world.index.publish_wheel("tool", "1.1")
    assert world.lock_lines() == ["no change"]
    done = world.run_lock("--refresh")
    old, new = hashlib.sha256(WEIGHTS).hexdigest()[:8], hashlib.sha256(OTHER).hexdigest()[:8]
    assert f"~ weight small 2026-11  sha256 {old}… -> {new}…  5.1 MB -> 133 bytes" in done.output.splitlines()
    assert "~ wheel env/tool 1.0 -> 1.1" in done.output
    assert "- wheel env/part 1.0" in done.output.splitlines()


def test_a_changed_input_alone_is_fetched(world: LockFixture) -> None:
    world.lock_lines()
    world.index.publish_source("engine", "1.1")
    world.write_catalog(CATALOG.replace('"1.0"', '"1.1"').replace("[inputs.env]", "[inputs.other]"))
    lines = world.lock_lines()
    assert lines[0].startswith("~ source engine 1.0 -> 1.1  sha256 ")
    assert [line[:20] for line in lines if "/tool" in line] == ["- wheel env/tool 1.0", "+ wheel other/tool 1"]
    assert world.fetched_paths == ["store/small.gguf"]


def test_a_file_of_this_machine_is_hashed_in_place_of_being_fetched(world: LockFixture, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "small.gguf").write_bytes(OTHER)
    assert world.run_lock("--from-dir", str(given)).exit_code == 0
    assert world.read_lock.artefacts["small"].sha256 == hashlib.sha256(OTHER).hexdigest()
    assert world.fetched_paths == []


def test_a_fetch_that_is_cut_goes_on_where_it_was(world: LockFixture) -> None:
    half = len(WEIGHTS) // 2
    world.files.serve(
        "store/small.gguf", truncated_file(WEIGHTS, half, TAGGED), error_status(503), complete_file(WEIGHTS, TAGGED)
    )
    world.lock_lines()
    assert world.read_lock.artefacts["small"].sha256 == hashlib.sha256(WEIGHTS).hexdigest()
    asked = [one.range for one in world.files.asked if one.path == "store/small.gguf"]
    assert asked[0] is None
    assert asked[-1] is not None


def test_a_file_that_changes_while_it_is_fetched_is_never_half_of_each(world: LockFixture) -> None:
    half, other = len(WEIGHTS) // 2, gguf_file(bytes(range(255, -1, -1)) * 20_000)

    def heeding(handler: FileServerHandler, start: int) -> None:
        same = handler.headers.get("If-Range") in (None, '"two"')
        complete_file(other, ("ETag", '"two"'))(handler, start if same else 0)

    for answers in (
        (truncated_file(WEIGHTS, half), complete_file(other)),
        (truncated_file(WEIGHTS, half, TAGGED), heeding),
    ):
        world.files.serve("store/small.gguf", *answers)
        assert world.run_lock("--refresh").exit_code == 0
        assert world.read_lock.artefacts["small"].sha256 == hashlib.sha256(other).hexdigest()


@of_either_form
def test_an_index_that_changes_while_it_is_read_is_refused(world: LockFixture) -> None:
    before = world.files.answers["simple/part/"]
    world.index.add("part", replace(_wheel(world, "part"), digest="f" * 64))
    world.files.answers["simple/part/"] = before + world.files.answers["simple/part/"]
    assert "part-1.0-py3-none-any.whl was changed on the index a moment ago" in world.run_lock().stderr


def test_nothing_of_a_source_is_run_to_learn_what_it_needs(world: LockFixture) -> None:
    world.index.projects["part"].clear()
    world.index.publish_source("part", "1.0")
    assert "inputs.env: has no versions that fit together" in world.run_lock().stderr
    assert "files/part-1.0.tar.gz" not in [one.path for one in world.files.asked]


@pytest.mark.parametrize(
    ("path", "answer", "text"),
    [
        ("store/small.gguf", error_status(404), "inputs.small: cannot be locked: "),
        ("store/small.gguf", error_status(403), "store/small.gguf answers 403 Forbidden"),
        ("store/small.gguf", complete_file(b""), "returns an empty file"),
        ("store/small.gguf", complete_file(b"<html>", ("Content-Type", "text/html")), "returns a web page"),
        ("store/small.gguf", truncated_file(WEIGHTS, 1000), "breaks off"),
        ("store/small.gguf", complete_file(bytes(5_000_000)), "store/small.gguf small.gguf has no GGUF header"),
        (
            "store/small.gguf",
            complete_file(WEIGHTS[:-1]),
            "small.gguf is truncated: its header implies 5120128 bytes, but it has",
        ),
        ("simple/engine/", error_status(404), "inputs.engine: cannot be locked: the index has no project engine"),
        ("simple/engine/", error_status(403), "inputs.engine: cannot be locked: the index answers 403 Forbidden"),
        ("simple/engine/", complete_file(b"{", ("Content-Type", "image/png")), "does not answer with a file list"),
        (
            "simple/engine/",
            complete_file(b"{", ("Content-Type", "application/vnd.pypi.simple.v1+json")),
            "does not answer with a file list",
        ),
        ("simple/tool/", error_status(404), "inputs.env: has no versions that fit together; uv says: "),
        ("simple/part/", error_status(404), "inputs.env: has no versions that fit together; uv says: "),
    ],
)
def test_unavailable_packages_are_reported_and_nothing_is_written(world, path, answer, text):
    world.files.serve(path, answer)  # type: ignore[arg-type]
    done = world.run_lock()
    assert done.exit_code == 1
    assert str(world.folder / "catalog" / "mine.toml") in done.output
    assert text in done.output
    assert not (world.folder / "locks").exists()


def test_a_file_of_this_machine_that_is_no_model_is_refused(world: LockFixture) -> None:
    (world.folder / "small.gguf").write_bytes(bytes(range(256)) * 20_000)
    said = world.run_lock("--from-dir", str(world.folder)).stderr
    assert "inputs.small: small.gguf has no GGUF header" in said


def test_a_mirror_whose_file_is_no_model_is_passed_over(world: LockFixture) -> None:
    world.files.serve("gone/small.gguf", complete_file(bytes(100)))
    world.lock_lines()
    assert world.read_lock.artefacts["small"].header == GgufMetadata(architecture="llama")


def test_a_source_of_a_mirror_that_the_inventory_does_not_name_has_no_address(world: LockFixture) -> None:
    world.write_catalog(CATALOG.replace("store:", "stor:"))
    assert "stor:small.gguf has no address: the inventory has no such mirror" in world.run_lock().stderr


def test_all_that_is_wrong_is_reported_at_once(world: LockFixture) -> None:
    world.index.publish_source("engine", "1.0", yanked="broken build")
    world.index.projects["part"].clear()
    world.index.publish_wheel("part", "1.0", tag="cp311-cp311-manylinux_2_17_x86_64")
    world.files.serve("store/small.gguf", error_status(404))
    lines = world.run_lock().stderr.partition("Error: ")[2].splitlines()
    assert [line.partition("inputs.")[2].partition(":")[0] for line in lines] == ["engine", "env", "small"]
    assert "engine-1.0.tar.gz was yanked from the index: broken build" in lines[0]
    assert "part==1.0 has no wheel for Linux on x86_64 with Python 3.10, 3.12, 3.13, 3.14" in lines[1]
    assert f"{world.files.url}/gone/small.gguf answers 404 Not Found; {world.files.url}/store" in lines[2]
    assert lines[2].endswith("--from-dir")


@of_either_form
def test_wheels_of_other_systems_are_left_out(world: LockFixture) -> None:
    world.index.projects["part"].clear()
    tags = [f"cp3{minor}-cp3{minor}-manylinux_2_17_x86_64.manylinux2014_x86_64" for minor in range(9, 16)]
    others = ["cp313-cp313t-manylinux_2_17_x86_64", "cp311-cp311-win_amd64", "cp311-cp311-musllinux_1_2_x86_64"]
    others += ["cp311-cp311-manylinux_2_17_aarch64", "cp311-cp311-manylinux_2_39_x86_64"]
    for tag in [*tags, *others, "cp39-abi3-manylinux_2_28_x86_64"]:
        world.index.publish_wheel("part", "1.0", tag=tag)
    world.lock_lines()
    files = [row.file for row in world.read_lock.groups["env"] if row.name == "part"]
    assert files == [f"part-1.0-{tag}.whl" for tag in [*tags[1:6], "cp39-abi3-manylinux_2_28_x86_64"]]


@of_either_form
def test_an_index_that_names_no_hash_is_not_believed_but_hashed(world: LockFixture) -> None:
    package = world.index.publish_source("engine", "1.0", digest="")
    world.lock_lines()
    assert world.read_lock.artefacts["engine"].sha256 == hashlib.sha256(package.content).hexdigest()


@of_either_form
def test_a_source_is_asked_for_by_its_exact_version(world: LockFixture) -> None:
    world.index.publish_source("engine", "1.2")
    world.index.publish_source("engine", "2.0rc1")
    world.write_catalog(CATALOG.replace('"1.0"', '"1.1"'))
    assert "the index has no source of engine 1.1; the newest is 1.2" in world.run_lock().output


def test_a_lock_by_hand_is_neither_overwritten_nor_overlaid(world: LockFixture) -> None:
    world.lock_path.parent.mkdir()
    world.lock_path.write_text(render_sealed_lock(WEIGHT_ROW.replace('"small"', '"mine"')))
    assert "mine.lock.toml: the file: was not written by `rigwright lock`" in world.run_lock().stderr
    other = world.lock_path.rename(world.lock_path.with_name("hand.lock.toml"))
    world.lock_lines()
    other.write_text(render_sealed_lock(WEIGHT_ROW))
    before = world.lock_text
    assert f"inputs.small: {other} has it too" in world.run_lock().stderr
    other.write_text("schema = 1")
    assert f"{other}: artefacts: missing" in world.run_lock().stderr
    assert world.lock_text == before


def test_a_broken_lock_of_our_own_is_written_anew(world: LockFixture) -> None:
    world.lock_lines()
    whole_text = world.lock_text
    for broken in (whole_text[:-50], whole_text.replace("artefacts = 5", "artefacts = 6"), f"{LOCK_HEADER} <<<<<<<\n"):
        world.lock_path.write_text(broken)
        done = world.run_lock()
        assert (done.exit_code, world.lock_text) == (0, whole_text)
        assert "mine.lock.toml: " in done.stderr


def test_a_catalogue_that_asks_for_nothing_more_leaves_no_lock(world: LockFixture) -> None:
    world.lock_lines()
    world.write_catalog(CATALOG, name="renamed")
    world.write_catalog("")
    assert world.lock_lines() == ["no change"]
    assert [path.name for path in world.lock_path.parent.iterdir()] == ["renamed.lock.toml"]
    assert world.fetched_paths == ["store/small.gguf"]
    world.write_catalog("", name="renamed")
    assert [line[0] for line in world.lock_lines()] == ["-"] * 5
    assert list(world.lock_path.parent.iterdir()) == []
    assert "no inputs, nothing to lock" in world.run_lock().stderr


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("rig.py", "import no_such_module", "rig.py: ModuleNotFoundError: "),
        ("rig.py", "raise SystemExit('no host is up')", "no host is up"),
        ("rig.py", "from rigwright.inventory import hosts\nhosts({'box': {'cards': ['x']}})", "there is no card"),
        ("catalog/mine.toml", CATALOG.replace("kind", "kinds"), "inputs.engine.kinds: unknown key"),
        ("catalog/other.toml", CATALOG, "inputs.small: is listed twice"),
    ],
)
@pytest.mark.parametrize("option", [[], ["--check"]])
def test_an_unreadable_file_is_reported(world: LockFixture, file: str, text: str, said: str, option: list[str]) -> None:
    (world.folder / file).write_text(text)
    done = world.run_lock(*option)
    assert (done.exit_code, world.lock_text) == (2, ""), done.output
    assert said in done.stderr
    assert "Traceback" not in done.output


def test_a_box_is_refused_before_it_is_locked_and_taken_after(world: LockFixture) -> None:
    catalog = CATALOG + '[models.m]\nfile = "small"\n'
    catalog += '[variants."llamacpp/m"]\nengine = "llama.cpp"\nmodel = "m"\ncontext = 4096\n'
    world.write_catalog(catalog)
    instances = '"instances": {"chat": {"variant": "llamacpp/m", "port": 8020}}, "mirrors"'
    rig = world.folder / "rig.py"
    rig.write_text(rig.read_text().replace('"mirrors"', instances))
    entry = {"mirrors": {"store": [world.files.url]}, "instances": {"chat": {"variant": "llamacpp/m", "port": 8020}}}
    data = {"name": "box", "inventory": str(rig), "entry": entry}
    with pytest.raises(Exception, match="small is not locked: run `rigwright lock "):
        load_rig(data)
    world.lock_lines()
    assert loaded_weights(load_rig(data).instances)[0].sha256 == hashlib.sha256(WEIGHTS).hexdigest()


def test_the_index_is_the_one_that_pip_is_configured_to_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    configuration = tmp_path / "pip.conf"
    configuration.write_text("[global]\nindex-url = http://127.0.0.1:9/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(configuration))
    assert index_url() == "http://127.0.0.1:9/simple"
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:8/simple")
    assert index_url() == "http://127.0.0.1:8/simple"
    monkeypatch.delenv("PIP_INDEX_URL")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert index_url() == PYPI_SIMPLE_ENDPOINT
