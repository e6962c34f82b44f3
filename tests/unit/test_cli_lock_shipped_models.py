"""Models and conda packages of Rigwright's own catalogue are locked beside the inventory whose rigs use them."""

import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from cli import main
from cli.lock_resolver import lock_run
from rigwright import inventory
from rigwright.inventory import load_for, load_rig
from rigwright.model.instance import loaded_weights
from rigwright.model.inventory_feature import LoadPurpose
from rigwright.model.network import DownloadNetwork
from rigwright.model.nvidia_tables import ToolkitSpec
from rigwright.project_root import ROOT
from rigwright.supply.lock import LOCK_HEADER, Lock
from tests.lock_files import render_sealed_lock
from tests.stand_ins.hub import StandInHub
from tests.unit.conda_channel import LoopbackCondaChannel
from tests.unit.file_server import run_file_server
from tests.unit.gguf_files import gguf_file

MODELS = """
[models.one]
file = "one-gguf"

[models.two]
file = "two-gguf:two.gguf"
mmproj = "eye-gguf"

[variants."llamacpp/one"]
engine = "llama.cpp"
model = "one"
context = 4096

[variants."llamacpp/two"]
engine = "llama.cpp"
model = "two"
context = 4096

[inputs.one-gguf]
kind = "weight"
repository = "org/one"

[inputs.two-gguf]
kind = "weight"
repository = "org/two"

[inputs.eye-gguf]
kind = "weight"
repository = "org/eye"
"""
RIG = """
from rigwright.inventory import hosts

rigs = hosts({{"box": {{
    "ssh_hostname": "127.0.0.1", "mirrors": {{"hub": ["{url}"]}},
    "instances": {{"chat": {{"variant": "llamacpp/{variant}", "port": 8020}}}},
}}}})
"""
BY_HAND = """
[[artefact]]
kind = "weight"
name = "one-gguf"
version = "1"
file = "one.gguf"
sha256 = "{hash}"
size = 1
sources = ["http://192.0.2.1/one.gguf"]
"""


class ShippedCatalogue:
    """Rigwright's own catalogue and locks with more models, and an operator's folder without a catalogue."""

    def __init__(self, root: Path, folder: Path, hub: StandInHub) -> None:
        self.root, self.folder, self.hub = root, folder, hub
        for noun in ("catalog", "locks"):
            shutil.copytree(ROOT / noun, root / noun)
        (root / "catalog" / "more.toml").write_text(MODELS)
        folder.mkdir()
        self.rig("one")
        for name in ("one", "two", "eye"):
            hub.add_commit(f"org/{name}", {f"{name}.gguf": gguf_file(name.encode())}, licence="mit")

    def rig(self, variant: str, name: str = "rig") -> None:
        (self.folder / f"{name}.py").write_text(RIG.format(url=self.hub.url, variant=variant))

    def lock(self, *options: str, name: str = "rig") -> Result:
        return CliRunner().invoke(main, ["lock", str(self.folder / f"{name}.py"), *options])

    def run_lock(self, *options: str, name: str = "rig") -> list[str]:
        done = self.lock(*options, name=name)
        assert done.exit_code == 0, done.output
        return [line.split("@")[0] for line in done.stdout.splitlines()]

    @property
    def path(self) -> Path:
        return self.folder / "locks" / "more.lock.toml"

    @property
    def groups(self) -> set[str]:
        return set(Lock.load([self.folder / "locks"]).groups)


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ShippedCatalogue]:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple/")
    with StandInHub() as hub:
        made = ShippedCatalogue(tmp_path / "ours", tmp_path / "box", hub)
        for module in (inventory, lock_run):
            monkeypatch.setattr(module, "ROOT", made.root)
        yield made


def test_the_model_that_a_rig_uses_is_locked_beside_its_inventory(shipped: ShippedCatalogue) -> None:
    assert (shipped.run_lock(), shipped.groups) == (["+ model one-gguf org/one"], {"one-gguf"})
    assert shipped.path.read_text().startswith(f"{LOCK_HEADER} from Rigwright's own catalog/more.toml;")
    assert not list((shipped.root / "locks").glob("more*"))
    assert shipped.run_lock() == ["no change"]


