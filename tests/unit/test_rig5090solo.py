"""The rig of one RTX 5090: what its inventory becomes once its weights are locked."""

import hashlib
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest

from rigwright.declaration.catalog import load_catalog
from rigwright.engines.llama_cpp.build import cuda_architecture, flash_attention_pairs
from rigwright.engines.llama_cpp.command import server_command
from rigwright.inventory import load_rig
from rigwright.model.rig import Rig
from rigwright.paths import ROOT
from tests.lock_files import render_sealed_lock

INVENTORY = ROOT / "inventory" / "rig5090solo.py"
COMMIT = "c" * 40
CHAT, EYE = "Qwen3.5-35B-A3B-UD-Q4_K_XL.gguf", "mmproj-F16.gguf"
SMALL = "qwen2.5-1.5b-instruct-q8_0.gguf"
FILES = {CHAT: "Qwen3.5-35B-A3B-UD-Q4_K_XL", EYE: "Qwen3.5-35B-A3B-UD-Q4_K_XL", SMALL: "Qwen2.5-1.5B-Instruct-Q8_0"}
# stands in for a row of the operator's own lock
ROW = """
[[artefact]]
kind = "weight"
name = "{name}"
version = "{commit}"
group = "{name}"
repository = "{repository}"
selection = "{selection}"
file = "{file}"
sha256 = "{hash}"
size = 1
sources = ["hub:{repository}"]
"""


def row(file: str, name: str) -> str:
    """A file of an input, as it would be locked."""
    asked = load_catalog([ROOT / "catalog"]).inputs[name]
    assert asked.selects(file)
    digest = hashlib.sha256(file.encode()).hexdigest()
    values = {"repository": asked.repository, "selection": asked.selection, "hash": digest}
    return ROW.format(name=name, file=file, commit=COMMIT, **values)


@pytest.fixture
def solo(tmp_path: Path) -> Rig:
    """The rig, with its weights locked beside a copy of its inventory."""
    (tmp_path / "locks").mkdir()
    rows = [row(file, name) for file, name in FILES.items()]
    (tmp_path / "locks" / "mine.lock.toml").write_text(render_sealed_lock(*rows))
    rigs: Any = runpy.run_path(shutil.copy(INVENTORY, tmp_path))["rigs"]
    ((_, data),) = rigs
    return load_rig(data["rig"])


def test_without_locked_weights_it_is_refused_and_names_them() -> None:
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(INVENTORY))
    lines = str(ended.value.code).splitlines()
    assert all("is not locked: run `rigwright lock" in line for line in lines)
    assert {name for name in FILES.values() if name in str(ended.value.code)} == set(FILES.values())


def test_the_chat_model_is_served_on_the_card(solo: Rig) -> None:
    assert " ".join(server_command(solo, solo.instances[0], solo.installation_path("ENGINE"))) == (
        "/opt/rigwright/engines/ENGINE/bin/llama-server"
        f" --model /srv/models/unsloth/Qwen3.5-35B-A3B-GGUF/{COMMIT}/{CHAT}"
        f" --mmproj /srv/models/unsloth/Qwen3.5-35B-A3B-GGUF/{COMMIT}/{EYE}"
        " --alias Qwen3.5-35B-A3B --host /run/rigwright/instances/chat/api.sock"
        " --ctx-size 131072 --parallel 4 --n-gpu-layers all"
        " --cache-type-k q4_0 --cache-type-v q8_0 --flash-attn on"
        " --api-key-file ${CREDENTIALS_DIRECTORY}/api-key"
        " --load-mode mmap+mlock --fit off --cors-origins localhost --no-cors-credentials"
        " --metrics --reasoning-format deepseek"
    )


def test_the_translations_are_served_on_the_cpu(solo: Rig) -> None:
    assert " ".join(server_command(solo, solo.instances[1], solo.installation_path("ENGINE"))) == (
        "/opt/rigwright/engines/ENGINE/bin/llama-server"
        f" --model /srv/models/Qwen/Qwen2.5-1.5B-Instruct-GGUF/{COMMIT}/{SMALL}"
        " --alias Qwen2.5-1.5B-Instruct --host /run/rigwright/instances/translate/api.sock"
        " --ctx-size 4096 --parallel 4 --n-gpu-layers 0"
        " --cache-type-k f16 --cache-type-v f16 --flash-attn auto"
        " --api-key-file ${CREDENTIALS_DIRECTORY}/api-key --fit off --cors-origins localhost --no-cors-credentials"
        " --metrics"
    )


def test_its_card_and_what_is_compiled_for_it(solo: Rig) -> None:
    assert [(i.name, i.cards, i.variant.context_per_sequence) for i in solo.instances] == [
        ("chat", (0,), 32768),
        ("translate", (), 1024),
    ]
    assert [cuda_architecture(card.capability) for card in solo.cards] == ["120a-real"]
    assert flash_attention_pairs(solo, "llama.cpp") == ("f16-f16", "q4_0-q4_0", "q4_0-q8_0")
    assert {artefact.file for artefact in solo.weights} == set(FILES)
