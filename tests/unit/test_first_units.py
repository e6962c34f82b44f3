"""Units and environment files, whole, as 0.1.0 wrote them: other bytes would restart every instance at an upgrade."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rigwright.declaration.entry import Roots
from rigwright.declaration.rig import Rig
from rigwright.engines.llama_cpp.build import build
from rigwright.serving.units import unit
from tests.unit.samples import artefact, card, engine, facts, instance, parts, rig

FIRST = json.loads(Path(__file__).with_name("first_units.json").read_text())
CARDS = (card("7.5"), card("8.6"))
TWO = instance(
    "chat",
    cards=(1, 0),
    context=65536,
    slots=4,
    cache_type_k="q8_0",
    cache_type_v="q4_0",
    flash_attention="on",
    flags={"tensor-split": "3,5", "metrics": True, "jinja": True},
    model_name="Qwen3.6-27B",
    port=8030,
)
CPU = instance("code", port=8021, memory_lock=True, thinking="off", flags={"threads": "8"})
EYES = parts(mmproj=artefact(name="eye", file="eye.gguf", sha256="c" * 64))
SEES = instance("see", cards=(0,), port=8022, parts=EYES, ready_timeout=900, key_name="see.0123456789ab.api-key")
MOVED = Roots(models="/data/models", software="/data/sw", config="/etc/box")
RIGS = {
    "default": rig(TWO, CPU, SEES, cards=CARDS),
    "moved": rig(TWO, CPU, cards=CARDS, roots=MOVED, service_user="llm"),
}
ROWS = [(f"{label}/{one.name}", made, one.name) for label, made in RIGS.items() for one in made.instances]


@pytest.mark.parametrize(("row", "made", "name"), ROWS, ids=[row for row, _, _ in ROWS])
def test_an_upgrade_changes_no_unit_and_restarts_nothing(row: str, made: Rig, name: str) -> None:
    one = next(one for one in made.instances if one.name == name)
    folder = build(made, "plain", engine(), facts()).folder
    written = unit(made, one, folder)
    assert {"unit": written.text, "environment": written.environment, "folder": folder} == FIRST[row]


def test_every_row_of_the_first_units_is_held_against_today() -> None:
    assert {row for row, _, _ in ROWS} == set(FIRST)
