"""`rigwright new`: a model is added by data alone, from nothing to what a deploy would write."""

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli import main
from cli.lock_resolver.lock_files import collect_inputs
from rigwright.declaration.catalog_loader import load_catalog
from rigwright.engines.llama_cpp.command import server_command
from rigwright.inventory import hosts, layer_folders, load_rig
from rigwright.model.catalog_schema import Catalog
from rigwright.model.rig import Rig
from rigwright.project_root import ROOT
from rigwright.supply.lock import render_lock
from tests.unit.checkpoints import CHECKPOINT_PATHS, QWEN3, checkpoint_row, checkpoint_rows
from tests.unit.shipped_inventories import COMMIT, locked_rows

EMPTY = "from rigwright.inventory import hosts\n\nrigs = hosts({'box': {'ssh_hostname': '192.0.2.7'}})\n"


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    path = tmp_path / "rig.py"
    path.write_text(EMPTY)
    return path


def new(inventory: Path, what: str, name: str, *options: str) -> Result:
    return CliRunner().invoke(main, ["new", what, str(inventory), name, *options])


def run_new(inventory: Path, what: str, name: str, *options: str) -> str:
    done = new(inventory, what, name, *options)
    assert done.exit_code == 0, done.output
    return done.stdout


def catalog(inventory: Path) -> Catalog:
    """Ours, and the one beside an inventory over it."""
    return load_catalog(layer_folders(inventory, "catalog"))


def lock(folder: Path, **models: list[str]) -> None:
    """Write what `rigwright lock` would for inputs of this folder's catalogue."""
    inputs = catalog(folder / "rig.py").inputs
    found = list(locked_rows())
    for name, paths in models.items():
        asked, files = (
            inputs[name],
            checkpoint_rows(CHECKPOINT_PATHS, QWEN3) if not paths else [checkpoint_row(path) for path in paths],
        )
        own = {"name": name, "group": name, "repository": asked.repository, "selection": asked.selection}
        own["version"] = COMMIT if asked.repository else asked.version
        found += [one.model_copy(update=own | {"sources": asked.sources_of(one.path)}) for one in files]
    (folder / "locks").mkdir(exist_ok=True)
    (folder / "locks" / "mine.lock.toml").write_text(render_lock(found, "mine.toml"))


def write_declaration(inventory: Path, variant: str, cards: int) -> Rig:
    entry = {
        "ssh_hostname": "192.0.2.7",
        "cards": ["rtx-3090"] * cards,
        "mirrors": {"own": ["http://192.0.2.9/models"]},
        "instances": {"chat": {"variant": variant, "cards": list(range(cards)), "port": 8020}},
    }
    scope: dict[str, object] = {"hosts": hosts, "entry": entry}
    exec(compile("rigs = hosts({'box': entry})", str(inventory), "exec"), scope)
    ((_, data),) = scope["rigs"]  # type: ignore[misc] # what hosts() returns
    return load_rig(data["rig"])


def test_a_model_of_the_hubs_is_added_without_code(inventory: Path) -> None:
    assert f"rigwright lock {inventory}" in run_new(
        inventory, "model", "my-gguf", "--repository", "org/My-GGUF", "--include", "*Q4_K_M*.gguf"
    )
    said = run_new(inventory, "variant", "llamacpp/mine", "--like", "llamacpp/default", "--model", "my-gguf")
    assert '"variant": "llamacpp/mine", "cards": [0]' in said
    lock(inventory.parent, **{"my-gguf": ["my-Q4_K_M.gguf"]})
    one = write_declaration(inventory, "llamacpp/mine", 1)
    words = " ".join(server_command(one.roots, one.gateway, one.monitoring, one.instances[0], "/engine"))
    assert f"--model /srv/models/org/My-GGUF/{COMMIT}/my-Q4_K_M.gguf --alias my-gguf" in words
    assert "--ctx-size 262144" in words
    evidence = one.instances[0].variant.evidence
    assert evidence
    assert evidence.description == "derived from llamacpp/default (the model my-gguf); never booted"


def test_a_checkpoint_of_ones_own_is_added_without_code(inventory: Path) -> None:
    said = run_new(inventory, "model", "mine")
    mirror, locking = (
        said.index('  "mirrors": {"own": ["http://..."]},\n'),
        said.index("--from-dir FOLDER   # FOLDER contains"),
    )
    assert said.index(f"Add to the box's entry in {inventory}") < mirror < locking
    run_new(inventory, "variant", "vllm/mine", "--like", "vllm/qwen3-8b-per-card", "--model", "mine", "--cards", "2")
    lock(inventory.parent, mine=[])
    (instance,) = write_declaration(inventory, "vllm/mine", 2).instances
    assert instance.model_name == "mine"
    assert instance.weights[0].sources[0].startswith("own:mine/")


