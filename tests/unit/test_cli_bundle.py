"""`rigwright bundle` against mirrors, an index and a signed apt archive on the loopback interface."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from cli.bundling import collect
from cli.resolving import web
from rigwright.host.deploy_lock import holder_record
from rigwright.inventory import load
from rigwright.supply.bundle import INDEX
from rigwright.supply.expected import heard
from tests.unit.bundle_world import DEBS, FILES, SOURCE, WEIGHT, WEIGHTS, WHEEL, AptArchive, BundleWorld
from tests.unit.file_server import cut, status, whole
from tests.unit.samples import COMMIT, artefact, chat, entry
from tests.unit.scripts import stand_in


def test_everything_is_brought_and_the_rig_is_satisfied_with_it(maker: BundleWorld) -> None:
    made = maker.bundle()
    assert made.exit_code == 0, made.output
    found = maker.read()
    assert maker.paths == {INDEX, *FILES, *DEBS}
    assert {row.path for row in found.rows} == FILES | DEBS
    assert found.systems == ("debian-12",)
    assert [line.split()[-4:-2] for line in made.stdout.splitlines()[1:5]] == [
        ["source", "1"],
        ["weight", "1"],
        ["wheel", "1"],
        ["debian-12", "5"],
    ]
    assert f"{maker.folder}: 8 files, " in made.stdout
    read_out = made.stdout.splitlines()[-1].rpartition(" ")[2]
    maker.inventory(apt="")  # nothing that a mirror would be asked for
    (item,) = maker.box.group({"box": entry(bundle="the bundle", mirrors={}, instances=chat())})
    rig = load(item[1]["rig"])
    assert rig.bundle == found
    places = {f"packages/debian-12/{path}": name for name, path in rig.bundle.packages("debian-12").places}
    assert places == {row.path: row.sha256 for row in found.rows if row.path in DEBS}
    assert heard(read_out) == rig.digest


def test_what_is_there_is_kept_and_a_byte_that_differs_is_fetched_again(maker: BundleWorld) -> None:
    first = maker.bundled()
    assert sorted(path.rpartition("/")[2] for path in maker.asked if "pool" not in path) == sorted(
        path.rpartition("/")[2] for path in FILES
    )
    again = maker.bundled()
    assert [path for path in maker.asked if "pool" not in path] == []
    assert again.rows == first.rows
    weight = maker.folder / WEIGHT
    weight.write_bytes(WEIGHTS[:-1] + b"x")
    (maker.folder / WHEEL).unlink()
    assert maker.bundled().rows == first.rows
    assert [path for path in maker.asked if "pool" not in path] == [
        "good/small-q4.gguf",
        f"files/{Path(WHEEL).name}",
    ]


def test_the_same_files_are_the_same_bundle_wherever_it_is_made(maker: BundleWorld) -> None:
    one = maker.bundled().rows
    assert maker.bundled("--output", str(maker.folder)).rows == one
    other = maker.box.folder / "two words"
    assert maker.bundle("--output", str(other)).exit_code == 0
    texts = [(folder / INDEX).read_text().splitlines() for folder in (maker.folder, other)]
    here, there = ([line for line in text if '"made"' not in line] for text in texts)
    assert here == there


def test_files_of_this_machine_are_taken_when_they_are_the_locked_ones(maker: BundleWorld, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    for name in ("engine-1.0.tar.gz", "tool-1.0-py3-none-any.whl", "small-q4.gguf"):
        (given / name).write_bytes(maker.content[name])
    maker.inventory()
    maker.bundled("--from-dir", str(given))
    assert [path for path in maker.asked if "pool" not in path] == []
    (given / "small-q4.gguf").write_bytes(b"another")
    (maker.folder / WEIGHT).unlink()
    (line,) = maker.refused("--from-dir", str(given))
    assert f"is not available: {given / 'small-q4.gguf'} is another file: add a mirror" in line
    maker.inventory("good")
    maker.bundled("--from-dir", str(given))


def test_a_mirror_that_lies_breaks_off_or_is_gone_is_passed_over(maker: BundleWorld) -> None:
    maker.mirror("liar", WEIGHTS[:-1] + b"x")
    maker.mirror("longer", WEIGHTS + b"x")
    maker.files.serve("half/small-q4.gguf", cut(WEIGHTS, 1000))
    maker.files.serve("broken/small-q4.gguf", status(500))
    maker.inventory("gone", "liar", "longer", "half", "broken", "good")
    maker.bundled()
    (maker.folder / WEIGHT).unlink()
    maker.inventory("gone", "liar", "half")
    (line,) = maker.refused()
    said = [
        "gone/small-q4.gguf answers 404",
        f"liar/small-q4.gguf has {len(WEIGHTS)} bytes with SHA-256",
        "half/small-q4.gguf",
    ]
    assert [part in line for part in said] == [True] * 3, line
    assert not list((maker.folder / "weights").rglob("*.part"))


def test_a_file_that_was_cut_goes_on_where_it_was(maker: BundleWorld) -> None:
    tag = ("ETag", '"one"')
    maker.files.serve("good/small-q4.gguf", cut(WEIGHTS, 3_000_000, tag), whole(WEIGHTS, tag))
    maker.bundled()
    asked = [one.range for one in maker.files.asked if one.path == "good/small-q4.gguf"]
    assert asked == [None, f"bytes={2 * web.PART}-"]


def test_all_that_is_not_to_be_had_is_said_at_once_and_no_index_is_written(maker: BundleWorld) -> None:
    maker.withhold("engine")
    maker.withhold("tool")
    maker.inventory()
    maker.files.serve("archive/debian/dists/bookworm/InRelease", status(404))
    lines = maker.refused()
    assert [line.removeprefix(f"{maker.box.inventory}: ").partition(": ")[0] for line in lines] == [
        "engine-source 1.0",
        "packages of debian-12",
        f"small {COMMIT}",
        "tool 1.0",
    ]
    assert "apt-get failed: " in lines[1]
    assert "is not available: no address (store:small-q4.gguf): add a mirror" in lines[2]
    assert not (maker.folder / INDEX).exists()


def test_a_bundle_that_does_not_come_about_leaves_the_earlier_one_whole(
    maker: BundleWorld, archive: AptArchive
) -> None:
    before = maker.bundled()
    archive.package("g++", "1.1")
    archive.publish()
    maker.lock(b"newer", "newer.gguf")
    assert "is not available" in maker.refused()[0]
    assert maker.read() == before
    maker.mirror("good", b"newer", "newer.gguf")
    maker.bundled()
    new = {DEB.replace("g++_1.0", "g++_1.1") for DEB in DEBS}
    # what only the earlier one had is gone, folders too
    assert maker.paths == {INDEX, SOURCE, WHEEL, f"weights/small/{COMMIT}/newer.gguf", *new}
    maker.lock(WEIGHTS, "renamed.gguf")
    maker.mirror("good", WEIGHTS, "renamed.gguf")
    maker.bundled()
    assert (maker.folder / f"weights/small/{COMMIT}/renamed.gguf").exists()


def test_a_maker_that_dies_before_the_index_leaves_the_earlier_one_whole(
    maker: BundleWorld, archive: AptArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = maker.bundled()
    archive.package("g++", "1.1")
    archive.publish()

    def die(*_: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(collect, "text", die)
        assert maker.bundle().exit_code == 130
    assert maker.read() == before
    assert {row.path for row in maker.bundled().rows} == FILES | {DEB.replace("g++_1.0", "g++_1.1") for DEB in DEBS}


def test_what_somebody_else_has_put_into_the_folder_stays(maker: BundleWorld) -> None:
    strange = {"weights/mine.gguf", "packages/debian-12/mine of two words", "packages/notes/list", "README"}
    for path in strange:
        (maker.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (maker.folder / path).write_text("mine")
    maker.bundled()
    maker.lock(b"newer", "newer.gguf")
    maker.mirror("good", b"newer", "newer.gguf")
    maker.bundled()
    assert strange < maker.paths
    assert WEIGHT not in maker.paths


def test_a_disk_that_is_full_is_one_line_with_the_folder(maker: BundleWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    before = maker.bundled()
    (maker.folder / WEIGHT).unlink()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(web, "fetch", full)
        assert maker.refused() == [f"{maker.folder}: No space left on device"]
    assert maker.bundled().rows == before.rows


def test_a_folder_that_somebody_else_is_at_is_left_alone(maker: BundleWorld) -> None:
    maker.folder.mkdir()
    # who can only read the folder can lock it, too
    readable = os.open(maker.folder, os.O_RDONLY)
    fcntl.flock(readable, fcntl.LOCK_EX)
    with (maker.folder / ".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write(f"{holder_record('bundle of box.py')}\n")
        other.flush()
        (line,) = maker.refused()
        assert line.startswith(f"{maker.folder}: another `rigwright bundle` is running there: ")
        assert "bundle of box.py; wait until that is done" in line
        assert maker.paths == set()
        fcntl.flock(other, fcntl.LOCK_UN)
    (maker.folder / ".lock").unlink()
    maker.bundled()
    assert (maker.folder / ".lock").stat().st_mode & 0o777 == 0o600
    os.close(readable)


def test_a_link_in_the_locks_place_is_not_followed(maker: BundleWorld) -> None:
    maker.folder.mkdir()
    (maker.folder / ".lock").symlink_to(maker.box.folder / "elsewhere")
    (line,) = maker.refused()
    assert line == f"{maker.folder}/.lock: is a symbolic link: remove it"
    assert not (maker.box.folder / "elsewhere").exists()


def test_a_folder_that_cannot_be_written_is_one_line(maker: BundleWorld) -> None:
    file = maker.box.folder / "file"
    file.touch()
    (line,) = maker.refused("--output", str(file / "bundle"))
    assert line.endswith(": Not a directory")
    (maker.folder / "weights").mkdir(parents=True)
    (maker.folder / "weights" / "small").touch()
    (line,) = maker.refused()
    assert line == f"{maker.folder}/weights/small/{COMMIT}: Not a directory"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_folder_that_is_read_only_is_one_line(maker: BundleWorld) -> None:
    maker.folder.mkdir()
    mount = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o ro none "$1" && shift && exec "$@"', "sh"]
    rig = [str(Path(collect.__file__).parents[2] / ".venv/bin/python"), "-m", "cli", "bundle"]
    command = [*mount, str(maker.folder), *rig, str(maker.box.inventory), "--system", "debian-12"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"Error: {maker.folder}/.lock: Read-only file system\n"


def test_what_cannot_be_meant_is_said(maker: BundleWorld) -> None:
    assert "name the hosts' system with --system" in maker.bundle(system="").stderr
    assert '"debian-11" is none of them; did you mean "debian-1' in maker.bundle(system="debian-11").stderr
    maker.box.write("rig.py", "rigs = []\n")
    assert maker.refused() == [f"{maker.box.inventory}: no rigs: there is nothing to bundle"]
    maker.inventory("good", rigs=1, bundle=None)
    text = maker.box.inventory.read_text()
    maker.box.write("rig.py", text.replace('bundle="the bundle"', "").replace("'bundle': None", ""))
    assert maker.refused() == [f"{maker.box.inventory}: the rigs name 0 bundles: choose one with --output"]
    maker.box.write("rig.py", "raise ValueError('x')\n")
    assert maker.refused() == [f"{maker.box.inventory}: ValueError: x"]


@pytest.mark.parametrize("mirrored", [True, False])
def test_conda_packages_have_a_folder_and_come_from_their_channel(
    maker: BundleWorld, monkeypatch: pytest.MonkeyPatch, mirrored: bool
) -> None:
    content = {"linux-64": b"of this platform", "noarch": b"of any"}
    rows = []
    for subdir, its in content.items():
        maker.files.serve(f"forge/{subdir}/x-1.0-h1_0.conda", whole(its))
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
        rows.append(artefact(**known, sha256=digest, size=len(its), sources=[source]))
    monkeypatch.setattr(collect.Bundler, "artefacts", rows)
    if mirrored:
        maker.inventory("forge")
    else:
        say = f"""[ "$3 $4" = "channel forge" ] && echo '["{maker.files.url}/forge/"]'"""
        monkeypatch.setattr(collect.sys, "executable", str(stand_in(maker.box.folder / "bin", "python", say)))
    found = maker.bundled()
    places = {row.sha256: row.path for row in found.rows if row.path.startswith("conda/")}
    assert places == {row.sha256: f"conda/{row.sha256[:16]}/x-1.0-h1_0.conda" for row in rows}
    assert {file.name for file in found.files(rows)} == {"x-1.0-h1_0.conda"}


def test_a_channel_that_nobody_knows_is_said(maker: BundleWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    row = artefact(
        kind="conda",
        build="0",
        selection="0" * 12,
        name="x",
        group="python",
        version="1.0",
        sources=["forge:noarch/x.conda"],
    )
    monkeypatch.setattr(collect.Bundler, "artefacts", [row])
    monkeypatch.setattr(collect.sys, "executable", str(stand_in(maker.box.folder / "bin", "python", "exit 1")))
    (line,) = maker.refused()
    assert "py-rattler, needed to locate the channel forge, does not run" in line
