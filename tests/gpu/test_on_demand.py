"""Two models that a card does not hold together, loaded on demand behind one gateway.

By itself, with a load of ten minutes: `.venv/bin/pytest -s -v tests/gpu/test_on_demand.py --clients-for 600`.
"""

import json
import math
import os
import shlex
import statistics
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from benchmarks.on_demand import measure_pair, until_asleep
from benchmarks.on_demand_host import GATEWAY_PORT, OnDemandBox, disturb_regularly
from benchmarks.on_demand_load import RandomLoad
from benchmarks.on_demand_results import percentile
from lab.tiny_model import HEAVY
from tests.gpu.gateway_instances import SLACK, DeclareInstances, compute_processes, instance_pid, inventory_writer
from tests.gpu.gpu_machine import INVENTORY, GpuMachine
from tests.hosts.hub_models import run_rigwright
from tests.hosts.support import red_check_lines, run_deploy, run_plan, wait_until

AT = f"127.0.0.1:{GATEWAY_PORT}"
MODELS = ("m1", "m2")
IDLE_S, RESIDENCE_S, CLIENTS, TOKENS, PAIRS = 3, 5, 8, 64, 5
DISTURBED_EVERY_S = 10.0
# of the card: more than half for each model, and what leaves too little for one
KV_SHARE, TAKEN_SHARE = 0.55, 0.5
# keys and values of a sequence of the model's whole context, as 16-bit numbers
SEQUENCE_MIB = HEAVY.layers * 2 * HEAVY.kv_heads * HEAVY.head_width * 2 * HEAVY.context >> 20
VARIANT = """
[variants."llamacpp/half-a-card"]
engine = "llama.cpp"
model = "metal-rig"
cards = 1
context = {context}
parallel = {parallel}
flash_attention = "on"
"""
POWER = "timeout 20 nvidia-smi --query-gpu=power.draw --format=csv,noheader,nounits --id=0"
EACH_SECOND = f"{POWER} --loop=1"
CONTROLLERS = "cat /sys/fs/cgroup/cgroup.controllers"
LIMIT = "systemctl set-property --runtime rigwright-m1 MemoryMax=64M"
TAKER = "rw-test-taker"
# a process that allocates memory of the first card by the driver's own library, and waits
TAKE = """
import ctypes, signal
cuda = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(SIZE)) == 0
signal.pause()
"""


@dataclass
class CardUse:
    """The most that a card has had at one time."""

    mib: int = 0
    engines: set[int] = field(default_factory=set)


@pytest.fixture(scope="module")
def declare(deployed: GpuMachine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeclareInstances]:
    """Writes the machine's inventory with models on demand that have more than half of its first card each."""
    if not deployed.throwaway:
        pytest.skip("clients and bare starts are in a throwaway host's network")
    (mib, *_) = (int(str(card["vram_mib"])) for card in deployed.cards)
    sequences = math.ceil(KV_SHARE * mib / SEQUENCE_MIB)
    catalog = VARIANT.format(context=sequences * HEAVY.context, parallel=sequences)
    on_demand = {"residence": RESIDENCE_S}
    yield inventory_writer(deployed, tmp_path_factory.mktemp("on-demand"), catalog, on_demand=on_demand)
    # other tests have the machine as inventory/metal.py says
    assert run_deploy(INVENTORY).status == 0


@pytest.fixture(scope="module")
def box(deployed: GpuMachine, declare: DeclareInstances) -> OnDemandBox:
    """The two models, deployed."""
    shared = {"variant": "llamacpp/half-a-card", "cards": [0], "start": "on-demand", "idle": IDLE_S}
    instances = {name: {**shared, "port": 8021 + number} for number, name in enumerate(MODELS)}
    inventory = declare(instances, {name: [name] for name in instances})
    done = run_deploy(inventory)
    assert done.status == 0, done.said[-4000:]
    assert deployed.throwaway
    return OnDemandBox(deployed.throwaway, inventory, MODELS)


@contextmanager
def watched_card(machine: GpuMachine) -> Iterator[CardUse]:
    """Look at the first card twice a second while the block runs."""
    seen, ended = CardUse(), threading.Event()

    def watch() -> None:
        while not ended.wait(0.5):
            seen.mib = max(seen.mib, machine.used_mib())
            seen.engines = max(seen.engines, set(compute_processes(machine)), key=len)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def ask(box: OnDemandBox, model: str, plain: float = 0.0) -> str:
    """The problem of one request; empty for a complete answer."""
    (one,) = box.run_load(RandomLoad(AT, (model,), 1, 60.0, TOKENS, requests=1, plain=plain))
    return one.problem


def run_fit(box: OnDemandBox) -> subprocess.CompletedProcess[str]:
    """The prediction for both, from the box's own records."""
    fit = run_rigwright("fit", str(box.inventory), "--accept")
    print(f"\n{fit.stdout}{fit.stderr}")
    return fit


def test_a_deploy_proves_both_and_lets_them_sleep(deployed: GpuMachine, box: OnDemandBox) -> None:
    until_asleep(box)
    assert compute_processes(deployed) == {}
    assert red_check_lines(box.inventory) == {}
    assert run_plan(box.inventory).planned_operations == []
    assert run_fit(box).returncode == 0


