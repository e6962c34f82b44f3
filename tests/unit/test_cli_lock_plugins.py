"""`rigwright lock` opens an operator's plugin: one that is not as described, or needs what is not there, is refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.lock_resolver.plugin_validation import missing_requirements
from rigwright.supply.lock import Lock, render_lock
from tests.sample_plugins import MODULE, NAME, plugin_wheel, release_zip, zip_files
from tests.unit.conftest import lock_fixture_box
from tests.unit.cuda_libraries import cuda_library
from tests.unit.env_samples import conda_row
from tests.unit.file_server import complete_file, run_file_server
from tests.unit.lock_world import LockFixture
from tests.unit.test_cli_lock_patches import patched_wheel, publish

CATALOG = f"""
[inputs.pk]
kind = "wheel"
python = "3.10.20"
requirements = ["demo"]

[inputs.louder]
kind = "plugin"
version = "1.0"
sources = ["store:louder.zip"]

[plugins.louder]
input = "louder"
distribution = "{NAME}"
target_distribution = "demo"
versions = ["1.0"]
imports = ["{MODULE}"]
commands = ["louder-serve", "louder-doctor"]

[envs.small]
python = "py"
packages = "pk"
distribution = "demo"
imports = ["demo"]
plugins = ["louder"]
"""
INVENTORY = """
from rigwright.inventory import hosts

rigs = hosts({{"box": {{"ssh_hostname": "127.0.0.1", "envs": ["small"], "mirrors": {{"store": ["{url}/store"]}}}}}})
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LockFixture]:
    """A box with a small environment that has a plugin."""
    with run_file_server() as files:
        box = lock_fixture_box(tmp_path, files, "json", monkeypatch)
        box.write_catalog(CATALOG)
        (box.folder / "rig.py").write_text(INVENTORY.format(url=files.url))
        (box.folder / "locks").mkdir(exist_ok=True)
        own = render_lock([conda_row()], "catalog/py.toml").partition("\n")[2]
        (box.folder / "locks/py.lock.toml").write_text(own)
        publish(box, patched_wheel())
        yield box


def lock_output(world: LockFixture, content: bytes, *options: str) -> str:
    world.files.serve("store/louder.zip", complete_file(content))
    done = world.run_lock(*options)
    assert done.exit_code == 1, done.output
    assert world.lock_text == ""
    return " ".join(done.output.split())


def test_one_that_fits_is_locked_with_its_hash(world: LockFixture) -> None:
    world.files.serve("store/louder.zip", complete_file(release_zip()))
    assert any(line.startswith("+ plugin louder 1.0") for line in world.lock_lines())
    row = world.read_lock.artefacts["louder"]
    assert (row.kind, row.file, row.size) == ("plugin", "louder.zip", len(release_zip()))
    assert world.lock_lines() == ["no change"]
    # a judged file stays, though no source has it now
    world.files.serve("store/louder.zip", complete_file(b"another"))
    assert world.lock_lines() == ["no change"]


def test_one_that_no_environment_has_is_locked_and_named_as_not_inspected(world: LockFixture) -> None:
    inventory = world.folder / "rig.py"
    inventory.write_text(inventory.read_text().replace('"envs": ["small"], ', ""))
    world.files.serve("store/louder.zip", complete_file(b"not a zip"))
    done = world.run_lock()
    assert done.exit_code == 0, done.output
    assert "louder.zip is not inspected: no environment of the inventory has its plugin" in " ".join(
        done.output.split()
    )


def test_an_operators_file_is_read_in_place(world: LockFixture, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "louder.zip").write_bytes(release_zip())
    assert (world.run_lock("--from-dir", str(given)).exit_code, world.fetched_paths) == (0, [])
    (given / "louder.zip").write_bytes(release_zip(commands=()))
    done = world.run_lock("--from-dir", str(given))
    assert (done.exit_code, "it has no program louder-serve" in done.output) == (1, True)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (zip_files({"../evil": "x"}), "small: plugin louder: louder.zip: ../evil leads out of it"),
        (zip_files({"dist/a.whl": "x", "dist/b.whl": "x"}), "one wheel, in dist/, and has dist/a.whl, dist/b.whl"),
        (b"PK\3\4 cut", "louder.zip: it cannot be read: it is truncated"),
        (release_zip(files={f"{MODULE}/__init__.py": "", "a.pth": ""}), "every Python would run a.pth"),
        (release_zip(files={f"{MODULE}.py": "", "demo/more.py": ""}), "its module demo is another package's"),
        (release_zip(requires=["requests>=2"]), "it needs requests>=2, which the environment lacks"),
        (release_zip(requires=["demo==1.1"]), "it needs demo==1.1, and the environment has 1.0"),
        (
            release_zip(files={f"{MODULE}/__init__.py": "", "a.so": cuda_library("sm_86")[:-9]}),
            "cannot be judged: 'a.so': it is",
        ),
        (
            zip_files({"dist/x-1.whl": plugin_wheel("0.9")}),
            "says that it is louder-plugin 0.9, and is to be louder-plugin 1.0",
        ),
    ],
)
def test_one_that_is_not_as_described_is_refused(world: LockFixture, content: bytes, found: str) -> None:
    assert found in lock_output(world, content)


