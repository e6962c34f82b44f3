"""Models and conda packages of Rigwright's own catalogue are locked beside the inventory whose rigs use them."""

from __future__ import annotations

import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from cli import main
from cli.resolving import verb
from lab.hub import Hub
from rigwright import inventory
from rigwright.declaration.instances import Making
from rigwright.inventory import load, making
from rigwright.paths import ROOT
from rigwright.supply.lock import WRITTEN, Lock
from tests.locks import lock_text
from tests.unit.conda_channel import Channel
from tests.unit.file_server import file_server
from tests.unit.ggufs import gguf

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


class Shipped:
    """Rigwright's own catalogue and locks with more models, and an operator's folder without a catalogue."""

    def __init__(self, root: Path, folder: Path, hub: Hub) -> None:
        self.root, self.folder, self.hub = root, folder, hub
        for noun in ("catalog", "locks"):
            shutil.copytree(ROOT / noun, root / noun)
        (root / "catalog" / "more.toml").write_text(MODELS)
        folder.mkdir()
        self.rig("one")
        for name in ("one", "two", "eye"):
            hub.repository(f"org/{name}", {f"{name}.gguf": gguf(name.encode())}, licence="mit")

    def rig(self, variant: str, name: str = "rig") -> None:
        (self.folder / f"{name}.py").write_text(RIG.format(url=self.hub.url, variant=variant))

    def lock(self, *options: str, name: str = "rig") -> Result:
        return CliRunner().invoke(main, ["lock", str(self.folder / f"{name}.py"), *options])

    def locked(self, *options: str, name: str = "rig") -> list[str]:
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
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shipped]:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple/")
    with Hub() as hub:
        made = Shipped(tmp_path / "ours", tmp_path / "box", hub)
        for module in (inventory, verb):
            monkeypatch.setattr(module, "ROOT", made.root)
        yield made


def test_the_model_that_a_rig_uses_is_locked_beside_its_inventory(shipped: Shipped) -> None:
    assert shipped.locked() == ["+ model one-gguf org/one"]
    assert shipped.groups == {"one-gguf"}
    assert shipped.path.read_text().startswith(f"{WRITTEN} from Rigwright's own catalog/more.toml;")
    assert not list((shipped.root / "locks").glob("more*"))
    assert shipped.locked() == ["no change"]


def test_a_rig_is_whole_with_what_was_locked(shipped: Shipped) -> None:
    shipped.locked()
    ((_, data),) = runpy.run_path(str(shipped.folder / "rig.py"))["rigs"]
    assert [row.file for row in load(data["rig"]).weights] == ["one.gguf"]


def test_every_part_of_a_model_is_locked(shipped: Shipped) -> None:
    shipped.rig("two")
    assert shipped.locked() == ["+ model eye-gguf org/eye", "+ model two-gguf org/two"]


def test_what_a_rig_of_another_inventory_uses_stays(shipped: Shipped) -> None:
    shipped.locked()
    shipped.rig("two", "other")
    shipped.locked(name="other")
    assert shipped.groups == {"one-gguf", "two-gguf", "eye-gguf"}
    assert shipped.locked() == ["no change"]


def test_beside_a_catalogue_of_the_same_name_both_are_in_one_lock(shipped: Shipped) -> None:
    (shipped.folder / "catalog").mkdir()
    (shipped.folder / "catalog" / "more.toml").write_text('[inputs.own]\nkind = "weight"\nrepository = "org/two"\n')
    assert shipped.locked() == ["+ model one-gguf org/one", "+ model own org/two"]
    assert shipped.groups == {"own", "one-gguf"}


def test_the_own_catalogue_goes_before_ours(shipped: Shipped) -> None:
    (shipped.folder / "catalog").mkdir()
    text = '[inputs.one-gguf]\nkind = "weight"\nrepository = "org/two"\n'
    (shipped.folder / "catalog" / "mine.toml").write_text(text)
    assert shipped.locked() == ["+ model one-gguf org/two"]
    assert not shipped.path.exists()


def test_what_is_locked_by_hand_is_left_alone(shipped: Shipped) -> None:
    (shipped.folder / "locks").mkdir()
    by_hand = shipped.folder / "locks" / "hand.lock.toml"
    by_hand.write_text(lock_text(BY_HAND.format(hash="a" * 64)))
    done = shipped.lock()
    assert (done.exit_code, shipped.path.exists()) == (2, False)
    assert "nothing to lock" in done.stderr or "the inputs to lock" in done.stderr


