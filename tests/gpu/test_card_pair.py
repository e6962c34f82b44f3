"""Two cards of one machine: an instance a card behind one address, another variant under load, one model over both.

By itself: `.venv/bin/pytest -s -v tests/gpu/test_card_pair.py`.
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
from tests.hosts.support import deploy, red_check_lines, run_deploy, wait_until

# of the model that inventory/metal.py serves: half of its slots, and its layers over two cards
CATALOG = """
[variants."llamacpp/metal-eight"]
engine = "llama.cpp"
model = "metal-rig"
cards = 1
context = 16384
parallel = 8
cache_type_k = "q4_0"
cache_type_v = "q8_0"
flash_attention = "on"
flags.metrics = true

[variants."llamacpp/metal-layers"]
engine = "llama.cpp"
model = "metal-rig"
cards = 2
split_mode = "layer"
context = 32768
parallel = 16
cache_type_k = "q4_0"
cache_type_v = "q8_0"
flash_attention = "on"
flags.metrics = true
"""
ONE = "llamacpp/metal"
EACH = {"left": {"variant": ONE, "cards": [0], "port": 8020}, "right": {"variant": ONE, "cards": [1], "port": 8021}}


@pytest.fixture(scope="module")
def pair(machine: GpuMachine) -> GpuMachine:
    """The machine, where it has two cards."""
    if len(machine.cards) < 2:
        pytest.skip(f"it has one card, {machine.cards[0]['name']}: two are needed for an instance on each")
    return machine


@pytest.fixture(scope="module")
def declare(
    pair: GpuMachine, deployed: GpuMachine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DeclareInstances]:
    """Writes the machine's inventory with other instances, in a folder with a catalogue of its own."""
    yield inventory_writer(deployed, tmp_path_factory.mktemp("pair"), CATALOG)
    # other tests have the machine as inventory/metal.py says
    deploy(INVENTORY)


@pytest.fixture
def deployed_pair(pair: GpuMachine, declare: DeclareInstances) -> Path:
    """An instance a card, both behind one name."""
    inventory = declare(EACH, {"both": ["left", "right"]})
    done = run_deploy(inventory)
    assert done.status == 0, done.said[-4000:]
    return inventory


def answered_tokens(pair: GpuMachine, instance: str) -> float:
    """Tokens that an instance has said since it started, by its own account."""
    read = f"curl -sf --unix-socket /run/rigwright/instances/{instance}/api.sock -H @- http://localhost/metrics"
    key = f"/etc/rigwright/credentials/{instance}.api-key"
    said = pair.run(f"sed 's/^/Authorization: Bearer /' {key} | {read}")
    (found,) = (line.split()[1] for line in said.splitlines() if line.startswith("llamacpp:tokens_predicted_total "))
    return float(found)


def test_an_instance_a_card_answers_by_one_name(pair: GpuMachine, deployed_pair: Path) -> None:
    buses = pair.run(BUSES).split()
    pids = {name: instance_pid(pair, name) for name in EACH}
    assert compute_processes(pair) == {pids["left"]: {buses[0]}, pids["right"]: {buses[1]}}
    before = {name: answered_tokens(pair, name) for name in EACH}
    with ThreadPoolExecutor(8) as clients:
        assert set(clients.map(lambda _: model_answer(pair, "both"), range(32))) == {ANSWER}
    said = {name: answered_tokens(pair, name) - before[name] for name in EACH}
    print(f"\ntokens by instance {said}, memory {used_card_memory(pair)} MiB")
    assert all(said.values())
    assert red_check_lines(deployed_pair) == {}
    assert run_deploy(deployed_pair).changed_operations == []


def test_the_memory_of_one_card_comes_back_and_the_other_one_answers_on(pair: GpuMachine, deployed_pair: Path) -> None:
    serving = used_card_memory(pair)
    pair.run("systemctl stop rigwright-left")
    wait_until(lambda: used_card_memory(pair)[0] < serving[0] - 700, "the first card's memory back", 30)
    idle = used_card_memory(pair)
    print(f"\nserving {serving} MiB, without the first one's {idle} MiB")
    assert abs(idle[1] - serving[1]) <= SLACK
    assert {model_answer(pair, "both") for _ in range(8)} == {ANSWER}
    pair.run("systemctl start rigwright-left")
    assert all(abs(now - then) <= SLACK for now, then in zip(used_card_memory(pair), serving, strict=True))
    wait_until(lambda: red_check_lines(deployed_pair) == {}, "all checks hold again", 30)


def test_no_client_loses_an_answer_while_one_card_gets_another_variant(
    pair: GpuMachine, declare: DeclareInstances
) -> None:
    inventory = declare(EACH, {name: [name] for name in EACH})
    done = run_deploy(inventory)
    assert done.status == 0, done.said[-4000:]
    before = instance_pid(pair, "right")
    with run_load(completions_url(pair), tuple(EACH), clients=8) as clients:
        # the model knows nothing, which its answers show
        switched = run_rigwright("switch", str(inventory), "left", "llamacpp/metal-eight", "--unverified")
    assert switched.returncode == 0, switched.stdout + switched.stderr
    print(
        f"\n{len(clients.answered)} answered, {len(clients.told)} get 503, longest silence {clients.longest_gap:.2f} s"
    )
    assert (clients.wrong, clients.told) == ([], [])
    assert served_variants(pair) == {"left": "llamacpp/metal-eight", "right": ONE}
    assert instance_pid(pair, "right") == before
    assert red_check_lines(inventory) == {}
    assert run_deploy(inventory).changed_operations == []


def test_one_model_lies_on_two_cards(pair: GpuMachine, declare: DeclareInstances) -> None:
    whole = {"whole": {"variant": "llamacpp/metal-layers", "cards": [0, 1], "port": 8020}}
    inventory = declare(whole, {"metal-rig": ["whole"]})
    done = run_deploy(inventory)
    assert done.status == 0, done.said[-4000:]
    assert compute_processes(pair) == {instance_pid(pair, "whole"): set(pair.run(BUSES).split())}
    with ThreadPoolExecutor(8) as clients:
        assert set(clients.map(lambda _: model_answer(pair, "metal-rig"), range(32))) == {ANSWER}
    serving = used_card_memory(pair)
    assert red_check_lines(inventory) == {}
    pair.run("systemctl stop rigwright-whole")
    wait_until(lambda: max(used_card_memory(pair)) <= SLACK, "both cards' memory back", 30)
    print(f"\nserving {serving} MiB, stopped {used_card_memory(pair)} MiB")
    # weights alone are 730 MB, half of them on each
    assert min(serving) > 300
    pair.run("systemctl start rigwright-whole")
    assert model_answer(pair, "metal-rig") == ANSWER
    assert run_deploy(inventory).changed_operations == []
