"""The wheel: its contents, that a commit gives one, and that its command does the same as a clone's."""

import base64
import csv
import hashlib
import io
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from uv import find_uv_bin

from cli.prog_name import locate_inventory
from distribution import build_backend
from rigwright import local_files, project_root
from rigwright.project_root import ROOT

INVENTORY = """from rigwright.inventory import hosts
rigs = hosts({"box": {"ssh_hostname": "127.0.0.1", "ssh_port": 1, "ssh_user": "ops",
    "instances": {"chat": {"variant": "llamacpp/demo", "port": 8020}},
    "mirrors": {"shelf": ["http://127.0.0.1:8080/"]}}})
"""
BUILD = "import sys; sys.path.insert(0, 'distribution'); import build_backend; build_backend.build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return folder / build_backend.build_wheel(str(folder))


@dataclass
class InstalledCommand:
    """The command of an environment that has the wheel."""

    folder: Path
    """Where it is run."""
    environment: Path

    @property
    def tree(self) -> Path:
        (found,) = self.environment.glob("lib/python3*/site-packages/rigwright_command")
        return found

    def run(self, *words: str) -> tuple[int, str, str]:
        return run(self.folder, str(self.environment / "bin/rigwright"), *words)

    def files(self) -> Mapping[str, int]:
        paths = [path for path in self.tree.rglob("*") if path.is_file()]
        return {str(path): path.stat().st_mtime_ns for path in paths}


