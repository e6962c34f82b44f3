"""`rigwright lock` looks into what is locked: a patch of other bytes is refused, and newer versions are judged."""

import base64
import hashlib
import io
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cli.lock_resolver import downloads, range_requests
from cli.lock_resolver.downloads import DownloadUnavailable
from cli.lock_resolver.patch_validation import PatchedInput, PatchValidator
from cli.lock_resolver.resolver import LockResolver
from rigwright.patches.apply import LARGEST
from rigwright.supply.lock import Artefact, render_lock
from tests.unit.conftest import lock_fixture_box
from tests.unit.env_samples import conda_row
from tests.unit.file_server import complete_file, rangeless_file, run_file_server
from tests.unit.index_server import ProjectFile
from tests.unit.lock_world import LockFixture
from tests.unit.patch_samples import AFTER, BEFORE, read_patch, text_sha256, write_patch
from tests.unit.samples import sample_artefact

CATALOG = """
[inputs.pk]
kind = "wheel"
python = "3.10.20"
requirements = ["demo"]

[envs.small]
python = "py"
packages = "pk"
distribution = "demo"
imports = ["demo"]
patches = ["louder"]
"""
INVENTORY = """
from rigwright.inventory import hosts

rigs = hosts({"box": {"ssh_hostname": "127.0.0.1", "envs": ["small"]}})
"""


def patched_wheel(version: str = "1.0", below: str = "", without: str = "", **files: str) -> bytes:
    """A wheel of demo with these files, and unused ballast.

    Args:
        version: Its version.
        below: The folder of it in which they are.
        without: The files that it lists and lacks. **files: Those of its package.
    """
    info = f"demo-{version}.dist-info"
    given = {"words.py": BEFORE} | files
    contents = {f"{below}demo/{name}": text_.encode() for name, text_ in given.items()}
    contents[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: demo\nVersion: {version}\n".encode()
    rows = "".join(f"{path},sha256={_encoded(content)},{len(content)}\n" for path, content in contents.items())
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        made.writestr("demo/ballast.bin", bytes(300_000))
        for path, content in contents.items():
            if path != without:
                made.writestr(path, content)
        made.writestr(f"{info}/WHEEL", "")
        made.writestr(f"{info}/RECORD", f"{rows}{info}/RECORD,,\n")
    return buffer.getvalue()


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def publish(world: LockFixture, content: bytes, version: str = "1.0", *, ranges: bool = True) -> ProjectFile:
    package = world.index.add("demo", ProjectFile(f"demo-{version}-py3-none-any.whl", content))
    if ranges:
        world.files.serve(f"files/{package.file}", complete_file(content))
    return package


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LockFixture]:
    """A box with a small environment that is patched."""
    with run_file_server() as files:
        box = lock_fixture_box(tmp_path, files, "json", monkeypatch)
        box.write_catalog(CATALOG)
        (box.folder / "rig.py").write_text(INVENTORY)
        (box.folder / "locks").mkdir(exist_ok=True)
        own = render_lock([conda_row()], "catalog/py.toml").partition("\n")[2]
        (box.folder / "locks/py.lock.toml").write_text(own)
        publish(box, patched_wheel())
        write_patch(box.folder / "patches/louder")
        yield box


def requested_ranges(world: LockFixture, package: str = "demo-1.0-py3-none-any.whl") -> list[str | None]:
    return [one.range for one in world.files.asked if one.path == f"files/{package}" and one.method == "GET"]


def lock_output(world: LockFixture, *options: str) -> str:
    done = world.run_lock(*options)
    assert done.exit_code == 1, done.output
    return " ".join(done.output.split())


def test_one_that_fits_is_locked_and_little_of_the_wheel_is_asked_for(world: LockFixture) -> None:
    world.lock_lines()
    ranges = requested_ranges(world)
    assert ranges
    assert None not in ranges
    assert world.lock_lines() == ["no change"]


def test_a_server_without_ranges_gives_the_whole_wheel(world: LockFixture) -> None:
    publish(world, patched_wheel(), ranges=False)
    world.lock_lines()
    assert None in requested_ranges(world)


def test_a_wheel_of_this_machine_is_read_in_place(world: LockFixture, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "demo-1.0-py3-none-any.whl").write_bytes(patched_wheel())
    assert world.run_lock("--from-dir", str(given)).exit_code == 0
    (uvs_own,) = requested_ranges(world)  # for its metadata
    assert uvs_own


def test_files_that_a_wheel_keeps_elsewhere_are_where_they_are_installed(world: LockFixture) -> None:
    publish(world, patched_wheel(below="demo-1.0.data/purelib/"))
    world.lock_lines()


