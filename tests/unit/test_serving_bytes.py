"""What llama.cpp's instances are started from: its bytes change on purpose, or not at all.

One more restarts every instance of every box with the next deploy. Who means that writes these files anew, and says in
the changelog that it does.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rigwright.model.rig import Instance
from rigwright.serving.units import unit
from tests.unit.samples import artefact, card, installation, instance, parts, rig

BYTES = Path(__file__).with_name("data") / "serving"
INSTANCES: dict[str, Callable[[], Instance]] = {
    "cpu": lambda: instance("chat"),
    "cards": lambda: instance(
        "chat",
        cards=(1, 0),
        context=65536,
        parallel=4,
        cache_type_k="q8_0",
        cache_type_v="q4_0",
        flash_attention="on",
        shares=(3, 5),
        flags={"metrics": True, "jinja": True},
        model_name="Qwen3.6-27B",
        port=8030,
    ),
    "parts": lambda: instance(
        "a-b-c",
        memory_lock=True,
        thinking="off",
        port=8033,
        ready_timeout=77,
        parts=parts(mmproj=artefact(name="eye"), spec_draft_model=artefact(name="draft", sha256="c" * 64)),
        flags={"temp": 0.7, "threads": 8},
    ),
}


@pytest.mark.parametrize("name", INSTANCES)
def test_a_unit_and_its_environment_are_what_they_were(name: str) -> None:
    one = INSTANCES[name]()
    made = unit(rig(one, cards=(card("7.5"), card("8.6"))), one, installation())
    assert made.text == (BYTES / f"{name}.service").read_text()
    assert made.environment == (BYTES / f"{name}.env").read_text()
