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
    SLACK,
    DeclareInstances,
    ask_gateway,
    completions_url,
    compute_processes,
    instance_pid,
    inventory_writer,
    model_answer,
    served_variants,
    used_card_memory,
)
from tests.gpu.gpu_machine import INVENTORY, GpuMachine
from tests.hosts.hub_models import run_rigwright
from tests.hosts.steady_load import run_load
from tests.hosts.support import red_check_lines, run_deploy, wait_until

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
OTHER = {"chat": "llamacpp/solo-chat-two", "translate": "llamacpp/solo-translate-two"}
CARD_FILES = "find /proc/{pid}/fd -lname '/dev/nvidia*' -printf x | wc -c"


@pytest.fixture(scope="module")
def declare(deployed: GpuMachine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeclareInstances]:
    """Writes the machine's inventory with these instances, in a folder with a catalogue of its own."""
    yield inventory_writer(deployed, tmp_path_factory.mktemp("beside"), CATALOG)
    # other tests have the machine as inventory/metal.py says
    assert run_deploy(INVENTORY).status == 0


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


def test_each_ones_memory_comes_back_while_the_other_one_answers(machine: GpuMachine, both: Path) -> None:
    serving = used_card_memory(machine)[0]
    machine.run("systemctl stop rigwright-chat")
    wait_until(lambda: used_card_memory(machine)[0] < serving - 700, "the card's memory back", 30)
    idle = used_card_memory(machine)[0]
    assert compute_processes(machine) == {}
    assert {model_answer(machine, "translate") for _ in range(4)} == {ANSWER}
    assert ask_gateway(machine, "chat").status_code == 503
    machine.run("systemctl start rigwright-chat")
    assert abs(used_card_memory(machine)[0] - serving) <= SLACK

    machine.run("systemctl stop rigwright-translate")
    assert machine.run("pgrep -c llama-server").strip() == "1"
    assert abs(used_card_memory(machine)[0] - serving) <= SLACK
    assert {model_answer(machine, "chat") for _ in range(4)} == {ANSWER}
    assert ask_gateway(machine, "translate").status_code == 503
    machine.run("systemctl start rigwright-translate")
    print(f"\nserving {serving} MiB, without the card's own one {idle} MiB")
    wait_until(lambda: red_check_lines(both) == {}, "all checks hold again", 30)


@pytest.mark.parametrize("name", sorted(TWO))
def test_nobody_loses_an_answer_while_one_of_them_gets_another_variant(
    machine: GpuMachine, both: Path, name: str
) -> None:
    (other,) = set(TWO) - {name}
    before = instance_pid(machine, other)
    with run_load(completions_url(machine), tuple(TWO), clients=8) as clients:
        # the model knows nothing, which its answers show
        switched = run_rigwright("switch", str(both), name, OTHER[name], "--unverified")
    assert switched.returncode == 0, switched.stdout + switched.stderr
    print(
        f"\n{len(clients.answered)} answered, {len(clients.told)} told 503, longest silence {clients.longest_gap:.2f} s"
    )
    assert (clients.wrong, clients.told) == ([], [])
    assert served_variants(machine) == {name: OTHER[name], other: TWO[other]["variant"]}
    assert instance_pid(machine, other) == before
    assert red_check_lines(both) == {}
    assert run_deploy(both).changed_operations == []