def test_targets_of_its_machine_code_are_in_its_row(world: LockFixture) -> None:
    files = {f"{MODULE}/__init__.py": "", f"{MODULE}/a.so": cuda_library("sm_75"), f"{MODULE}/host.so": cuda_library()}
    world.files.serve("store/louder.zip", complete_file(release_zip(files=files)))
    world.lock_lines()
    assert world.read_lock.artefacts["louder"].machine_code == (f"{MODULE}/a.so sm_75",)
    assert world.lock_lines() == ["no change"]


def test_one_that_was_locked_before_it_was_judged_is_judged(world: LockFixture) -> None:
    files = {f"{MODULE}/__init__.py": "", f"{MODULE}/a.so": cuda_library("sm_75")}
    world.files.serve("store/louder.zip", complete_file(release_zip(files=files)))
    world.lock_lines()
    (lock,) = [path for path in (world.folder / "locks").iterdir() if "louder.zip" in path.read_text()]
    rows = Lock.load([lock.parent])
    found = [*rows.artefacts.values(), *(row for group in rows.groups.values() for row in group)]
    before = [row.model_copy(update={"machine_code": None}) for row in found if row.name in ("louder", "demo")]
    lock.write_text(render_lock(before, "catalog/mine.toml"))
    assert world.read_lock.artefacts["louder"].machine_code is None
    world.lock_lines()
    assert world.read_lock.artefacts["louder"].machine_code == (f"{MODULE}/a.so sm_75",)


def test_one_for_another_version_of_the_engine_is_refused(world: LockFixture) -> None:
    world.write_catalog(CATALOG.replace('versions = ["1.0"]', 'versions = ["1.1"]'))
    assert "plugin louder: is for demo 1.1, but small has 1.0" in lock_output(world, release_zip())


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("louder.whl", "must be named as wheels are, such as louder_plugin-1.0-py3-none-any.whl"),
        ("vllm-0.21.0-py3-none-any.whl", "it is named for vllm 0.21.0: must be louder-plugin 1.0"),
        ("louder_plugin-9.9-py3-none-any.whl", "it is named for louder-plugin 9.9: must be louder-plugin 1.0"),
        (
            "louder_plugin-1.0-cp312-cp312-manylinux_2_17_x86_64.whl",
            "it is for cp312-cp312-manylinux_2_17_x86_64: must be for Python 3.10.20 on Linux x86_64",
        ),
        ("louder_plugin-1.0-py3-none-win_amd64.whl", "it is for py3-none-win_amd64: must be for Python 3.10.20"),
    ],
)
def test_one_that_cannot_be_installed_by_its_name_is_refused(world: LockFixture, name: str, line: str) -> None:
    assert f"small: plugin louder: louder.zip: {name}: {line}" in lock_output(
        world, zip_files({f"dist/{name}": plugin_wheel()})
    )


@pytest.mark.parametrize(
    "tag", ["cp310-cp310-manylinux_2_35_x86_64", "cp310-cp310-linux_x86_64", "cp38-abi3-linux_x86_64"]
)
def test_one_that_the_environments_python_installs_is_locked(world: LockFixture, tag: str) -> None:
    world.files.serve(
        "store/louder.zip", complete_file(zip_files({f"dist/louder_plugin-1.0-{tag}.whl": plugin_wheel()}))
    )
    assert any(line.startswith("+ plugin louder 1.0") for line in world.lock_lines())


@pytest.mark.parametrize(
    ("python", "line"),
    [
        (">=3.12", "Requires-Python: it is for >=3.12, and the environment has 3.10.20"),
        ("three", "Requires-Python: 'three' is invalid: must be versions, such as >=3.10"),
    ],
)
def test_one_for_another_python_is_refused(world: LockFixture, python: str, line: str) -> None:
    metadata = f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\nRequires-Python: {python}\n"
    files = {f"{MODULE}/__init__.py": "", f"{MODULE}-1.0.dist-info/METADATA": metadata}
    assert f"louder.zip: {line}" in lock_output(world, release_zip(files=files))


@pytest.mark.parametrize(
    ("requires", "lines"),
    [
        ("demo", []),
        ("Demo>=1,<2", []),
        ("other; extra == 'dev'", []),
        ("tomli; python_version < '3.10'", []),
        ("tomli; python_version < '3.11'", ['it needs tomli; python_version < "3.11", which the environment lacks']),
        ("demo>1", ["it needs demo>1, and the environment has 1.0"]),
        ("demo[more]", ["Requires-Dist: it needs demo[more]: must be a name and versions, without an extra"]),
        ("demo @ https://x.test/demo.whl", ["must be a name and versions, without an extra or an address"]),
        ("de mo", ["it has an invalid requirement: 'de mo'"]),
    ],
)
def test_its_needs_are_there(requires: str, lines: list[Any]) -> None:
    python = {"python_version": "3.10", "python_full_version": "3.10.20"}
    found = list(missing_requirements([requires], {"demo": "1.0"}, python))
    assert len(found) == len(lines)
    assert all(line in one for line, one in zip(lines, found, strict=True))
