"""`rigwright fit`: answers for instances, another variant and a model without a lock."""

import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from huggingface_hub import close_session, constants

from benchmarks.memory_fit.checkpoints import write_checkpoint
from benchmarks.memory_fit.random_models import RandomModel, write_gguf
from cli import main
from cli.fit_model import read_header
from cli.inventory_loading import load_hosts
from cli.lock_resolver import downloads
from lab.tiny_model import write_model
from rigwright.engines.computed_memory import compute_memory
from rigwright.engines.known_issues import place_instance
from rigwright.engines.llama_cpp.known_issues import estimate_memory
from rigwright.engines.memory_assessment import DRIVER_RESERVE
from rigwright.engines.vllm.known_issues import SHARE
from rigwright.inventory import load_rig
from rigwright.project_root import ROOT
from rigwright.supply.lock import load_lock_file
from roles.weights.host import reach
from tests.stand_ins.hub import StandInHub
from tests.unit import tls_certificates

INVENTORY = """
from rigwright.inventory import hosts

rigs = hosts({"box": {"ssh_hostname": "127.0.0.1", "mirrors": {"shelf": ["http://127.0.0.1:1/"]},
    "instances": {"chat": {"variant": "llamacpp/demo-wheel", "port": 8020}}}})
"""
GIB = 1 << 30


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    path = tmp_path / "rig.py"
    path.write_text(INVENTORY)
    return path


def run_fit(*words: object) -> Result:
    return CliRunner().invoke(main, ["fit", *map(str, words)])


def read_answer(*words: object) -> dict[str, Any]:
    (found,) = json.loads(run_fit(*words, "--json").stdout)["instances"]
    return dict(found)


def write_records(inventory: Path, peak: int, available: int = 0) -> None:
    """An accepted record of the inventory's instance."""
    rig = load_rig(load_hosts(str(inventory), None)["box"]["rig"])
    one = place_instance(rig.instances[0], (), ())
    need = estimate_memory(one)
    assert need is not None
    record = {
        **{"schema": 1, "fingerprint": "a" * 64, "seconds": 1.0, "cards": {}, "driver": "", "lines": []},
        **{"host": {"peak": peak, "settled": peak}, "moment": "2026-06-10T12:00:00Z", "invocation": "1" * 32},
        **{"machine": {"MemTotal": available, "MemAvailable": available}},
        "computed": asdict(compute_memory(one, need)),
    }
    (inventory.parent / "memory").mkdir()
    (inventory.parent / "memory/box.json").write_text(json.dumps({"schema": 1, "instances": {"chat": [record]}}))


def test_without_records_the_header_answers(inventory: Path) -> None:
    found = read_answer(inventory)
    assert (found["basis"], found["verdict"], found["place"]) == ("floor", "room unknown", "RAM")
    assert run_fit(inventory).exit_code == 0


def test_the_demos_lock_has_the_header_of_its_model(tmp_path: Path) -> None:
    file = tmp_path / "tiny-rig.gguf"
    write_model(file)
    (row,) = load_lock_file(ROOT / "locks/demo.lock.toml")
    assert read_header(str(file)) == (row.header, row.size)


def test_a_record_answers_for_its_variant_and_its_neighbours(inventory: Path) -> None:
    write_records(inventory, 200 << 20, 8 * GIB)
    same = read_answer(inventory)
    assert (same["basis"], same["need"], same["verdict"]) == ("same variant", 200 << 20, "fits")
    assert same["largest_context"] > same["context"]
    other = read_answer(inventory, "--context", 65536)
    assert other["basis"] == "neighbour"
    assert other["need"] - same["need"] == other["kv_cache"] - same["kv_cache"]
    assert other["parallel"] == same["parallel"]


