"""The inventories that are shipped: each is valid as it lies there, and becomes the rig that its words promise."""

import runpy
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import pytest

from rigwright.declaration.catalog import load_catalog
from rigwright.engines import kind_of
from rigwright.envs.environment import plan_environment
from rigwright.gateway.served_models import offers_of
from rigwright.inventory import load_for, load_rig
from rigwright.nvidia.cards.card_setting_files import POWER
from rigwright.nvidia.driver.driver_files import render_driver_settings
from rigwright.nvidia.driver.driver_plan import DriverPlan, plan_driver
from rigwright.operate.stress import haystack_sizes
from rigwright.paths import ROOT
from rigwright.plan.plan_inputs import build_target_state
from rigwright.plan.preflight import describe_variant_evidence
from tests.unit.driver_samples import driverless_host, refusal_reasons, with_locked_drivers
from tests.unit.samples import sample_facts
from tests.unit.shipped_inventories import load_rigs

# Of a machine or a throwaway host that has to be there first
MADE_FOR_ONE = {"demo", "metal"}
# Each is refused until its operator has locked its weights; what rig5090solo serves has a file of its own
SHIPPED = ("rig2080ti", "rig3090", "rig5090", "rig5090solo", "rig5090two")
# Of their boxes one of each kind
FLEET = "fleet"
SOLO = {"Qwen3.5-35B-A3B-UD-Q4_K_XL", "Qwen2.5-1.5B-Instruct-Q8_0"}
EIGHT = tuple((f"0000:{slot:02x}:00.0", "10de:2b85") for slot in range(1, 9))
FOLDER = TemporaryDirectory()
ALL = {name: one for inventory in SHIPPED for name, one in load_rigs(inventory, Path(FOLDER.name)).items()}


def test_every_inventory_is_tested() -> None:
    there = {path.stem for path in (ROOT / "inventory").glob("*.py")}
    assert there == {*SHIPPED, FLEET, *MADE_FOR_ONE}


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("rig2080ti", {"Qwen3.6-27B-AWQ-INT4"}),
        ("rig3090", {"Qwen3.6-27B-int4-AutoRound"}),
        ("rig5090", {"Qwen3.6-27B"}),
        ("rig5090two", {"Qwen3-8B", "Qwen3-30B-A3B-AWQ-4bit"}),
        ("rig5090solo", SOLO),
        (FLEET, SOLO | {"Qwen3.6-27B-AWQ-INT4", "Qwen3.6-27B-int4-AutoRound", "Qwen3.6-27B", "Qwen3-8B"}),
    ],
)
def test_without_locked_weights_it_is_refused_and_names_them(name: str, weights: set[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / "inventory" / f"{name}.py"))
    lines = str(ended.value.code).splitlines()
    assert all("is not locked: run `rigwright lock" in line for line in lines)
    assert {line.partition(" is not locked")[0].rpartition(" ")[2] for line in lines} == weights