def test_a_rig_is_whole_with_what_was_locked(shipped: ShippedCatalogue) -> None:
    shipped.run_lock()
    ((_, data),) = runpy.run_path(str(shipped.folder / "rig.py"))["rigs"]
    assert [row.file for row in loaded_weights(load_rig(data["rig"]).instances)] == ["one.gguf"]


def test_every_part_of_a_model_is_locked(shipped: ShippedCatalogue) -> None:
    shipped.rig("two")
    assert shipped.run_lock() == ["+ model eye-gguf org/eye", "+ model two-gguf org/two"]


def test_inputs_of_a_rig_of_another_inventory_stay(shipped: ShippedCatalogue) -> None:
    shipped.run_lock()
    shipped.rig("two", "other")
    shipped.run_lock(name="other")
    assert shipped.groups == {"one-gguf", "two-gguf", "eye-gguf"}
    assert shipped.run_lock() == ["no change"]


def test_beside_a_catalogue_of_the_same_name_both_are_in_one_lock(shipped: ShippedCatalogue) -> None:
    (shipped.folder / "catalog").mkdir()
    (shipped.folder / "catalog" / "more.toml").write_text('[inputs.own]\nkind = "weight"\nrepository = "org/two"\n')
    assert shipped.run_lock() == ["+ model one-gguf org/one", "+ model own org/two"]
    assert shipped.groups == {"own", "one-gguf"}


def test_the_own_catalogue_goes_before_ours(shipped: ShippedCatalogue) -> None:
    (shipped.folder / "catalog").mkdir()
    text = '[inputs.one-gguf]\nkind = "weight"\nrepository = "org/two"\n'
    (shipped.folder / "catalog" / "mine.toml").write_text(text)
    assert shipped.run_lock() == ["+ model one-gguf org/two"]
    assert not shipped.path.exists()


def test_rows_locked_by_hand_are_left_alone(shipped: ShippedCatalogue) -> None:
    (shipped.folder / "locks").mkdir()
    by_hand = shipped.folder / "locks" / "hand.lock.toml"
    by_hand.write_text(render_sealed_lock(BY_HAND.format(hash="a" * 64)))
    done = shipped.lock()
    assert (done.exit_code, shipped.path.exists()) == (2, False)
    assert "nothing to lock" in done.stderr or "the inputs to lock" in done.stderr


def test_inputs_of_our_own_lock_are_not_locked_again(shipped: ShippedCatalogue) -> None:
    shipped.run_lock()
    shutil.move(shipped.path, shipped.root / "locks" / "more.lock.toml")
    shipped.rig("two")
    shipped.run_lock()
    assert shipped.groups == {"two-gguf", "eye-gguf"}
    shipped.rig("one")
    assert shipped.run_lock() == ["no change"]


def test_check_looks_at_them_too(shipped: ShippedCatalogue) -> None:
    shipped.run_lock()
    shipped.hub.add_commit("org/one", {"one.gguf": gguf_file(b"another")}, licence="mit")
    done = shipped.lock("--check")
    assert done.exit_code == 1
    assert "  ~ one.gguf  131 bytes -> 135 bytes" in done.stdout.splitlines()


OWN = """
[models.three]
file = "three-gguf"

[variants."llamacpp/three"]
engine = "llama.cpp"
model = "three"
context = 4096

[inputs.three-gguf]
kind = "weight"
version = "1"
include = ["*.gguf"]
sources = ["hub:three-gguf"]
"""


