"""vLLM on a card: its locked closure from a bundle, deployed, served, broken and asked about, as llama.cpp's is.

By itself: `.venv/bin/pytest -s -v tests/gpu/test_vllm.py --vllm FOLDER`, with what `tests.gpu.vllm_bundle` has made.
"""

import json
import runpy
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import requests

from tests.gpu.gateway_instances import (
    BUSES,
    SLACK,
    ask_gateway,
    compute_processes,
    instance_pid,
    model_answer,
    used_card_memory,
)
from tests.gpu.gpu_machine import INVENTORY, GpuMachine
from tests.gpu.vllm_bundle import ONE, TWO, write_inventory
from tests.hosts.hub_models import run_rigwright
from tests.hosts.support import deploy, red_check_lines, red_checks, run_deploy, run_plan, wait_until
from tests.stand_ins.vllm_model import ANSWER

pytestmark = pytest.mark.skipif(
    "not config.getoption('--vllm')",
    reason="there is no vLLM here: `.venv/bin/python -m tests.gpu.vllm_bundle FOLDER` makes it for --vllm FOLDER",
)
GOAL = 0.99
"""Of the unit's tokens a second by the bare process's."""
START = 300  # seconds: torch.compile takes half a minute of it, imports as long
SAID = "".join(ANSWER).strip()
ENVIRONMENT = "$(readlink -f /etc/rigwright/current/env/chat)"
VERSION = "$(ls /opt/rigwright/engines/vllm-*/env/lib/python3.*/site-packages/vllm/version.py)"
# the change on the machine, the checks that must notice, and the cure in addition to a deploy
DRIFTS = {
    "a variable of the instance": (f'echo VLLM_LOGGING_LEVEL=\\"DEBUG\\" >> {ENVIRONMENT}', {"G01"}, ""),
    # with its time: bytecode of another time is compiled anew by the next process that may
    "a file of vLLM's": (
        f"cp -p {VERSION} /run/version.py; echo '# more' >> {VERSION}",
        {"L02"},
        f"cp -p /run/version.py {VERSION}",
    ),
}
Declare = Callable[[Mapping[str, object]], Path]


@pytest.fixture(scope="module")
def declare(
    pytestconfig: pytest.Config, machine: GpuMachine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Declare]:
    """Writes an inventory of the machine with instances of vLLM."""
    made: Path = pytestconfig.getoption("--vllm")
    folder = tmp_path_factory.mktemp("vllm")
    for name in ("catalog", "locks"):
        shutil.copytree(made / name, folder / name)
    ((name, data),) = runpy.run_path(str(INVENTORY))["rigs"]
    entry = {**machine.connection, **data["rig"]["entry"], "bundle": str(made / "bundle")}
    before = machine.run("cat /etc/rigwright/current/manifest.json 2>/dev/null || true")
    yield lambda instances: write_inventory(folder, name, entry, instances)
    # a machine that nothing was deployed to stays so for a first deploy
    assert not before or run_deploy(INVENTORY).status == 0


@pytest.fixture
def single_card_machine(declare: Declare) -> Path:
    """vLLM on the first card, machine."""
    inventory = declare(ONE)
    done = run_deploy(inventory)
    assert done.status == 0, done.said[-4000:]
    return inventory


def answers(machine: GpuMachine) -> bool:
    """Whether a question is answered through the gateway."""
    try:
        return ask_gateway(machine, "tiny").ok
    except requests.RequestException:
        return False


def processes(machine: GpuMachine, name: str) -> list[str]:
    """Those of the instance that have this name."""
    return machine.run(f"pgrep -u rigwright-chat {name} || true").split()


def test_a_second_run_changes_nothing_and_every_check_holds(machine: GpuMachine, single_card_machine: Path) -> None:
    assert run_plan(single_card_machine).planned_operations == []
    assert run_deploy(single_card_machine).changed_operations == []
    assert red_check_lines(single_card_machine) == {}


def test_it_answers_from_its_card_through_the_gateway(machine: GpuMachine, single_card_machine: Path) -> None:
    assert model_answer(machine, "tiny") == SAID
    buses = machine.run(BUSES).split()
    assert set().union(*compute_processes(machine).values()) == {buses[0]}
    verified = run_rigwright("check", "--serving", str(single_card_machine), "--json")
    (host,) = json.loads(verified.stdout)["hosts"]
    verdicts = {found["check"]: found["verdict"] for found in host["instances"][0]["checks"]}
    print(f"\n{verdicts}")
    # a model that knows nothing is skipped where knowledge is asked for
    assert "fail" not in verdicts.values()


