"""Two cards of one machine: an instance a card behind one address, another variant under load, one model over both.

By itself: `.venv/bin/pytest -s -v tests/gpu/test_pair.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lab.tiny_model import ANSWER
from tests.gpu.boxes import BUSES, SLACK, Declare, answer, declaring, memory, pid_of, served_by, url, variants
from tests.gpu.machine import INVENTORY, Machine
from tests.hosts.models import rigwright
from tests.hosts.steady import load
from tests.hosts.support import deploy, red_lines, until

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
EACH = {
    "left": {"variant": ONE, "cards": [0], "port": 8020},
    "right": {"variant": ONE, "cards": [1], "port": 8021},
}


@pytest.fixture(scope="module")
def pair(machine: Machine) -> Machine:
    """The machine, where it has two cards."""
    if len(machine.cards) < 2:
        pytest.skip(f"it has one card, {machine.cards[0]['name']}: two are needed for an instance on each")
    return machine


@pytest.fixture(scope="module")
def declare(pair: Machine, deployed: Machine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Declare]:
    """Writes the machine's inventory with other instances, in a folder with a catalogue of its own."""
    yield declaring(deployed, tmp_path_factory.mktemp("pair"), CATALOG)
    # other tests have the machine as inventory/metal.py says
    assert deploy(INVENTORY).status == 0


@pytest.fixture
def each(pair: Machine, declare: Declare) -> Path:
    """An instance a card, both behind one name."""
    inventory = declare(EACH, {"both": ["left", "right"]})
    done = deploy(inventory)
    assert done.status == 0, done.said[-4000:]
    return inventory


def answered_tokens(pair: Machine, instance: str) -> float:
    """Tokens that an instance has said since it started, by its own account."""
    read = f"curl -sf --unix-socket /run/rigwright/instances/{instance}/api.sock -H @- http://localhost/metrics"
    key = f"/etc/rigwright/credentials/{instance}.api-key"
    said = pair.run(f"sed 's/^/Authorization: Bearer /' {key} | {read}")
    (found,) = (line.split()[1] for line in said.splitlines() if line.startswith("llamacpp:tokens_predicted_total "))
    return float(found)


def test_an_instance_a_card_answers_by_one_name(pair: Machine, each: Path) -> None:
    buses = pair.run(BUSES).split()
    pids = {name: pid_of(pair, name) for name in EACH}
    assert served_by(pair) == {pids["left"]: {buses[0]}, pids["right"]: {buses[1]}}
    before = {name: answered_tokens(pair, name) for name in EACH}
    with ThreadPoolExecutor(8) as clients:
        assert set(clients.map(lambda _: answer(pair, "both"), range(32))) == {ANSWER}
    said = {name: answered_tokens(pair, name) - before[name] for name in EACH}
    print(f"\ntokens by instance {said}, memory {memory(pair)} MiB")
    assert all(said.values())
    assert red_lines(each) == {}
    assert deploy(each).changed == []


def test_the_memory_of_one_card_comes_back_and_the_other_one_answers_on(pair: Machine, each: Path) -> None:
    serving = memory(pair)
    pair.run("systemctl stop rigwright-left")
    until(lambda: memory(pair)[0] < serving[0] - 700, "the first card's memory back", 30)
    idle = memory(pair)
    print(f"\nserving {serving} MiB, without the first one's {idle} MiB")
    assert abs(idle[1] - serving[1]) <= SLACK
    assert {answer(pair, "both") for _ in range(8)} == {ANSWER}
    pair.run("systemctl start rigwright-left")
    assert all(abs(now - then) <= SLACK for now, then in zip(memory(pair), serving, strict=True))
    until(lambda: red_lines(each) == {}, "all checks hold again", 30)


def test_nobody_loses_an_answer_while_one_card_gets_another_variant(pair: Machine, declare: Declare) -> None:
    inventory = declare(EACH, {name: [name] for name in EACH})
    done = deploy(inventory)
    assert done.status == 0, done.said[-4000:]
    before = pid_of(pair, "right")
    with load(url(pair), tuple(EACH), clients=8) as clients:
        # the model knows nothing, which its answers show
        switched = rigwright("switch", str(inventory), "left", "llamacpp/metal-eight", "--unverified")
    assert switched.returncode == 0, switched.stdout + switched.stderr
    print(f"\n{len(clients.answered)} answered, {len(clients.told)} told 503, longest silence {clients.silence:.2f} s")
    assert (clients.wrong, clients.told) == ([], [])
    assert variants(pair) == {"left": "llamacpp/metal-eight", "right": ONE}
    assert pid_of(pair, "right") == before
    assert red_lines(inventory) == {}
    assert deploy(inventory).changed == []


def test_one_model_lies_on_two_cards(pair: Machine, declare: Declare) -> None:
    whole = {"whole": {"variant": "llamacpp/metal-layers", "cards": [0, 1], "port": 8020}}
    inventory = declare(whole, {"metal-rig": ["whole"]})
    done = deploy(inventory)
    assert done.status == 0, done.said[-4000:]
    assert served_by(pair) == {pid_of(pair, "whole"): set(pair.run(BUSES).split())}
    with ThreadPoolExecutor(8) as clients:
        assert set(clients.map(lambda _: answer(pair, "metal-rig"), range(32))) == {ANSWER}
    serving = memory(pair)
    assert red_lines(inventory) == {}
    pair.run("systemctl stop rigwright-whole")
    until(lambda: max(memory(pair)) <= SLACK, "both cards' memory back", 30)
    print(f"\nserving {serving} MiB, stopped {memory(pair)} MiB")
    # weights alone are 730 MB, half of them on each
    assert min(serving) > 300
    pair.run("systemctl start rigwright-whole")
    assert answer(pair, "metal-rig") == ANSWER
    assert deploy(inventory).changed == []