def test_clients_of_both_lose_no_request(deployed: GpuMachine, box: OnDemandBox, pytestconfig: pytest.Config) -> None:
    seconds = float(pytestconfig.getoption("--clients-for"))
    load = RandomLoad(AT, MODELS, CLIENTS, seconds, TOKENS)
    with watched_card(deployed) as card, disturb_regularly(box.host, DISTURBED_EVERY_S) as disturbances:
        rows = box.run_load(load)
    journal = box.host.run("journalctl --unit=rigwright_residency --output=cat --no-pager")
    loads = {name: journal.count(f"{name} is starting") for name in MODELS}
    waits = sorted(one.first_s for one in rows)
    of_each = [sum(one.client == number for one in rows) for number in range(CLIENTS)]
    print(
        f"\n{len(rows)} requests in {seconds:g} s, {len(disturbances)} kills, restarts and reloads; loads {loads}; "
        f"waits {statistics.median(waits):.2f} s, P95 {percentile(waits, 0.95):.2f} s, {waits[-1]:.2f} s at "
        f"most; requests of a client {min(of_each)} to {max(of_each)}; the card had {card.mib} MiB at most; "
        f"load seconds {box.load_seconds()}; load {os.getloadavg()[0]:.1f}"
    )
    assert [one for one in rows if one.problem] == []
    assert {one.tokens for one in rows} == {TOKENS}
    assert {one.model for one in rows} == set(MODELS)
    assert min(loads.values()) > seconds / 60
    assert len(card.engines) == 1
    assert 2 * min(of_each) >= max(of_each)


def test_an_asleep_card_is_idle(deployed: GpuMachine, box: OnDemandBox) -> None:
    until_asleep(box)
    idle = deployed.used_mib()
    assert ask(box, "m1") == ""
    loaded, serving = deployed.used_mib(), float(deployed.run(POWER))
    until_asleep(box)
    wait_until(lambda: deployed.used_mib() <= idle + SLACK, "the card's memory back", 30)
    # it falls for some seconds after the last work
    watts = [float(line) for line in deployed.run(EACH_SECOND, check=False).split()]
    print(f"\nasleep {idle} MiB; loaded {loaded} MiB, {serving} W; asleep again, second by second: {watts} W")
    assert loaded > KV_SHARE * float(str(deployed.cards[0]["vram_mib"]))
    assert min(watts) <= serving


def test_a_wake_beside_a_bare_start(box: OnDemandBox) -> None:
    pairs = [measure_pair(box, is_bare_first=number % 2 == 1) for number in range(PAIRS)]
    ratios = sorted(one.ratio for one in pairs)
    print(f"\nwake / bare start {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}): {pairs}")


def test_another_process_takes_the_memory(deployed: GpuMachine, box: OnDemandBox) -> None:
    until_asleep(box)
    size = int(TAKEN_SHARE * float(str(deployed.cards[0]["vram_mib"])))
    program = TAKE.replace("SIZE", str(size << 20))
    deployed.run(shlex.join(["systemd-run", "--quiet", f"--unit={TAKER}", "python3", "-I", "-c", program]))
    try:
        wait_until(lambda: deployed.used_mib() >= size, "the memory taken", 30)
        said = {name: ask(box, name, plain) for name, plain in zip(MODELS, (0.0, 1.0), strict=True)}
        print(f"\n{json.dumps(said, indent=1)}")
        assert all("other processes have" in one for one in said.values())
        assert compute_processes(deployed).keys() == {instance_pid(deployed, TAKER)}
    finally:
        deployed.run(f"systemctl stop {TAKER}")
    wait_until(lambda: ask(box, "m1") == "", "an answer once the memory is free", 60, every=2)
    assert red_check_lines(box.inventory) == {}


def test_a_start_that_the_kernel_ends_for_lack_of_memory(deployed: GpuMachine, box: OnDemandBox) -> None:
    if "memory" not in deployed.run(CONTROLLERS).split():
        pytest.skip("the throwaway hosts of this machine have no memory controller")
    until_asleep(box)
    deployed.run(LIMIT)
    try:
        problem = ask(box, "m1")
        print(f"\n{problem}")
        assert "memory" in problem
        # the other one serves on
        assert ask(box, "m2") == ""
        fit = run_fit(box)
        assert fit.returncode == 1
        assert "memory" in fit.stdout
    finally:
        deployed.run("systemctl revert rigwright-m1")
    wait_until(lambda: ask(box, "m1") == "", "an answer without the limit", 60, every=2)
    assert run_fit(box).returncode == 0


def test_a_reboot_leaves_both_asleep(deployed: GpuMachine, box: OnDemandBox) -> None:
    box.host.reboot()
    box.host.run("ip route del default; ldconfig", check=False)
    assert box.loaded() == set()
    assert [ask(box, name) for name in MODELS] == ["", ""]
    assert red_check_lines(box.inventory) == {}
    assert run_plan(box.inventory).planned_operations == []