def test_too_little_memory_is_stated_by_validate_too(inventory: Path) -> None:
    write_records(inventory, 2 * GIB, GIB)
    done = run_fit(inventory)
    assert done.exit_code == 1
    assert "does not fit" in done.stdout
    said = CliRunner().invoke(main, ["validate", str(inventory)]).output
    assert "chat: takes 2.0 GiB (at most 2.1) of 0.9 GiB by same variant, 2026-06-10: does not fit" in " ".join(
        said.split()
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["llamacpp/dmo-wheel"], "VARIANT 'llamacpp/dmo-wheel' in the place of chat: box: "),
        (["--cards", "0"], "--cards in the place of chat: box: "),
    ],
)
def test_a_refusal_names_the_word_of_the_command_line(inventory: Path, words: list[str], text: str) -> None:
    done = run_fit(inventory, *words)
    assert done.exit_code == 2
    assert f"Error: {text}" in done.output


def test_a_damaged_file_of_records_is_refused(inventory: Path) -> None:
    (inventory.parent / "memory").mkdir()
    (inventory.parent / "memory/box.json").write_text('{"instances": 7}')
    done = run_fit(inventory)
    assert done.exit_code == 2
    assert "memory/box.json: instances: " in done.output


def test_a_model_without_a_lock(tmp_path: Path) -> None:
    file = tmp_path / "small.gguf"
    write_gguf(file, RandomModel("small", 4, 256, 4, 2, 512, 1000))
    found = read_answer(file, "--cards", "rtx-3090", "--context", 4096)
    assert (found["basis"], found["verdict"], found["kv_cache"]) == ("floor", "fits", 4096 * 4 * 2 * 64 * 2 * 2)
    twice = read_answer(file, "--cards", "rtx-3090,rtx-3090")
    assert len(twice["need_per_card"]) == 2
    assert read_answer(file)["place"] == "RAM"