def test_a_wheel_that_lacks_what_it_lists_is_reported(world: LockFixture) -> None:
    publish(world, patched_wheel(without="demo/words.py"))
    line = "patch louder cannot be judged: demo-1.0-py3-none-any.whl is not a readable wheel: it lacks a file"
    assert line in lock_output(world)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        (
            {"before": "0" * 64},
            f"demo/words.py: expected {'0' * 64}, found {text_sha256(BEFORE)}: the patch is for another version",
        ),
        ({"after": "0" * 64}, f"demo/words.py: the result is {text_sha256(AFTER)}, but the patch says {'0' * 64}"),
    ],
)
def test_one_that_is_for_other_bytes_is_refused(world: LockFixture, changes: dict[str, str], found: str) -> None:
    target = {"path": "demo/words.py", "before": text_sha256(BEFORE), "after": text_sha256(AFTER)} | changes
    write_patch(world.folder / "patches/louder", targets=[target])
    assert f"patches/louder/patch.toml: small: patch louder: {found}" in lock_output(world)
    assert world.lock_text == ""


def test_one_of_a_module_that_is_never_imported_is_refused(world: LockFixture) -> None:
    native = "words.cpython-310-x86_64-linux-gnu.so"
    publish(world, patched_wheel(**{native: "compiled"}))
    assert f"patch louder: demo/words.py is never imported: demo/{native} takes precedence" in lock_output(world)
    assert world.lock_text == ""


def test_an_engine_that_moved_under_a_patch_is_refused(world: LockFixture) -> None:
    """The same version, built anew, as vLLM 0.21.0 was."""
    world.lock_lines()
    locked = world.lock_text
    publish(world, patched_wheel(**{"words.py": "WORDS = 'hi'\n"}))
    there = f"expected {text_sha256(BEFORE)}, found {text_sha256(chr(10).join(['WORDS = ' + repr('hi'), '']))}"
    assert f"patch louder: demo/words.py: {there}" in lock_output(world)
    assert world.lock_text == locked


def test_one_for_another_version_is_refused_once_that_is_known(world: LockFixture) -> None:
    write_patch(world.folder / "patches/louder", versions=["0.9"])
    assert "small: patch louder is for demo 0.9, but small has 1.0" in lock_output(world)


def test_a_name_that_no_patch_has_is_refused(world: LockFixture) -> None:
    world.write_catalog(CATALOG.replace('"louder"', '"lauder"'))
    assert 'small: there is no patch "lauder"; did you mean "louder"?' in world.run_lock().output


def archive(path: Path, **files: str | None) -> Artefact:
    """A source archive of llama.cpp inside of another project, and its row; a link in the place of None."""
    with tarfile.open(path, "w:gz") as packed:
        for name, content in {"words.py": BEFORE, **files}.items():
            info = tarfile.TarInfo(f"llama-1.0/vendor/llama.cpp/demo/{name}")
            info.size = len(content or "")
            if content is None:
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            packed.addfile(info, io.BytesIO((content or "").encode()))
    own = hashlib.sha256(path.read_bytes()).hexdigest()
    return sample_artefact(kind="source", name="llama", file=path.name, sha256=own, size=path.stat().st_size)


@pytest.mark.parametrize(
    ("files", "subtree", "line"),
    [
        ({}, "vendor/llama.cpp", ""),
        ({}, "", f"demo/words.py: expected {text_sha256(BEFORE)}, found no file"),
        ({"words.py": AFTER}, "vendor/llama.cpp", f"expected {text_sha256(BEFORE)}, found {text_sha256(AFTER)}"),
        (
            {"words.py": None},
            "vendor/llama.cpp",
            "demo/words.py: it is a link, or not a regular file (in llama-1.0.tar.gz)",
        ),
    ],
)
def test_a_source_is_looked_into_below_its_subtree(tmp_path: Path, files: Any, subtree: str, line: str) -> None:
    row = archive(tmp_path / "llama-1.0.tar.gz", **files)
    one = PatchedInput(
        "engine", (read_patch(tmp_path, target_distribution="llama.cpp"),), {"llama-cpp": "1.0"}, (row,), subtree
    )
    found = PatchValidator(cast("LockResolver", SimpleNamespace(from_dir=tmp_path))).find_problems([one])
    assert [line in str(problem) for problem in found] == [True for _ in line[:1]]