def run(folder: Path, *words: str) -> tuple[int, str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RIGWRIGHT_", "PYTHONPATH"))}
    settings = {"HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "XDG_CACHE_HOME": str(folder / "cache")}
    done = subprocess.run(words, cwd=folder, env=kept | settings, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> InstalledCommand:
    folder = tmp_path_factory.mktemp("installed")
    environment, work = folder / "venv", folder / "work"
    work.mkdir()
    (work / "rig.py").write_text(INVENTORY)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin/python"
    install = [find_uv_bin(), "pip", "install", "-q", "--offline", "--no-deps", "--python", python, str(wheel)]
    subprocess.run(install, check=True, stdin=subprocess.DEVNULL)
    # its requirements are the packages that the tests run with
    (site,) = environment.glob("lib/python3*/site-packages")
    (site / "requirements.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return InstalledCommand(work, environment)


def test_one_package_is_at_the_top_and_has_all_of_the_product(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {"rigwright_command", "rigwright-0.1.0.dist-info"}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    product = {path for path in tracked if path.partition("/")[0] in build_backend.PRODUCT}
    left_out = product - {name.removeprefix("rigwright_command/tree/") for name in names}
    assert {Path(path).name for path in left_out} == {
        *("anthropic.in", "anthropic.txt", "bench.in", "bench.txt", "controller-test.txt", "litellm.in", "litellm.txt")
    }
    assert not [name for name in names if "__pycache__" in name or "/tests/" in name]


def test_each_file_is_in_the_record_with_its_digest(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    rows = {
        row[0]: row[1:] for row in csv.reader(io.StringIO(archive.read("rigwright-0.1.0.dist-info/RECORD").decode()))
    }
    assert sorted(rows) == sorted(archive.namelist())
    for name, (digest, size) in rows.items():
        if not name.endswith("RECORD"):
            content = archive.read(name)
            made = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            assert (digest, size) == (f"sha256={made}", str(len(content)))


def test_requirements_are_the_locked_versions(wheel: Path) -> None:
    text = zipfile.ZipFile(wheel).read("rigwright-0.1.0.dist-info/METADATA").decode()
    needed = [Requirement(line[15:]) for line in text.splitlines() if line.startswith("Requires-Dist: ")]
    assert all(str(one.specifier).startswith("==") for one in needed)
    for lock, extra in (("controller", ""), ("controller-lab", "lab")):
        lines = (ROOT / f"locks/{lock}.txt").read_text().splitlines()
        pins = [Requirement(line.removesuffix("\\").strip()) for line in lines if line[:1].strip(" #")]
        for python in ("3.10", "3.13"):
            place = {"python_version": python, "python_full_version": f"{python}.0", "extra": extra}
            locked = {(one.name, str(one.specifier)) for one in pins if not one.marker or one.marker.evaluate(place)}
            asked = {(one.name, str(one.specifier)) for one in needed if not one.marker or one.marker.evaluate(place)}
            assert asked == locked


def test_the_source_archive_and_a_clone_give_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    name = build_backend.build_sdist(str(tmp_path))
    first = (tmp_path / name).read_bytes()
    build_backend.build_sdist(str(tmp_path))
    assert (tmp_path / name).read_bytes() == first
    with tarfile.open(tmp_path / name) as archive:
        archive.extractall(tmp_path, filter="data")
    top = tmp_path / name.removesuffix(".tar.gz")
    # left by a run of the product
    (top / "cli/__pycache__").mkdir()
    (top / "cli/__pycache__/left.pyc").touch()
    subprocess.run([sys.executable, "-c", BUILD, str(tmp_path)], cwd=top, check=True)
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("--help", 0),
        ("--version", 0),
        ("validate rig.py", 0),
        ("validate rig.p", 2),
        ("validate inventory/rig5090.py", 2),
        ("plan rig.py", 3),
        ("check rig.py", 3),
        ("check --explain A12", 0),
        ("deploy --help", 0),
    ],
)
def test_an_installed_command_does_what_a_clones_does(installed: InstalledCommand, words: str, status: int) -> None:
    before = installed.files()
    theirs = installed.run(*words.split())
    assert theirs[0] == status, theirs
    # a clone's inventories are in its own folder
    ours = [str(ROOT / word) if word.startswith("inventory/") else word for word in words.split()]
    said = run(installed.folder, sys.executable, str(ROOT), *ours)
    assert theirs == (said[0], said[1], said[2].replace(str(ROOT / "inventory"), "inventory"))
    assert str(ROOT) not in "".join(theirs[1:])
    # nothing is written to the installed tree
    assert installed.files() == before


def test_a_shipped_inventory_is_named_as_it_was_typed(installed: InstalledCommand) -> None:
    said = installed.run("validate", "inventory/rig5090.py")[2]
    assert "`rigwright lock inventory/rig5090.py`" in said
    assert str(installed.tree) not in said


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("test", "Error: the tests are in a clone of the repository, and this Rigwright is installed\n"),
        ("test inventory/nosuch.py", 'there is no stage "inventory/nosuch.py"'),
    ],
)
def test_verbs_that_need_a_clone_are_refused_with_the_reason(
    installed: InstalledCommand, words: str, text: str
) -> None:
    status, _, said = installed.run(*words.split())
    assert status == 2
    assert text in said


def test_the_shipped_catalogue_is_locked_in_a_clone(installed: InstalledCommand, tmp_path: Path) -> None:
    status, _, said = run(tmp_path, str(installed.environment / "bin/rigwright"), "lock")
    assert status == 2
    assert "Error: the shipped catalogue is locked in a clone; name an inventory to lock its own inputs\n" in said


def test_nothing_is_written_beside_a_shipped_inventory(installed: InstalledCommand) -> None:
    before = installed.files()
    status, _, said = installed.run("new", "model", "inventory/rig5090.py", "mine")
    assert status == 2
    assert "it belongs to the installed Rigwright; copy the inventory to a folder of your own" in said
    assert installed.files() == before


def test_a_file_in_the_installed_tree_is_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project_root, "IS_CLONE", False)
    monkeypatch.setattr(project_root, "ROOT", tmp_path)
    with pytest.raises(OSError, match="belongs to the installed Rigwright"):
        local_files.write_atomically(tmp_path / "inventory/accepted/box.json", "{}", makes_folder=True)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("inventory/demo.py", "{root}/inventory/demo.py"),
        ("inventory/nosuch.py", "inventory/nosuch.py"),
        ("inventory/../deploy.py", "inventory/../deploy.py"),
        ("demo.py", "demo.py"),
        ("/inventory/demo.py", "/inventory/demo.py"),
    ],
)
def test_only_a_shipped_inventory_is_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: str, found: str
) -> None:
    monkeypatch.setattr(sys.modules["cli.prog_name"], "IS_CLONE", False)
    monkeypatch.chdir(tmp_path)
    assert locate_inventory(typed) == found.format(root=ROOT)
    (tmp_path / "inventory").mkdir()
    (tmp_path / typed.lstrip("/")).touch()
    assert locate_inventory(typed) == typed


def test_a_cache_folder_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project_root, "IS_CLONE", False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert project_root.cache_folder() == tmp_path / "rigwright/templates"
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert project_root.cache_folder() is None
    monkeypatch.undo()
    monkeypatch.setattr(project_root, "IS_CLONE", False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "rigwright/templates").chmod(0o777)
    assert project_root.cache_folder() is None