def test_one_without_a_repository_is_locked_from_the_operators_folder(shipped, tmp_path):
    (shipped.root / "catalog" / "own.toml").write_text(OWN)
    shipped.rig("three")
    (tmp_path / "disk" / "three-gguf").mkdir(parents=True)
    (tmp_path / "disk" / "three-gguf" / "three.gguf").write_bytes(gguf_file(b"three"))
    (line,) = shipped.run_lock("--from-dir", str(tmp_path / "disk"))
    assert line.startswith("+ model three-gguf 1")
    assert shipped.groups == {"three-gguf"}
    ((_, data),) = runpy.run_path(str(shipped.folder / "rig.py"))["rigs"]
    assert [row.file for row in loaded_weights(load_rig(data["rig"]).instances)] == ["three.gguf"]


def test_without_an_inventory_they_are_left_out_and_named(shipped: ShippedCatalogue) -> None:
    for path in (shipped.root / "catalog").glob("*.toml"):
        if path.name != "more.toml":
            path.unlink()
    for path in (shipped.root / "locks").glob("*"):
        path.unlink()
    done = CliRunner().invoke(main, ["lock"])
    said = "skipped: eye-gguf, one-gguf, two-gguf: `rigwright lock INVENTORY` locks the models that its rigs use"
    assert done.stdout.splitlines() == [said]
    assert "no inputs, nothing to lock" in done.stderr
    assert not shipped.hub.asked


def test_an_inventory_whose_model_is_not_locked_yet_says_so(shipped: ShippedCatalogue) -> None:
    with load_for("bundle"), pytest.raises(SystemExit) as ended:
        runpy.run_path(str(shipped.folder / "rig.py"))
    assert f"one-gguf is not locked: run `rigwright lock {shipped.folder}/rig.py`" in str(ended.value.code)


CONDA = """
[inputs.py]
kind = "conda"
requirements = ["python ==3.10.20"]
channels = ["forge"]
"""


@pytest.fixture
def uses(shipped: ShippedCatalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Names of inputs that the environments of every rig use; one of our own catalogue's must come from a channel."""
    (shipped.root / "catalog" / "conda.toml").write_text(CONDA)
    names: set[str] = set()
    inner = lock_run.load_rigs

    def rigs_of(path: Path | None, what: LoadPurpose) -> list[SimpleNamespace]:
        mirrors = {"hub": (shipped.hub.url,), "forge": (f"{files.url}/forge",)}
        known = {
            "envs": (
                SimpleNamespace(
                    inputs=tuple(names), plugins=(), name="", patches=(), keys=SimpleNamespace(packages="")
                ),
            ),
        }
        return [
            SimpleNamespace(
                instances=rig.instances, network=DownloadNetwork(mirrors), toolkit=ToolkitSpec(), signers=None, **known
            )
            for rig in inner(path, what)
        ]

    monkeypatch.setattr(lock_run, "load_rigs", rigs_of)
    with run_file_server() as files:
        channel = LoopbackCondaChannel(tmp_path / "channel", files)
        channel.publish_package("python", "3.10.20")
        channel.publish()
        yield names


def test_conda_packages_that_an_environment_uses_are_locked_beside_the_inventory(shipped, uses):
    assert shipped.run_lock() == ["+ model one-gguf org/one"]
    uses.add("py")
    assert [line.partition("  ")[0] for line in shipped.run_lock()] == ["+ conda py/python 3.10.20 0"]
    assert shipped.groups == {"one-gguf", "py"}
    assert (
        (shipped.folder / "locks/conda.lock.toml")
        .read_text()
        .startswith(f"{LOCK_HEADER} from Rigwright's own catalog/conda")
    )


def test_without_an_inventory_conda_packages_are_left_out_in_one_line(shipped, uses):
    for path in (shipped.root / "catalog").glob("*.toml"):
        if path.name not in ("more.toml", "conda.toml"):
            path.unlink()
    for path in (shipped.root / "locks").glob("*"):
        path.unlink()
    (line,) = CliRunner().invoke(main, ["lock"]).stdout.splitlines()
    assert line.startswith(
        "skipped: py, eye-gguf, one-gguf, two-gguf: `rigwright lock INVENTORY` locks the models and conda"
    )