def test_a_model_is_typed_where_a_variant_is(inventory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "small.gguf"
    write_gguf(file, RandomModel("small", 4, 256, 4, 2, 512, 1000))
    expected = read_answer(file)
    write_records(inventory, GIB)
    monkeypatch.chdir(tmp_path)
    for words in ((inventory, file), ("rig.py", "small.gguf"), ("small.gguf",), ("./small.gguf", "--context", "8192")):
        found = read_answer(*words)
        assert (found["variant"], found["kv_cache"]) == ("small.gguf", expected["kv_cache"])


def test_a_folder_is_a_model_for_vllm(tmp_path: Path) -> None:
    model = RandomModel("small", 4, 256, 4, 2, 512, 1000)
    write_checkpoint(tmp_path / "small", model)
    found = read_answer(tmp_path / "small", "--cards", "rtx-3090", "--context", 4096, "--parallel", 2)
    assert found["weights"] == (tmp_path / "small/model.safetensors").stat().st_size
    assert (found["basis"], found["verdict"], found["kv_cache"]) == ("floor", "fits", 4096 * 4 * 2 * 64 * 2 * 2)
    assert found["room"] == [int((24 * GIB - DRIVER_RESERVE) * SHARE)]
    assert (found["reserves"], found["reserves_seen"]) == ([DRIVER_RESERVE], None)
    assert (
        "640 MiB of each card are assumed to be the driver's"
        in run_fit(tmp_path / "small", "--cards", "rtx-3090").stdout
    )


def test_a_part_of_a_split_model_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "small-00001-of-00003.gguf"
    write_gguf(file, RandomModel("small", 4, 256, 4, 2, 512, 1000))
    for name in (file, "owner/name/q4/small-00002-of-00003.gguf"):
        done = run_fit(name)
        assert done.exit_code == 2
        assert "is one of 3 parts of a model: add the model to an inventory, or merge" in " ".join(done.output.split())


def test_cards_without_a_lock_have_parts_as_they_have_memory(tmp_path: Path) -> None:
    file = tmp_path / "small.gguf"
    write_gguf(file, RandomModel("small", 4, 256, 4, 2, 512, 1000))
    large, small = read_answer(file, "--cards", "rtx-5090,rtx-3090")["need_per_card"]
    assert large > small


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nothing.gguf",), "'nothing.gguf' is no file here, and no OWNER/NAME/FILE.gguf of the hub"),
        (("FILE", "--cards", "rtx-309"), 'there is no card "rtx-309"; did you mean "rtx-3090"?'),
        (("FILE", "--accept"), "MODEL conflicts with VARIANT, --accept, --limit and --instance"),
        (("FILE", "llamacpp/65k"), "MODEL conflicts with VARIANT, --accept, --limit and --instance"),
        (("FOLDER",), "is a folder, for vLLM: name its cards with --cards"),
        (("FOLDER", "--cards", "rtx-3090"), "no weights are locked"),
        (("nothing",), "nothing"),
        (("RIG", "--instance", "chit"), 'there is no instance "chit"; did you mean "chat"?'),
        (("RIG", "--cards", "a"), "'a' is no list of GPU indexes"),
        (("RIG", "llamacpp/demo-whel"), "llamacpp/demo-wheel"),
        (("RIG", "--context", "-1"), "-1"),
    ],
)
def test_bad_input_is_refused_with_one_message(
    inventory: Path, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    file = tmp_path / "small.gguf"
    write_gguf(file, RandomModel("small", 4, 256, 4, 2, 512, 1000))
    (tmp_path / "config.json").write_text("{}")
    typed = {"FILE": str(file), "RIG": str(inventory), "FOLDER": str(tmp_path)}
    done = run_fit(*(typed.get(word, word) for word in words))
    assert done.exit_code == 2
    assert said in done.output


def _name_a_folder_as_a_file(file: Path) -> None:
    file.mkdir()
    (file / "model.safetensors").write_bytes(b"x")


def _write_odd_names(file: Path) -> None:
    write_checkpoint(file, RandomModel("small", 4, 256, 4, 2, 512, 1000))
    for name in ("model (1).safetensors", "m\x1b[31m.safetensors"):
        (file / name).write_bytes(b"x")


def _write_control_characters(file: Path) -> None:
    write_checkpoint(file, RandomModel("small", 4, 256, 4, 2, 512, 1000))
    (file / "config.json").write_bytes(b"\xff")


@pytest.mark.parametrize(
    ("make", "name", "message"),
    [
        (_name_a_folder_as_a_file, "x.gguf", "config.json is missing or empty: vLLM needs it"),
        (
            _write_odd_names,
            "x.gguf",
            "rename 'm\\x1b[31m.safetensors', 'model (1).safetensors': letters, digits and ._+~-",
        ),
        (_write_control_characters, "x.gguf", "can't decode byte 0xff"),
        (os.mkfifo, "x.gguf", "is no regular file"),
        (lambda file: file.symlink_to("/dev/zero"), "x.gguf", "is no regular file"),
        (lambda file: None, f"{'x' * 300}.gguf", "File name too long"),
    ],
)
def test_what_is_no_model_is_refused_with_one_error(
    tmp_path: Path, make: Callable[[Path], None], name: str, message: str
) -> None:
    make(tmp_path / name)
    done = run_fit(tmp_path / name, "--cards", "rtx-3090")
    assert (done.exit_code, type(done.exception)) == (2, SystemExit)
    assert message in " ".join(done.output.split())
    assert done.output.count("Error: ") == 1


def test_of_a_model_on_the_hub_only_the_header_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "small.gguf"
    write_gguf(file, RandomModel("small", 4, 1024, 4, 2, 4096, 1000))
    monkeypatch.setattr(downloads, "PAUSES", (0.0,))
    for name, value in tls_certificates.trusting_environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(reach, "is_public_address", lambda address: True)
    close_session()
    with StandInHub(certificate=tls_certificates.server_certificate()) as hub:
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, hub.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        hub.add_commit("org/name", {"q4/small.gguf": file.read_bytes()})
        found = read_answer("org/name/q4/small.gguf", "--cards", "rtx-3090")
        assert hub.sent_bytes < file.stat().st_size / 4
        done = run_fit("org/name/q4/smal.gguf")
    close_session()
    here = read_answer(file, "--cards", "rtx-3090")
    assert {**found, "variant": ""} == {**here, "variant": ""}
    assert (done.exit_code, 'did you mean "q4/small.gguf"?' in done.output) == (2, True)
