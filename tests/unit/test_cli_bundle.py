"""`rigwright bundle` against mirrors, an index and a signed apt archive on the loopback interface."""

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli import bundle_builder
from cli.lock_resolver import downloads
from rigwright.host.deploy_lock_state import render_holder_record
from rigwright.inventory import load_rig
from rigwright.supply.bundle import INDEX, parse_digest
from tests.unit.bundle_world import DEBS, FILES, SOURCE, WEIGHT, WEIGHTS, WHEEL, BundleFixture
from tests.unit.file_server import complete_file, error_status, truncated_file
from tests.unit.rendered_scripts import write_stand_in
from tests.unit.samples import COMMIT, chat_instances, sample_artefact, sample_entry


def test_everything_is_brought_and_the_rig_is_satisfied_with_it(maker: BundleFixture) -> None:
    made = maker.run_bundle()
    assert made.exit_code == 0, made.output
    found = maker.read_bundle()
    assert maker.bundle_paths == {INDEX, *FILES, *DEBS}
    assert {row.path for row in found.rows} == FILES | DEBS
    assert found.systems == ("debian-12",)
    assert [line.split()[-4:-2] for line in made.stdout.splitlines()[1:5]] == [
        ["source", "1"],
        ["weight", "1"],
        ["wheel", "1"],
        ["debian-12", "5"],
    ]
    assert f"{maker.bundle_folder}: 8 files, " in made.stdout
    read_out = made.stdout.splitlines()[-1].rpartition(" ")[2]
    maker.write_inventory(apt="")  # nothing that a mirror would be asked for
    (item,) = maker.box.load_group({"box": sample_entry(bundle="the bundle", mirrors={}, instances=chat_instances())})
    rig = load_rig(item[1]["rig"])
    assert rig.bundle == found
    places = {f"packages/debian-12/{path}": name for name, path in rig.bundle.packages("debian-12").places}
    assert places == {row.path: row.sha256 for row in found.rows if row.path in DEBS}
    assert parse_digest(read_out) == rig.digest


def test_present_files_are_kept_and_a_changed_byte_is_fetched_again(maker: BundleFixture) -> None:
    first = maker.make_bundle()
    assert sorted(path.rpartition("/")[2] for path in maker.fetched_paths if "pool" not in path) == sorted(
        path.rpartition("/")[2] for path in FILES
    )
    again = maker.make_bundle()
    assert [path for path in maker.fetched_paths if "pool" not in path] == []
    assert again.rows == first.rows
    (maker.bundle_folder / WEIGHT).write_bytes(WEIGHTS[:-1] + b"x")
    (maker.bundle_folder / WHEEL).unlink()
    assert maker.make_bundle().rows == first.rows
    assert [path for path in maker.fetched_paths if "pool" not in path] == [
        "good/small-q4.gguf",
        f"files/{Path(WHEEL).name}",
    ]


def test_the_same_files_are_the_same_bundle_wherever_it_is_made(maker: BundleFixture) -> None:
    one = maker.make_bundle().rows
    assert maker.make_bundle("--output", str(maker.bundle_folder)).rows == one
    other = maker.box.folder / "two words"
    assert maker.run_bundle("--output", str(other)).exit_code == 0
    texts = [(folder / INDEX).read_text().splitlines() for folder in (maker.bundle_folder, other)]
    here, there = ([line for line in text if '"made"' not in line] for text in texts)
    assert here == there


