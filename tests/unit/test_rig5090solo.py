"""The rig of one RTX 5090: what its inventory becomes once its weights are locked."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest

from rigwright.command import command
from rigwright.inventory import ROOT, load
from rigwright.llama_cpp import flash_attention_pairs
from rigwright.rig import Rig
from tests.unit.samples import lock_text

INVENTORY = ROOT / "inventory" / "rig5090solo.py"
WEIGHTS = ("qwen3.5-35b-a3b-ud-q4-k-xl", "qwen3.5-35b-a3b-mmproj-f16", "qwen2.5-1.5b-instruct-q8-0")
# stands in for a row of the operator's own lock
ROW = """
[[artefact]]
kind = "weight"
name = "{name}"
version = "1"
file = "{name}.gguf"
sha256 = "{hash}"
size = 1
sources = ["http://192.0.2.1/{name}.gguf"]
"""


@pytest.fixture
def solo(tmp_path: Path) -> Rig:
    """The rig, with its weights locked beside a copy of its inventory."""
    (tmp_path / "locks").mkdir()
    rows = [ROW.format(name=name, hash=str(number) * 64) for number, name in enumerate(WEIGHTS)]
    (tmp_path / "locks" / "mine.lock.toml").write_text(lock_text(*rows))
    rigs: Any = runpy.run_path(shutil.copy(INVENTORY, tmp_path))["rigs"]
    ((_, data),) = rigs
    return load(data["rig"])


def test_without_locked_weights_it_is_refused_and_names_them() -> None:
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(INVENTORY))
    lines = str(ended.value.code).splitlines()
    assert all("no locked weight is called" in line for line in lines)
    assert {line.split('"')[1] for line in lines} == set(WEIGHTS)


def test_the_chat_model_is_served_on_the_card(solo: Rig) -> None:
    assert " ".join(command(solo, solo.instances[0], "ENGINE")) == (
        "/opt/rigwright/engines/ENGINE/bin/llama-server"
        " --model /srv/models/qwen3.5-35b-a3b-ud-q4-k-xl/1/qwen3.5-35b-a3b-ud-q4-k-xl.gguf"
        " --mmproj /srv/models/qwen3.5-35b-a3b-mmproj-f16/1/qwen3.5-35b-a3b-mmproj-f16.gguf"
        " --alias Qwen3.5-35B-A3B --host 127.0.0.1 --port 18082 --ctx-size 131072 --parallel 4 --n-gpu-layers all"
        " --cache-type-k q4_0 --cache-type-v q8_0 --flash-attn on"
        " --api-key-file ${CREDENTIALS_DIRECTORY}/api-key"
        " --load-mode mmap+mlock --reasoning-format deepseek"
    )


def test_the_translations_are_served_on_the_cpu(solo: Rig) -> None:
    assert " ".join(command(solo, solo.instances[1], "ENGINE")) == (
        "/opt/rigwright/engines/ENGINE/bin/llama-server"
        " --model /srv/models/qwen2.5-1.5b-instruct-q8-0/1/qwen2.5-1.5b-instruct-q8-0.gguf"
        " --alias Qwen2.5-1.5B-Instruct --host 127.0.0.1 --port 18083 --ctx-size 4096 --parallel 4 --n-gpu-layers 0"
        " --cache-type-k f16 --cache-type-v f16 --flash-attn auto"
        " --api-key-file ${CREDENTIALS_DIRECTORY}/api-key"
    )


def test_its_card_and_what_is_compiled_for_it(solo: Rig) -> None:
    assert [(i.name, i.cards, i.variant.context_per_slot) for i in solo.instances] == [
        ("chat", (0,), 32768),
        ("translate", (), 1024),
    ]
    assert [card.cuda_architecture for card in solo.cards] == ["120a-real"]
    assert flash_attention_pairs(solo, "llama.cpp") == ("f16-f16", "q4_0-q8_0")
    assert {artefact.name for artefact in solo.weights} == set(WEIGHTS)
