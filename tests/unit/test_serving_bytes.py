"""The files that llama.cpp's instances are started from: their bytes change on purpose, or not at all.

One more restarts every instance of every box with the next deploy. A developer with that intent writes these files
anew, and adds a line to the changelog.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from rigwright.model.instance import Instance
from rigwright.serving.instance_units import build_unit
from tests.unit.samples import (
    sample_artefact,
    sample_card,
    sample_installation,
    sample_instance,
    sample_parts,
    sample_rig,
)
from tests.unit.test_serving import two_cards

BYTES = Path(__file__).with_name("data") / "serving"
INSTANCES: dict[str, Callable[[], Instance]] = {
    "cpu": lambda: sample_instance("chat"),
    "cards": two_cards,
    "parts": lambda: sample_instance(
        "a-b-c",
        memory_lock=True,
        thinking="off",
        port=8033,
        ready_timeout=77,
        parts=sample_parts(
            mmproj=sample_artefact(name="eye"), spec_draft_model=sample_artefact(name="draft", sha256="c" * 64)
        ),
        flags={"temp": 0.7, "threads": 8},
    ),
}


@pytest.mark.parametrize("name", INSTANCES)
def test_a_unit_and_its_environment_are_what_they_were(name: str) -> None:
    one = INSTANCES[name]()
    made = build_unit(sample_rig(one, cards=(sample_card("7.5"), sample_card("8.6"))), one, sample_installation())
    assert made.text == (BYTES / f"{name}.service").read_text()
    assert made.environment == (BYTES / f"{name}.env").read_text()