def test_files_of_this_machine_are_taken_when_they_are_the_locked_ones(maker: BundleFixture, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    for name in ("engine-1.0.tar.gz", "tool-1.0-py3-none-any.whl", "small-q4.gguf"):
        (given / name).write_bytes(maker.content[name])
    maker.write_inventory()
    maker.make_bundle("--from-dir", str(given))
    assert [path for path in maker.fetched_paths if "pool" not in path] == []
    (given / "small-q4.gguf").write_bytes(b"another")
    (maker.bundle_folder / WEIGHT).unlink()
    (line,) = maker.error_lines("--from-dir", str(given))
    assert f"is not available: {given / 'small-q4.gguf'} is another file: add a mirror" in line
    maker.write_inventory("good")
    maker.make_bundle("--from-dir", str(given))


def test_a_mirror_that_lies_breaks_off_or_is_gone_is_passed_over(maker: BundleFixture) -> None:
    maker.serve_mirror("liar", WEIGHTS[:-1] + b"x")
    maker.serve_mirror("longer", WEIGHTS + b"x")
    maker.files.serve("half/small-q4.gguf", truncated_file(WEIGHTS, 1000))
    maker.files.serve("broken/small-q4.gguf", error_status(500))
    maker.write_inventory("gone", "liar", "longer", "half", "broken", "good")
    maker.make_bundle()
    (maker.bundle_folder / WEIGHT).unlink()
    maker.write_inventory("gone", "liar", "half")
    (line,) = maker.error_lines()
    said = [
        "gone/small-q4.gguf answers 404",
        f"liar/small-q4.gguf has {len(WEIGHTS)} bytes with SHA-256",
        "half/small-q4.gguf",
    ]
    assert [part in line for part in said] == [True] * 3, line
    assert not list((maker.bundle_folder / "weights").rglob("*.part"))


def test_a_file_that_was_cut_goes_on_where_it_was(maker: BundleFixture) -> None:
    tag = ("ETag", '"one"')
    maker.files.serve("good/small-q4.gguf", truncated_file(WEIGHTS, 3_000_000, tag), complete_file(WEIGHTS, tag))
    maker.make_bundle()
    asked = [one.range for one in maker.files.asked if one.path == "good/small-q4.gguf"]
    assert asked == [None, f"bytes={2 * downloads.CHUNK_BYTES}-"]


def test_all_that_is_not_to_be_had_is_reported_at_once_and_no_index_is_written(maker: BundleFixture) -> None:
    maker.remove_project("engine")
    maker.remove_project("tool")
    maker.write_inventory()
    maker.files.serve("archive/debian/dists/bookworm/InRelease", error_status(404))
    lines = maker.error_lines()
    assert [line.removeprefix(f"{maker.box.inventory}: ").partition(": ")[0] for line in lines] == [
        "engine-source 1.0",
        "packages of debian-12",
        f"small {COMMIT}",
        "tool 1.0",
    ]
    assert "apt-get failed: " in lines[1]
    assert "is not available: no address (store:small-q4.gguf): add a mirror" in lines[2]
    assert not (maker.bundle_folder / INDEX).exists()


def test_a_bundle_that_does_not_come_about_leaves_the_earlier_one_whole(maker, archive):
    before = maker.make_bundle()
    archive.add_package("g++", "1.1")
    archive.publish_suites()
    maker.write_lock(b"newer", "newer.gguf")
    assert "is not available" in maker.error_lines()[0]
    assert maker.read_bundle() == before
    maker.serve_mirror("good", b"newer", "newer.gguf")
    maker.make_bundle()
    new = {DEB.replace("g++_1.0", "g++_1.1") for DEB in DEBS}
    # files that only the earlier one had are gone, folders too
    assert maker.bundle_paths == {INDEX, SOURCE, WHEEL, f"weights/small/{COMMIT}/newer.gguf", *new}
    maker.write_lock(WEIGHTS, "renamed.gguf")
    maker.serve_mirror("good", WEIGHTS, "renamed.gguf")
    maker.make_bundle()
    assert (maker.bundle_folder / f"weights/small/{COMMIT}/renamed.gguf").exists()


def test_a_maker_that_dies_before_the_index_leaves_the_earlier_one_whole(maker, archive, monkeypatch):
    before = maker.make_bundle()
    archive.add_package("g++", "1.1")
    archive.publish_suites()

    def die(*_: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(bundle_builder, "render_index", die)
        assert maker.run_bundle().exit_code == 130
    assert maker.read_bundle() == before
    assert {row.path for row in maker.make_bundle().rows} == FILES | {DEB.replace("g++_1.0", "g++_1.1") for DEB in DEBS}


def test_foreign_files_in_the_folder_stay(maker: BundleFixture) -> None:
    strange = {"weights/mine.gguf", "packages/debian-12/mine of two words", "packages/notes/list", "README"}
    for path in strange:
        (maker.bundle_folder / path).parent.mkdir(parents=True, exist_ok=True)
        (maker.bundle_folder / path).write_text("mine")
    maker.make_bundle()
    maker.write_lock(b"newer", "newer.gguf")
    maker.serve_mirror("good", b"newer", "newer.gguf")
    maker.make_bundle()
    assert strange < maker.bundle_paths
    assert WEIGHT not in maker.bundle_paths


def test_a_disk_that_is_full_is_one_line_with_the_folder(maker: BundleFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    before = maker.make_bundle()
    (maker.bundle_folder / WEIGHT).unlink()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(downloads, "fetch_file", full)
        assert maker.error_lines() == [f"{maker.bundle_folder}: No space left on device"]
    assert maker.make_bundle().rows == before.rows


def test_a_folder_locked_by_another_process_is_left_alone(maker: BundleFixture) -> None:
    maker.bundle_folder.mkdir()
    # a user that can only read the folder can lock it, too
    readable = os.open(maker.bundle_folder, os.O_RDONLY)
    fcntl.flock(readable, fcntl.LOCK_EX)
    with (maker.bundle_folder / ".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write(f"{render_holder_record('bundle of box.py')}\n")
        other.flush()
        (line,) = maker.error_lines()
        assert line.startswith(f"{maker.bundle_folder}: another `rigwright bundle` is running there: ")
        assert "bundle of box.py; wait until that is done" in line
        assert maker.bundle_paths == set()
        fcntl.flock(other, fcntl.LOCK_UN)
    (maker.bundle_folder / ".lock").unlink()
    maker.make_bundle()
    assert (maker.bundle_folder / ".lock").stat().st_mode & 0o777 == 0o600
    os.close(readable)


def test_a_link_in_the_locks_place_is_not_followed(maker: BundleFixture) -> None:
    maker.bundle_folder.mkdir()
    (maker.bundle_folder / ".lock").symlink_to(maker.box.folder / "elsewhere")
    (line,) = maker.error_lines()
    assert line == f"{maker.bundle_folder}/.lock: is a symbolic link: remove it"
    assert not (maker.box.folder / "elsewhere").exists()


def test_a_folder_that_cannot_be_written_is_one_line(maker: BundleFixture) -> None:
    file = maker.box.folder / "file"
    file.touch()
    (line,) = maker.error_lines("--output", str(file / "bundle"))
    assert line.endswith(": Not a directory")
    (maker.bundle_folder / "weights").mkdir(parents=True)
    (maker.bundle_folder / "weights" / "small").touch()
    (line,) = maker.error_lines()
    assert line == f"{maker.bundle_folder}/weights/small/{COMMIT}: Not a directory"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_folder_that_is_read_only_is_one_line(maker: BundleFixture) -> None:
    maker.bundle_folder.mkdir()
    mount = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o ro none "$1" && shift && exec "$@"', "sh"]
    rig = [sys.executable, "-m", "cli", "bundle"]
    command = [*mount, str(maker.bundle_folder), *rig, str(maker.box.inventory), "--system", "debian-12"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"Error: {maker.bundle_folder}/.lock: Read-only file system\n"


def test_a_meaningless_option_is_reported(maker: BundleFixture) -> None:
    assert "name the hosts' system with --system" in maker.run_bundle(system="").stderr
    assert 'there is no system "debian-11"; did you mean "debian-1' in maker.run_bundle(system="debian-11").stderr
    maker.box.write("rig.py", "rigs = []\n")
    assert maker.error_lines() == [f"{maker.box.inventory}: no rigs: there is nothing to bundle"]
    maker.write_inventory("good", rigs=1, bundle=None)
    text = maker.box.inventory.read_text()
    maker.box.write("rig.py", text.replace('bundle="the bundle"', "").replace("'bundle': None", ""))
    assert maker.error_lines() == [f"{maker.box.inventory}: no rig names a bundle folder: choose one with --output"]
    maker.box.write("rig.py", "raise ValueError('x')\n")
    assert maker.error_lines() == [f"{maker.box.inventory}: ValueError: x"]


@pytest.mark.parametrize("mirrored", [True, False])
def test_conda_packages_have_a_folder_and_come_from_their_channel(maker, monkeypatch, mirrored):
    content = {"linux-64": b"of this platform", "noarch": b"of any"}
    rows = []
    for subdir, its in content.items():
        maker.files.serve(f"forge/{subdir}/x-1.0-h1_0.conda", complete_file(its))
        known = {
            "kind": "conda",
            "build": "h1_0",
            "selection": "0" * 12,
            "name": f"x-{subdir}",
            "version": "1.0",
            "group": "python",
            "file": "x-1.0-h1_0.conda",
        }
        source = f"{'store' if mirrored else 'forge'}:{subdir}/x-1.0-h1_0.conda"
        digest = hashlib.sha256(its).hexdigest()
        rows.append(sample_artefact(**known, sha256=digest, size=len(its), sources=[source]))
    monkeypatch.setattr(bundle_builder.BundleBuilder, "locked_artefacts", rows)
    if mirrored:
        maker.write_inventory("forge")
    else:
        say = f"""[ "$3 $4" = "channel forge" ] && echo '["{maker.files.url}/forge/"]'"""
        monkeypatch.setattr(
            bundle_builder.sys, "executable", str(write_stand_in(maker.box.folder / "bin", "python", say))
        )
    found = maker.make_bundle()
    places = {row.sha256: row.path for row in found.rows if row.path.startswith("conda/")}
    assert places == {row.sha256: f"conda/{row.sha256[:16]}/x-1.0-h1_0.conda" for row in rows}
    assert {file.name for file in found.files(rows)} == {"x-1.0-h1_0.conda"}


def test_an_unknown_channel_is_reported(maker: BundleFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    row = sample_artefact(
        kind="conda",
        build="0",
        selection="0" * 12,
        name="x",
        group="python",
        version="1.0",
        sources=["forge:noarch/x.conda"],
    )
    monkeypatch.setattr(bundle_builder.BundleBuilder, "locked_artefacts", [row])
    monkeypatch.setattr(
        bundle_builder.sys, "executable", str(write_stand_in(maker.box.folder / "bin", "python", "exit 1"))
    )
    (line,) = maker.error_lines()
    assert "py-rattler, needed to locate the channel forge, does not run" in line