@pytest.mark.parametrize("name", [*SHIPPED, FLEET])
def test_it_is_valid_and_every_rig_serves(name: str, tmp_path: Path) -> None:
    one = load_rigs(name, tmp_path)
    # a process of its own: pyinfra's gevent wants to be there before ssl
    command_ = [sys.executable, "-m", "cli", "validate", str(tmp_path / f"{name}.py")]
    done = subprocess.run(command_, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("valid\n")
    assert all(found.instances for found in one.values())


def load_inventory(name: str) -> dict[str, dict[str, Any]]:
    """What an inventory says of its rigs, by name, without their locks: each can be made."""
    with load_for("lock"):
        group: Any = runpy.run_path(str(ROOT / "inventory" / f"{name}.py"))["rigs"]
        assert all(load_rig(data["rig"]).instances for _, data in group)
    return {rig: {"ssh_hostname": data["ssh_hostname"], **data["rig"]["entry"]} for rig, data in group}


@pytest.mark.parametrize("name", SHIPPED)
def test_its_lock_can_be_made(name: str) -> None:
    assert load_inventory(name)


def test_a_fleet_has_a_box_of_each_kind_as_its_own_inventory_has_it() -> None:
    fleet, shared = load_inventory(FLEET), {"share", "peers", "mirrors"}
    alone = {rig: entry for name in SHIPPED for rig, entry in load_inventory(name).items()}
    for rig, entry in fleet.items():
        assert {key: entry[key] for key in entry if key not in shared} == {
            key: alone[rig][key] for key in alone[rig] if key not in shared
        }, rig
    kinds = {(entry["cards"][0], len(entry["cards"])) for entry in alone.values()}
    assert {(entry["cards"][0], len(entry["cards"])) for entry in fleet.values()} == kinds - {("rtx-2080-ti-22g", 4)}


def test_a_fleet_fetches_once_what_vllm_is_made_of() -> None:
    fleet = load_inventory(FLEET)
    (source,) = [entry["share"]["address"] for entry in fleet.values() if "share" in entry]
    asking = {rig: entry["peers"] for rig, entry in fleet.items() if entry["peers"]}
    assert set(map(tuple, asking.values())) == {(f"http://{source}:8090",)}
    with_vllm = {rig for rig, entry in fleet.items() if any(map(on_vllm, entry["instances"].values()))}
    assert {*asking, "rig3090-two"} == with_vllm


def on_vllm(instance: dict[str, Any]) -> bool:
    return str(instance["variant"]).startswith("vllm/")


@pytest.mark.parametrize("name", ALL)
def test_it_comes_to_units_on_a_host(name: str) -> None:
    one = ALL[name]
    cards = tuple((f"0000:{slot:02x}:00.0", card.pci_ids[0]) for slot, card in enumerate(one.cards, start=1))
    made = build_target_state(one, sample_facts(pci_cards=cards)).generation.files
    assert {f"units/{instance.unit}" for instance in one.instances} <= made.keys()


@pytest.mark.parametrize("name", ALL)
def test_nothing_that_it_serves_goes_without_evidence(name: str) -> None:
    one = ALL[name]
    assert len(describe_variant_evidence(one)) == len(one.instances)


@pytest.mark.parametrize(
    ("name", "card", "count", "power", "pairs"),
    [
        ("rig2080ti", "7.5", 2, None, ((0, 1),)),
        ("rig2080ti-four", "7.5", 4, 200, ((0, 1), (2, 3))),
        ("rig3090", "8.6", 1, 280, ()),
        ("rig3090-two", "8.6", 2, 280, ()),
        ("rig5090", "12.0", 8, 450, ()),
        ("rig5090-pairs", "12.0", 8, 450, ()),
        ("rig5090solo", "12.0", 1, None, ()),
        ("rig5090two", "12.0", 2, 450, ()),
        ("rig5090two-split", "12.0", 2, 450, ()),
    ],
)
def test_its_cards_and_what_they_are_set_to(
    name: str, card: str, count: int, power: int | None, pairs: tuple[tuple[int, int], ...]
) -> None:
    one = ALL[name]
    assert [found.capability for found in one.cards] == [card] * count
    assert one.power_limits == (power,) * count
    assert one.driver.nvlinks == pairs


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("system", ["ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04", "debian-12", "debian-13"])
def test_there_is_a_driver_for_it_and_its_settings(name: str, system: str) -> None:
    one = ALL[name]
    facts = driverless_host(system, *(card.pci_ids[0] for card in one.cards))
    plan = plan_driver(with_locked_drivers(one), facts)
    assert isinstance(plan, DriverPlan), plan
    assert plan.flavour == ("proprietary" if name.startswith("rig2080ti") else "open")
    files = {setting.path for setting in render_driver_settings(one, plan)}
    assert (POWER in files) == (one.driver.power_w is not None)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("system", ["debian-12", "debian-13"])
def test_on_debian_its_operator_is_told_to_lock_a_driver_and_nothing_else(name: str, system: str) -> None:
    one = ALL[name]
    (reason,) = refusal_reasons(one, driverless_host(system, *(card.pci_ids[0] for card in one.cards)))
    assert reason.startswith(f"no driver is locked for {system}")


def test_only_cards_that_can_have_a_resizable_bar_are_given_one() -> None:
    given = {name for name, one in ALL.items() if "NVreg_EnableResizableBar" in one.driver.module_options}
    assert given == {name for name, one in ALL.items() if not name.startswith("rig2080ti")} - {"rig5090solo"}


def test_memory_is_moved_between_nodes_by_nobody_on_the_box_that_has_two() -> None:
    still = {name for name, one in ALL.items() if one.driver.sysctl.get("kernel.numa_balancing") == 0}
    assert still == {"rig5090", "rig5090-pairs"}


def command(name: str) -> list[str]:
    """The words after the model of what the instance of a rig is started with."""
    whole = ALL[name]
    (one,) = whole.instances
    made = plan_environment(whole, whole.envs[0], sample_facts())
    return [str(word) for word in kind_of(one).service(whole, one, made).command[5:]]


def test_four_5090_serve_with_the_write_ups_flags() -> None:
    assert command("rig5090") == [
        "--served-model-name=qwen3.6-27b",
        "--uds=/run/rigwright/instances/chat/api.sock",
        "--tensor-parallel-size=4",
        "--pipeline-parallel-size=1",
        "--data-parallel-size=1",
        "--max-model-len=16384",
        "--max-num-seqs=256",
        "--max-num-batched-tokens=16384",
        "--gpu-memory-utilization=0.92",
        "--reasoning-parser=qwen3",
        "--tool-call-parser=qwen3_coder",
        "--enable-auto-tool-choice",
        '--default-chat-template-kwargs={"enable_thinking": false}',
        "--allowed-origins=[]",
        "--attention-backend=FLASHINFER",
        "--disable-custom-all-reduce",
        "--enable-chunked-prefill",
        "--enable-prefix-caching",
    ]
    whole = ALL["rig5090"]
    nodes = {place: slot // 4 for slot, (place, _) in enumerate(sample_facts(pci_cards=EIGHT).pci_cards)}
    there = sample_facts(pci_cards=EIGHT, card_nodes=MappingProxyType(nodes), numa_nodes=frozenset({0, 1}))
    text = build_target_state(whole, there).generation.files["units/rigwright-chat.service"]
    assert "NUMAPolicy=bind\nNUMAMask=0\nCPUAffinity=numa\n" in text


def test_one_3090_serves_one_request_of_65536_tokens_with_mtp() -> None:
    words = command("rig3090")
    assert {"--max-model-len=65536", "--max-num-seqs=1", "--kv-cache-dtype=fp8_e5m2"} <= set(words)
    assert '--speculative-config={"method": "mtp", "num_speculative_tokens": 3}' in words
    assert "--tensor-parallel-size=1" in words


@pytest.mark.parametrize(
    ("name", "listeners"),
    [
        ("rig2080ti", [("0.0.0.0", 8000, False)]),
        ("rig2080ti-four", [("0.0.0.0", 8000, False)]),
        ("rig3090", [("0.0.0.0", 8020, False)]),
        ("rig3090-two", [("0.0.0.0", 8020, False)]),
        ("rig5090", [("0.0.0.0", 8000, False)]),
        ("rig5090-pairs", [("0.0.0.0", 8000, False)]),
        ("rig5090solo", [("0.0.0.0", 18082, False), ("0.0.0.0", 18083, False)]),
    ],
)
def test_clients_of_a_write_up_find_its_address(name: str, listeners: list[tuple[str, int, bool]]) -> None:
    gateway = ALL[name].gateway
    assert gateway
    assert [(one.address, one.port, one.keys) for one in gateway.listeners.values()] == listeners


@pytest.mark.parametrize("name", ALL)
def test_every_llama_server_has_metrics(name: str) -> None:
    for one in ALL[name].instances:
        assert kind_of(one).name != "llama.cpp" or one.variant.flags.get("metrics") is True  # type: ignore[attr-defined]


def test_a_single_slot_has_room_for_a_needle_in_178000_tokens() -> None:
    capacity = load_catalog([ROOT / "catalog"]).variants["llamacpp/qwen3.5-35b-a3b-long"].capacity
    assert capacity
    slots, tokens = capacity
    assert slots == 1
    assert 178_000 in haystack_sizes(tokens)


def test_validate_says_which_environment_an_instance_runs_in(tmp_path: Path) -> None:
    load_rigs("rig3090", tmp_path)
    command_ = [sys.executable, "-m", "cli", "validate", str(tmp_path / "rig3090.py")]
    done = subprocess.run(command_, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert " vllm-mtp 0.21.0 " in done.stdout
    # of 64 layers every fourth has a cache: 16 layers x 4 heads x 256 numbers, keys and values, a byte each
    assert " 32.0 KiB/token, 2.0 GiB" in done.stdout
    assert "aiohttp" not in done.stdout


def test_two_instances_on_two_cards_each_answer_to_one_name() -> None:
    one = ALL["rig5090-pairs"]
    (offer,) = offers_of(one)
    assert [instance.cards for instance in offer.instances] == [(0, 1), (2, 3)]
    assert offer.sticky == "conversation"


def test_an_instance_a_card_answers_to_one_name() -> None:
    (offer,) = offers_of(ALL["rig5090two"])
    assert [instance.cards for instance in offer.instances] == [(0,), (1,)]


def test_half_of_the_layers_on_each_of_two_cards() -> None:
    words = command("rig5090two-split")
    assert {"--pipeline-parallel-size=2", "--tensor-parallel-size=1"} <= set(words)


def test_two_3090_guess_ahead_in_the_patched_environment() -> None:
    words = command("rig3090-two")
    assert '--speculative-config={"method": "mtp", "num_speculative_tokens": 3}' in words
    assert "--enable-prefix-caching" in words
    (env,) = ALL["rig3090-two"].envs
    assert [patch.name for patch in env.patches] == ["mamba-prefix-cache-mtp"]


@pytest.mark.parametrize(("name", "size"), [("rig2080ti", 2), ("rig2080ti-four", 4)])
def test_2080_ti_compute_in_half_and_have_no_plugins_options(name: str, size: int) -> None:
    words = command(name)
    assert {f"--tensor-parallel-size={size}", "--dtype=half", "--mamba-cache-mode=align"} <= set(words)
    assert not [word for word in words if "caovan" in word or "speculative" in word or "gpu-memory" in word]
    # vLLM 0.21.0 tunes FlashInfer from compute capability 9.0 on (model_executor/warmup/kernel_warmup.py)
    assert not [word for word in words if "autotune" in word]