@pytest.mark.parametrize(("break_it", "identifiers", "cure"), DRIFTS.values(), ids=DRIFTS)
def test_a_drift_turns_its_check_red(
    machine: GpuMachine, single_card_machine: Path, break_it: str, identifiers: set[str], cure: str
) -> None:
    try:
        machine.run(break_it)
        found = red_checks(single_card_machine)
        print(f"\n{', '.join(sorted(found))}")
        assert identifiers <= found
    finally:
        machine.run(cure or "true")
        deploy(single_card_machine)
    wait_until(lambda: red_check_lines(single_card_machine) == {}, "all checks hold again", 60)


def test_its_memory_comes_back_however_it_ends(machine: GpuMachine, single_card_machine: Path) -> None:
    serving = used_card_memory(machine)[0]
    stopped = run_rigwright("stop", str(single_card_machine), "chat")
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    wait_until(lambda: used_card_memory(machine)[0] <= SLACK, "the card's memory back", 30)
    assert ask_gateway(machine, "tiny").status_code == 503
    # a stopped process is not waited for
    began = time.monotonic()
    red_checks(single_card_machine)
    assert time.monotonic() - began < 20
    started = run_rigwright("start", str(single_card_machine), "chat")
    assert started.returncode == 0, started.stdout + started.stderr
    wait_until(lambda: answers(machine), "an answer after the start", START)

    for name in ("VLLM::EngineCor", "main"):
        (victim,) = [str(instance_pid(machine, "chat"))] if name == "main" else processes(machine, name)
        began = time.monotonic()
        machine.run(f"systemctl reset-failed rigwright-chat; kill -9 {victim}")
        wait_until(lambda: not answers(machine), "no answer any more", 60)
        wait_until(lambda: answers(machine), f"an answer after {name} was killed", START)
        print(f"\n{name} killed: an answer after {time.monotonic() - began:.1f} s, {used_card_memory(machine)} MiB")
        assert abs(used_card_memory(machine)[0] - serving) <= 4 * SLACK
    wait_until(lambda: red_check_lines(single_card_machine) == {}, "all checks hold again", 60)


def test_a_reboot_changes_nothing(machine: GpuMachine, single_card_machine: Path) -> None:
    if machine.throwaway is None:
        pytest.skip("a real machine is not rebooted by a test")
    machine.throwaway.reboot()
    machine.throwaway.run("ip route del default; ldconfig", check=False)
    wait_until(lambda: answers(machine), "an answer after the boot", START)
    assert red_check_lines(single_card_machine) == {}
    assert run_plan(single_card_machine).planned_operations == []


def test_the_unit_is_as_fast_as_the_process_without_it(
    machine: GpuMachine, single_card_machine: Path, tmp_path: Path
) -> None:
    """A ratio whose interval lies below the goal is a fault; one that is too wide is printed with its width."""
    figures = tmp_path / "figures.json"
    words = [*("--streams", "1", "--requests", "4", "--tokens", "256", "--loads", "6", "--rounds", "4", "--together")]
    done = run_rigwright("bench", "serving", str(single_card_machine), *words, "--json", str(figures))
    print(f"\n{done.stdout}")
    assert done.returncode == 0, done.stdout + done.stderr
    between = json.loads(figures.read_text())["unit_by_bare"]["1"]["interval"]
    assert between["high"] >= GOAL, between
    assert red_check_lines(single_card_machine) == {}


def test_one_model_lies_on_two_cards(machine: GpuMachine, declare: Declare) -> None:
    if len(machine.cards) < 2:
        pytest.skip(f"it has one card, {machine.cards[0]['name']}: tensor parallelism needs two")
    inventory = declare(TWO)
    done = run_deploy(inventory)
    assert done.status == 0, done.said[-4000:]
    assert model_answer(machine, "tiny") == SAID
    assert set().union(*compute_processes(machine).values()) == set(machine.run(BUSES).split()[:2])
    assert run_deploy(inventory).changed_operations == []
    assert red_check_lines(inventory) == {}
    victim = processes(machine, "VLLM::Worker")[0]
    machine.run(f"systemctl reset-failed rigwright-chat; kill -9 {victim}")
    wait_until(lambda: not answers(machine), "no answer any more", 60)
    wait_until(lambda: answers(machine), "an answer after a worker was killed", START)
    machine.run("systemctl stop rigwright-chat")
    wait_until(lambda: max(used_card_memory(machine)[:2]) <= SLACK, "both cards' memory back", 30)
