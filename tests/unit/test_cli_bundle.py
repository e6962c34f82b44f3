"""`rigwright bundle` against mirrors, an index and a signed apt archive on the loopback interface."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigwright.bundle import INDEX
from rigwright.cli.bundling import collect, packages
from rigwright.cli.resolving import web
from rigwright.inventory import load
from tests.unit.bundle_world import WEIGHTS, AptArchive, BundleWorld, signing
from tests.unit.file_server import FileServer, cut, file_server, status, whole
from tests.unit.samples import COMMIT, chat, entry

PROGRAMS = ("apt-get", "dpkg-deb", "gpg", "gpgconf")
SOURCE, WHEEL = "sources/engine-1.0.tar.gz", "wheels/tool-1.0-py3-none-any.whl"
WEIGHT = f"weights/small/{COMMIT}/small-q4.gguf"
FILES = {SOURCE, WHEEL, WEIGHT}
NEEDED = ("curl", "g++")
DEBS = {f"packages/debian-12/{name}" for name in ("Packages", "curl_2~8.1_amd64.deb", "g++_1.0_amd64.deb")}
DEBS |= {"packages/debian-12/libcurl_1.0_amd64.deb"}


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A keyring and the folder of its secret key."""
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        pytest.skip(f"no {', '.join(missing)} here")
    keyring = tmp_path_factory.mktemp("keyring") / "archive.gpg"
    with signing(keyring) as home:
        yield keyring, home


@pytest.fixture
def files() -> Iterator[FileServer]:
    with file_server() as served:
        yield served


@pytest.fixture
def archive(files: FileServer, key: tuple[Path, Path], tmp_path: Path) -> AptArchive:
    """An archive with what the product's own list of packages is cut down to here."""
    made = AptArchive(files, tmp_path / "debs", key[1])
    made.package("curl", "2:8.1", "libcurl")
    made.package("libcurl")
    made.package("g++")
    made.package("other")
    made.publish()
    return made