def test_a_model_that_the_engine_cannot_load_is_refused_with_the_command_that_adds_another(inventory: Path) -> None:
    run_new(inventory, "model", "my-gguf", "--repository", "org/Mine")
    done = new(inventory, "variant", "llamacpp/mine", "--like", "llamacpp/default", "--model", "my-gguf")
    assert done.exit_code == 2
    assert "llama.cpp loads GGUF files: select one of my-gguf with file instead of the folder" in done.output
    cure = f"new model {inventory} my-gguf-file --repository org/Mine --include '*Q4_K_M*.gguf'"
    assert f"`rigwright {cure}`" in done.output
    assert not (inventory.parent / "catalog/llamacpp-mine.toml").exists()
    _, verb, file, *rest = shlex.split(cure)
    run_new(Path(file), verb, rest[0], *rest[1:])
    run_new(inventory, "variant", "llamacpp/mine", "--like", "llamacpp/default", "--model", "my-gguf-file")


def test_every_shipped_variant_can_be_copied_as_it_is(inventory: Path) -> None:
    """The written table is the other one's declaration, of every kind of engine."""
    ours = load_catalog([ROOT / "catalog"]).variants
    for number, (name, one) in enumerate(sorted(ours.items())):
        run_new(inventory, "variant", f"own/v{number}", "--like", name)
        copy = catalog(inventory).variants[f"own/v{number}"]
        told = {"evidence", "purpose"}
        assert copy.model_dump(exclude=told) == one.model_dump(exclude=told)


def test_a_given_purpose_is_written(inventory: Path) -> None:
    run_new(inventory, "variant", "vllm/mine", "--like", "vllm/dual", "--why", 'It is "mine".')
    purpose = catalog(inventory).variants["vllm/mine"].purpose
    assert purpose
    assert (purpose.why, purpose.needs) == ('It is "mine".', ("throughput", "context"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("model", "a b"), "'a b' is refused: must be letters, digits, dots and dashes"),
        (("model", "Qwen3-8B"), "models.Qwen3-8B already exists"),
        (
            ("model", "mine", "--repository", "org/Mine-GGUF"),
            "--repository org/Mine-GGUF: has a GGUF file for each quantisation: choose one, such as --include",
        ),
        (("model", "mine", "--repository", "nope"), "inputs.mine.repository: 'nope' is refused: must be owner/name"),
        (("variant", "mine", "--like", "vllm/dual"), "'mine' is refused: must be engine/name"),
        (("variant", "vllm/dual", "--like", "vllm/dual"), "variants.vllm/dual already exists"),
        (("variant", "sglang/default", "--like", "vllm/dual"), "blocked.sglang/default already exists"),
        (("variant", "vllm/mine", "--like", "vllm/daul"), 'there is no variant "vllm/daul"; did you mean "vllm/dual"?'),
        (("variant", "vllm/mine", "--like", "vllm/dual", "--model", "x"), 'there is no model "x"'),
        (
            ("variant", "vllm/mine", "--like", "vllm/dual", "--why", "a\nb"),
            "--why 'a\\nb' is refused: must be 1 to 200",
        ),
        (
            ("variant", "vllm/mine", "--like", "vllm/qwen3-30b-a3b-awq-tp2", "--cards", "3"),
            "tensor, pipeline and data parallel sizes with the product 3",
        ),
    ],
)
def test_an_impossible_value_is_refused_and_leaves_nothing(inventory: Path, words: tuple[str, ...], said: str) -> None:
    what, name, *options = words
    done = new(inventory, what, name, *options)
    assert done.exit_code == 2
    assert said in done.output
    assert not list(inventory.parent.glob("catalog/*"))


def test_a_file_that_is_there_stays(inventory: Path) -> None:
    there = inventory.parent / "catalog" / "mine.toml"
    there.parent.mkdir()
    there.write_text("# mine\n")
    done = new(inventory, "model", "mine")
    assert f"cannot write {there}: File exists" in done.output
    assert there.read_text() == "# mine\n"


def test_models_derived_from_ours_can_be_locked(inventory: Path) -> None:
    run_new(inventory, "variant", "vllm/mine", "--like", "vllm/dual")
    assert collect_inputs(inventory.parent / "catalog") == []