def test_what_our_own_lock_answers_is_not_locked_again(shipped: Shipped) -> None:
    shipped.locked()
    shutil.move(shipped.path, shipped.root / "locks" / "more.lock.toml")
    shipped.rig("two")
    shipped.locked()
    assert shipped.groups == {"two-gguf", "eye-gguf"}
    shipped.rig("one")
    assert shipped.locked() == ["no change"]


def test_check_looks_at_them_too(shipped: Shipped) -> None:
    shipped.locked()
    shipped.hub.repository("org/one", {"one.gguf": gguf(b"another")}, licence="mit")
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


def test_one_without_a_repository_is_locked_from_the_operators_folder(shipped: Shipped, tmp_path: Path) -> None:
    (shipped.root / "catalog" / "own.toml").write_text(OWN)
    shipped.rig("three")
    (tmp_path / "disk" / "three-gguf").mkdir(parents=True)
    (tmp_path / "disk" / "three-gguf" / "three.gguf").write_bytes(gguf(b"three"))
    (line,) = shipped.locked("--from-dir", str(tmp_path / "disk"))
    assert line.startswith("+ model three-gguf 1")
    assert shipped.groups == {"three-gguf"}
    ((_, data),) = runpy.run_path(str(shipped.folder / "rig.py"))["rigs"]
    assert [row.file for row in load(data["rig"]).weights] == ["three.gguf"]


def test_without_an_inventory_they_are_left_out_and_named(shipped: Shipped) -> None:
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


def test_an_inventory_whose_model_is_not_locked_yet_says_so(shipped: Shipped) -> None:
    with making("bundle"), pytest.raises(SystemExit) as ended:
        runpy.run_path(str(shipped.folder / "rig.py"))
    assert f"one-gguf is not locked: run `rigwright lock {shipped.folder}/rig.py`" in str(ended.value.code)


CONDA = """
[inputs.py]
kind = "conda"
requirements = ["python ==3.10.20"]
channels = ["forge"]
"""


@pytest.fixture
def uses(shipped: Shipped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Names of inputs that the environments of every rig use; one of our own catalogue's is had from a channel."""
    (shipped.root / "catalog" / "conda.toml").write_text(CONDA)
    names: set[str] = set()
    inner = verb.rigs_of

    def rigs_of(path: Path | None, what: Making) -> list[SimpleNamespace]:
        mirrors = {"hub": (shipped.hub.url,), "forge": (f"{files.url}/forge",)}
        known = {
            "mirrors": mirrors,
            "redirects": (),
            "hub_token_file": None,
            "hub_token_origin": None,
            "env_inputs": tuple(names),
            "envs": (),
            "toolkit_patches": (),
        }
        return [SimpleNamespace(instances=rig.instances, **known) for rig in inner(path, what)]

    monkeypatch.setattr(verb, "rigs_of", rigs_of)
    with file_server() as files:
        channel = Channel(tmp_path / "channel", files)
        channel.package("python", "3.10.20")
        channel.publish()
        yield names


def test_conda_packages_that_an_environment_uses_are_locked_beside_the_inventory(
    shipped: Shipped, uses: set[str]
) -> None:
    assert shipped.locked() == ["+ model one-gguf org/one"]
    uses.add("py")
    assert [line.partition("  ")[0] for line in shipped.locked()] == ["+ conda py/python 3.10.20 0"]
    assert shipped.groups == {"one-gguf", "py"}
    assert (
        (shipped.folder / "locks/conda.lock.toml")
        .read_text()
        .startswith(f"{WRITTEN} from Rigwright's own catalog/conda")
    )


def test_without_an_inventory_conda_packages_are_left_out_in_one_line(shipped: Shipped, uses: set[str]) -> None:
    for path in (shipped.root / "catalog").glob("*.toml"):
        if path.name not in ("more.toml", "conda.toml"):
            path.unlink()
    for path in (shipped.root / "locks").glob("*"):
        path.unlink()
    (line,) = CliRunner().invoke(main, ["lock"]).stdout.splitlines()
    assert line.startswith(
        "skipped: py, eye-gguf, one-gguf, two-gguf: `rigwright lock INVENTORY` locks the models and conda"
    )