@pytest.fixture
def world(
    files: FileServer, key: tuple[Path, Path], archive: AptArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> BundleWorld:
    """A box to bundle for."""
    made = BundleWorld(tmp_path / "box", files)
    monkeypatch.setenv("PIP_INDEX_URL", made.index.url)
    monkeypatch.setattr(web, "PAUSES", (0.0, 0.0))
    monkeypatch.setattr(collect, "NEEDED", NEEDED)
    monkeypatch.setattr(packages, "KEYRING", str(key[0]))
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    return made


def test_everything_is_brought_and_the_rig_is_satisfied_with_it(world: BundleWorld) -> None:
    made = world.bundle()
    assert made.exit_code == 0, made.output
    found = world.read()
    assert world.paths == {INDEX, *FILES, *DEBS}
    assert {row.path for row in found.rows} == FILES | DEBS
    assert found.systems == ("debian-12",)
    assert [line.split()[-4:-2] for line in made.stdout.splitlines()[1:5]] == [
        ["source", "1"],
        ["weight", "1"],
        ["wheel", "1"],
        ["debian-12", "4"],
    ]
    assert f"{world.folder}: 7 files, " in made.stdout.splitlines()[-1]
    world.inventory(apt="")  # nothing that a mirror would be asked for
    (item,) = world.box.group({"box": entry(bundle="the bundle", mirrors={}, instances=chat())})
    rig = load(item[1]["rig"])
    assert rig.bundle == found
    assert {file.name for file in rig.bundle.packages("debian-12")} == {path.rpartition("/")[2] for path in DEBS}


def test_what_is_there_is_kept_and_a_byte_that_differs_is_fetched_again(world: BundleWorld) -> None:
    first = world.bundled()
    assert sorted(path.rpartition("/")[2] for path in world.asked if "pool" not in path) == sorted(
        path.rpartition("/")[2] for path in FILES
    )
    again = world.bundled()
    assert [path for path in world.asked if "pool" not in path] == []
    assert again.rows == first.rows
    weight = world.folder / WEIGHT
    weight.write_bytes(WEIGHTS[:-1] + b"x")
    (world.folder / WHEEL).unlink()
    assert world.bundled().rows == first.rows
    assert [path for path in world.asked if "pool" not in path] == ["good/small-q4.gguf", f"files/{Path(WHEEL).name}"]


def test_the_same_files_are_the_same_bundle_wherever_it_is_made(world: BundleWorld) -> None:
    one = world.bundled().rows
    assert world.bundled("--output", str(world.folder)).rows == one
    other = world.box.folder / "two words"
    assert world.bundle("--output", str(other)).exit_code == 0
    texts = [(folder / INDEX).read_text().splitlines() for folder in (world.folder, other)]
    here, there = ([line for line in text if '"made"' not in line] for text in texts)
    assert here == there


def test_files_of_this_machine_are_taken_when_they_are_the_locked_ones(world: BundleWorld, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    for name in ("engine-1.0.tar.gz", "tool-1.0-py3-none-any.whl", "small-q4.gguf"):
        (given / name).write_bytes(world.content[name])
    world.inventory()
    world.bundled("--from-dir", str(given))
    assert [path for path in world.asked if "pool" not in path] == []
    (given / "small-q4.gguf").write_bytes(b"another")
    (world.folder / WEIGHT).unlink()
    (line,) = world.refused("--from-dir", str(given))
    assert f"is not to be had: {given / 'small-q4.gguf'} is another file: add a mirror" in line
    world.inventory("good")
    world.bundled("--from-dir", str(given))


def test_a_mirror_that_lies_breaks_off_or_is_gone_is_passed_over(world: BundleWorld) -> None:
    world.mirror("liar", WEIGHTS[:-1] + b"x")
    world.mirror("longer", WEIGHTS + b"x")
    world.files.serve("half/small-q4.gguf", cut(WEIGHTS, 1000))
    world.files.serve("broken/small-q4.gguf", status(500))
    world.inventory("gone", "liar", "longer", "half", "broken", "good")
    world.bundled()
    (world.folder / WEIGHT).unlink()
    world.inventory("gone", "liar", "half")
    (line,) = world.refused()
    said = [
        "gone/small-q4.gguf answers 404",
        f"liar/small-q4.gguf has {len(WEIGHTS)} bytes with SHA-256",
        "half/small-q4.gguf",
    ]
    assert [part in line for part in said] == [True] * 3, line
    assert not list((world.folder / "weights").rglob("*.part"))


def test_a_file_that_was_cut_goes_on_where_it_was(world: BundleWorld) -> None:
    tag = ("ETag", '"one"')
    world.files.serve("good/small-q4.gguf", cut(WEIGHTS, 3_000_000, tag), whole(WEIGHTS, tag))
    world.bundled()
    asked = [one.range for one in world.files.asked if one.path == "good/small-q4.gguf"]
    assert asked == [None, f"bytes={2 * web.PART}-"]


def test_all_that_is_not_to_be_had_is_said_at_once_and_no_index_is_written(world: BundleWorld) -> None:
    world.withhold("engine")
    world.withhold("tool")
    world.inventory()
    world.files.serve("archive/debian/dists/bookworm/InRelease", status(404))
    lines = world.refused()
    assert [line.removeprefix(f"{world.box.inventory}: ").partition(": ")[0] for line in lines] == [
        "engine-source 1.0",
        "packages of debian-12",
        f"small {COMMIT}",
        "tool 1.0",
    ]
    assert "apt-get failed: " in lines[1]
    assert "is not to be had: no address (store:small-q4.gguf): add a mirror" in lines[2]
    assert not (world.folder / INDEX).exists()


def test_a_bundle_that_does_not_come_about_leaves_the_earlier_one_whole(
    world: BundleWorld, archive: AptArchive
) -> None:
    before = world.bundled()
    archive.package("g++", "1.1")
    archive.publish()
    world.lock(b"newer", "newer.gguf")
    assert "is not to be had" in world.refused()[0]
    assert world.read() == before
    world.mirror("good", b"newer", "newer.gguf")
    world.bundled()
    new = {DEB.replace("g++_1.0", "g++_1.1") for DEB in DEBS}
    # what only the earlier one had is gone, folders too
    assert world.paths == {INDEX, SOURCE, WHEEL, f"weights/small/{COMMIT}/newer.gguf", *new}
    world.lock(WEIGHTS, "renamed.gguf")
    world.mirror("good", WEIGHTS, "renamed.gguf")
    world.bundled()
    assert (world.folder / f"weights/small/{COMMIT}/renamed.gguf").exists()


def test_a_maker_that_dies_before_the_index_leaves_the_earlier_one_whole(
    world: BundleWorld, archive: AptArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = world.bundled()
    archive.package("g++", "1.1")
    archive.publish()

    def die(*_: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(collect, "text", die)
        assert world.bundle().exit_code == 1
    assert world.read() == before
    assert {row.path for row in world.bundled().rows} == FILES | {DEB.replace("g++_1.0", "g++_1.1") for DEB in DEBS}


def test_what_somebody_else_has_put_into_the_folder_stays(world: BundleWorld) -> None:
    strange = {"weights/mine.gguf", "packages/debian-12/mine of two words", "packages/notes/list", "README"}
    for path in strange:
        (world.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (world.folder / path).write_text("mine")
    world.bundled()
    world.lock(b"newer", "newer.gguf")
    world.mirror("good", b"newer", "newer.gguf")
    world.bundled()
    assert strange < world.paths
    assert WEIGHT not in world.paths


def test_a_disk_that_is_full_is_one_line_with_the_folder(world: BundleWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    before = world.bundled()
    (world.folder / WEIGHT).unlink()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(web, "fetch", full)
        assert world.refused() == [f"{world.folder}: No space left on device"]
    assert world.bundled().rows == before.rows


def test_a_folder_that_cannot_be_written_is_one_line(world: BundleWorld) -> None:
    file = world.box.folder / "file"
    file.touch()
    (line,) = world.refused("--output", str(file / "bundle"))
    assert line.endswith(": Not a directory")
    (world.folder / "weights").mkdir(parents=True)
    (world.folder / "weights" / "small").touch()
    (line,) = world.refused()
    assert line == f"{world.folder}/weights/small/{COMMIT}: Not a directory"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_folder_that_is_read_only_is_one_line(world: BundleWorld) -> None:
    world.folder.mkdir()
    mount = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o ro none "$1" && shift && exec "$@"', "sh"]
    rig = [str(Path(collect.__file__).parents[3] / ".venv/bin/python"), "-m", "rigwright", "bundle"]
    command = [*mount, str(world.folder), *rig, str(world.box.inventory), "--system", "debian-12"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"Error: {world.folder}/sources: Read-only file system\n"


def test_archives_are_tried_in_order(world: BundleWorld, archive: AptArchive) -> None:
    world.inventory("good", apt="gone archive")
    assert {row.path for row in world.bundled().rows} == FILES | DEBS
    # one that lies about a package is found out by apt
    path = next(path for path in archive.debs if "g++" in path)
    content = archive.debs[path]
    archive.serve(path, content[:-1] + bytes([content[-1] ^ 1]))
    (line,) = world.refused()
    assert "gone" in line
    assert "Hash Sum mismatch" in line


def test_an_archive_of_strangers_is_refused(
    world: BundleWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with signing(tmp_path / "other.gpg"):
        monkeypatch.setattr(packages, "KEYRING", str(tmp_path / "other.gpg"))
        (line,) = world.refused()
    assert "packages of debian-12: apt-get failed: " in line
    assert "NO_PUBKEY" in line or "not signed" in line


def test_packages_that_need_what_nobody_has_are_refused(world: BundleWorld, archive: AptArchive) -> None:
    archive.package("g++", "1.2", "nothing-like-it")
    archive.publish()
    (line,) = world.refused()
    assert "packages of debian-12: apt-get failed: " in line


def test_another_distribution_needs_its_key_and_an_archive(world: BundleWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.inventory("good", apt="")
    monkeypatch.setattr(packages, "_release", lambda: {"ID": "debian", "VERSION_CODENAME": "bookworm"})
    (line,) = world.refused(system="ubuntu-24.04")
    said = "this machine has another distribution: name its archive in the rig's mirrors, as apt"
    assert line == f"{world.box.inventory}: packages of ubuntu-24.04: {said}"
    monkeypatch.setattr(packages, "KEYRING", "/nowhere/{}-archive-keyring.gpg")
    (line,) = world.refused(system="ubuntu-24.04")
    said = "/nowhere/ubuntu-archive-keyring.gpg is not on this machine: install ubuntu-keyring"
    assert line.endswith(said)


def test_an_ubuntu_archive_has_its_security_suite_beside_the_others(world: BundleWorld, archive: AptArchive) -> None:
    archive.publish("noble", ("main", "universe"))
    done = world.bundle(system="ubuntu-24.04")
    assert done.exit_code == 0, done.output
    assert world.read().systems == ("ubuntu-24.04",)
    assert not [one.path for one in world.files.asked if "debian-security" in one.path]


def test_several_systems_and_rigs_share_one_bundle(world: BundleWorld, archive: AptArchive) -> None:
    archive.publish("trixie")
    world.inventory("good", rigs=3)
    found = world.bundled("--system", "debian-13")
    assert found.systems == ("debian-12", "debian-13")
    assert {row.path for row in found.rows} == FILES | DEBS | {path.replace("-12", "-13") for path in DEBS}
    # a system that is not named any more goes
    assert world.bundled().packages("debian-13") == ()
    assert world.paths == {INDEX, *FILES, *DEBS}


def test_a_system_that_is_not_to_be_had_leaves_the_earlier_bundle_whole(
    world: BundleWorld, archive: AptArchive
) -> None:
    before = world.bundled()
    archive.package("g++", "1.1")
    archive.publish()
    (line,) = world.refused("--system", "debian-13")
    assert "packages of debian-13: apt-get failed: " in line
    assert world.read() == before


def test_what_cannot_be_meant_is_said(world: BundleWorld) -> None:
    assert "name what the hosts run with --system" in world.bundle(system="").stderr
    assert "'debian-11' is not one of 'debian-12'" in world.bundle(system="debian-11").stderr
    world.box.write("rig.py", "rigs = []\n")
    assert world.refused() == [f"{world.box.inventory}: no rigs: there is nothing to bundle"]
    world.inventory("good", rigs=1, bundle=None)
    text = world.box.inventory.read_text()
    world.box.write("rig.py", text.replace('bundle="the bundle"', "").replace("'bundle': None", ""))
    assert world.refused() == [f"{world.box.inventory}: the rigs name 0 bundles: say which with --output"]
    world.box.write("rig.py", "raise ValueError('x')\n")
    assert world.refused() == [f"{world.box.inventory}: ValueError: x"]
