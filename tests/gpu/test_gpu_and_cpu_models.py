"""One card and its host's processor: a model on each behind one gateway, as on a box that chats on its only card and
translates beside it; another variant for either while clients ask both.

By itself: `.venv/bin/pytest -s -v tests/gpu/test_gpu_and_cpu_models.py`.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lab.tiny_model import ANSWER
from tests.gpu.gateway_instances import (
    BUSES,
    DeclareInstances,
    compute_processes,
    instance_pid,
    inventory_writer,
    model_answer,
)
from tests.gpu.gpu_machine import INVENTORY, GpuMachine
from tests.hosts.support import deploy, red_check_lines, run_deploy

# catalog/rig5090solo.toml's two, of the model that inventory/metal.py serves, and another one for each. By itself
# llama-server takes all processors: while there are two of it on them, each token of either takes seconds.
CHAT, TRANSLATE = (
    """
[variants."llamacpp/solo-chat{suffix}"]
engine = "llama.cpp"
model = "metal-rig"
cards = 1
context = {context}
parallel = {parallel}
cache_type_k = "q4_0"
cache_type_v = "q8_0"
flash_attention = "on"
memory_lock = true
flags.reasoning-format = "deepseek"
""",
    """
[variants."llamacpp/solo-translate{suffix}"]
engine = "llama.cpp"
model = "metal-rig"
cards = 0
context = {context}
parallel = {parallel}
flags.threads = "2"
""",
)
CATALOG = "".join(
    [
        CHAT.format(suffix="", context=32768, parallel=4),
        CHAT.format(suffix="-two", context=16384, parallel=2),
        TRANSLATE.format(suffix="", context=4096, parallel=4),
        TRANSLATE.format(suffix="-two", context=2048, parallel=2),
    ]
)
TWO = {
    "chat": {"variant": "llamacpp/solo-chat", "cards": [0], "port": 18082},
    "translate": {"variant": "llamacpp/solo-translate", "port": 18083},
}
CARD_FILES = "find /proc/{pid}/fd -lname '/dev/nvidia*' -printf x | wc -c"


@pytest.fixture(scope="module")
def declare(deployed: GpuMachine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeclareInstances]:
    """Writes the machine's inventory with these instances, in a folder with a catalogue of its own."""
    yield inventory_writer(deployed, tmp_path_factory.mktemp("beside"), CATALOG)
    # other tests have the machine as inventory/metal.py says
    deploy(INVENTORY)


@pytest.fixture
def both(declare: DeclareInstances) -> Path:
    """A model on the card and one on the processor, deployed."""
    inventory = declare(TWO, {name: [name] for name in TWO})
    done = run_deploy(inventory)
    assert done.status == 0, done.said[-4000:]
    return inventory


def test_both_answer_and_the_card_is_one_ones_alone(machine: GpuMachine, both: Path) -> None:
    pids = {name: instance_pid(machine, name) for name in TWO}
    assert compute_processes(machine) == {pids["chat"]: {machine.run(BUSES).split()[0]}}
    assert int(machine.run(CARD_FILES.format(pid=pids["chat"]))) > 0
    assert int(machine.run(CARD_FILES.format(pid=pids["translate"]))) == 0
    with ThreadPoolExecutor(8) as clients:
        assert set(clients.map(lambda number: model_answer(machine, sorted(TWO)[number % 2]), range(32))) == {ANSWER}
    assert red_check_lines(both) == {}
    assert run_deploy(both).changed_operations == []
