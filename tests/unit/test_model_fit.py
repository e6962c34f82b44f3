"""Messages about a model that does not fit, by `validate` and by the loader of an inventory."""

import pytest
from click.testing import CliRunner

from cli import main
from rigwright.inventory import load_rig
from rigwright.plan.preflight import find_warnings
from tests.unit.sample_texts import CATALOG, LOCK
from tests.unit.samples import OperatorFolder, sample_entry, sample_facts

GIB = 1 << 30
KEPT = "cache = { keys = 16384, values = 16384, window = 0, window_keys = 0, window_values = 0 }"
HEADER = f'header = {{ architecture = "qwen35", off_card = 0, {KEPT} }}\n'


def lock_sized_weights(box: OperatorFolder, size: int, context: int = 131072) -> None:
    """Weights of a size, with what their header says, and two cards with 35 GiB that serve them."""
    box.write("locks/box.lock.toml", LOCK.replace("size = 2097152\n", f"size = {size}\n{HEADER}"))
    box.write("catalog/box.toml", CATALOG.replace("context = 8192", f"context = {context}"))
    rig = f"from rigwright.inventory import hosts\n\nrigs = hosts({{'box': {sample_entry()!r}}})\n"
    box.write("rig.py", rig)


def test_a_context_that_does_not_fit_is_warned_of(box: OperatorFolder) -> None:
    lock_sized_weights(box, 30 * GIB)
    told = CliRunner().invoke(main, ["validate", str(box.inventory)])
    assert told.exit_code == 0, told.output
    *_, warning, last = told.output.splitlines()
    assert warning.startswith("box: chat: needs 36.1 of 35.0 GiB: context = 106496 would fit")
    assert last == "valid"
    (rig,) = (load_rig(data["rig"]) for _, data in box.load_group({"box": sample_entry()}))
    assert warning.removeprefix("box: ") in find_warnings(rig, sample_facts())


def test_one_that_fits_is_not(box: OperatorFolder) -> None:
    lock_sized_weights(box, 30 * GIB, context=65536)
    told = CliRunner().invoke(main, ["validate", str(box.inventory)])
    assert told.exit_code == 0, told.output
    assert "chat: needs" not in told.output


@pytest.mark.parametrize("verb", ["validate", "plan"])
def test_weights_that_do_not_fit_are_refused_before_a_host_is_asked(box: OperatorFolder, verb: str) -> None:
    lock_sized_weights(box, 36 * GIB)
    told = CliRunner().invoke(main, [verb, str(box.inventory)])
    assert told.exit_code == 2
    said = "box.instances.chat.variant: llamacpp/two: its weights need 36.0 of 35.0 GiB"
    assert said in told.output