def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, row: Artefact) -> str:
    """The message about a source that is on an index, whose files have this address."""
    index = SimpleNamespace(source_distribution=lambda *_: SimpleNamespace(url=address))
    resolver = SimpleNamespace(from_dir=None, addresses=lambda _: [], session=downloads.open_session(), index=index)
    monkeypatch.setattr(downloads, "PAUSES", ())
    row = row.model_copy(update={"sources": ("index:llama",)})
    one = PatchedInput(
        "engine",
        (read_patch(tmp_path, target_distribution="llama.cpp"),),
        {"llama-cpp": "1.0"},
        (row,),
        "vendor/llama.cpp",
    )
    return " ".join(str(problem) for problem in PatchValidator(cast("LockResolver", resolver)).find_problems([one]))


def test_an_address_is_not_said_for_it_can_hold_a_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = archive(tmp_path / "llama-1.0.tar.gz")
    line = fetched(tmp_path, monkeypatch, "http://me:secret@127.0.0.1:1/llama-1.0.tar.gz", row)
    assert line.endswith("cannot be judged: llama-1.0.tar.gz the index cannot be reached")


def test_no_more_of_a_source_is_taken_than_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = archive(tmp_path / "llama-1.0.tar.gz")
    with run_file_server() as files:
        files.serve("llama-1.0.tar.gz", complete_file(bytes(row.size + 1)))
        line = fetched(tmp_path, monkeypatch, f"{files.url}/llama-1.0.tar.gz", row)
    assert line.endswith(f"the index has more than the {row.size} bytes that are locked")


@pytest.mark.parametrize(
    ("newer", "changes", "line"),
    [
        ({"words.py": AFTER}, {}, "demo 2.0 contains it byte for byte: it can be dropped"),
        (
            {"words.py": 'WORDS = "LOUD"\n'},
            {"marker": "LOUD"},
            "demo 2.0 has its marker in demo/words.py: it can be dropped",
        ),
        ({}, {}, "demo 2.0 has the same files as before: it is still needed, and applies unchanged"),
        ({"words.py": "x"}, {"included_in": "1.9"}, "its header says that demo 1.9 and newer contain it, such as 2.0"),
        ({"words.py": "x"}, {"included_in": "b2"}, "demo 2.0 has another demo/words.py: it must be reviewed"),
        ({"words.py": "x"}, {"included_in": "2.1"}, "demo 2.0 has another demo/words.py: it must be reviewed"),
    ],
)
def test_check_says_what_a_newer_version_means(world, newer, changes, line):
    write_patch(world.folder / "patches/louder", **changes)
    world.lock_lines()
    assert not [one for one in world.check_lines(0) if one.startswith("patch")]
    publish(world, patched_wheel("2.0", **newer), "2.0")
    assert f"patch louder of small: {line}" in world.check_lines(1)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"no wheel", "is not a readable wheel"),
        (patched_wheel("2.0", without="demo/words.py"), "is not a readable wheel: it lacks a file that it lists"),
        (patched_wheel("2.0", **{"words.py": "x" * (LARGEST + 1)}), "it has more than 10,000,000 bytes"),
    ],
)
def test_check_that_cannot_look_into_a_newer_one_says_so(world: LockFixture, content: bytes, line: str) -> None:
    write_patch(world.folder / "patches/louder", marker="LOUD")
    world.lock_lines()
    publish(world, content, "2.0")
    assert any(one.startswith(f"could not check: patch louder: {line}") for one in world.check_lines(3))


def test_a_server_that_gives_parts_and_then_the_whole_is_reported() -> None:
    content = patched_wheel()
    with run_file_server() as files, pytest.raises(DownloadUnavailable, match="gives parts of it, and then the whole"):
        url = files.serve("demo.whl", complete_file(content), rangeless_file(content))
        with (
            range_requests.open_remote(downloads.open_session(), url, len(content), lambda *_: None) as file,
            range_requests.open_wheel(file),
        ):
            raise AssertionError("it was read")


def test_names_of_a_wheel_do_not_write_on_the_terminal() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made_:
        made_.writestr("demo\x1b[2J-1.0.dist-info/RECORD", "one row\n")
    with (
        pytest.raises(DownloadUnavailable, match=r"demo\\x1b\[2J-1\.0.* has an invalid row"),
        range_requests.open_wheel(buffer),
    ):
        raise AssertionError("it was read")


def test_a_file_of_an_index_without_a_version_is_passed_over(world: LockFixture) -> None:
    world.lock_lines()
    world.index.add("demo", ProjectFile("demo-none_at_all-py3-none-any.whl", b"x"))
    assert world.check_lines(0) == ["nothing changed"]
